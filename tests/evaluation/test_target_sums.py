"""Sums over all targets, against plain loops with a scorer that can be worked out by hand."""

import collections
import dataclasses
import json
import math
import types
from typing import Any

import numpy as np
import pytest

from dclm_jax import files
from dclm_jax.data.datasets import Dataset
from dclm_jax.data.encoding import Encoded
from dclm_jax.errors import InputError
from dclm_jax.evaluation import target_sums
from dclm_jax.evaluation.target_sums import GROUPINGS, Targets, TargetSums
from tests.evaluation.test_context_ablation import DOCUMENTS, Neighbours


def split(documents=DOCUMENTS, tags: Any = None, **counts: int) -> Dataset:
    tags = tags or [None] * len(documents)
    encoded = [Encoded(*pair) for pair in zip(documents, tags, strict=True)]
    return Dataset(lambda: encoded, len(encoded), {"data": "data", "split": "test"}, counts)


def measured(evaluation: Targets, dataset: Dataset, scorer: Any = None) -> TargetSums:
    lm: Any = types.SimpleNamespace(
        scorer=scorer or Neighbours(),
        described=lambda sums, dataset: dataclasses.replace(sums, **dataset.counts),
    )
    done: list[int] = []
    result = evaluation.measure(lm, dataset, done.append)
    assert done == list(range(1, 1 + len(list(dataset.documents))))
    return result


@pytest.mark.parametrize("starts", [range(6), (0, 1, 3), (0, 2, 40)])
def test_sums_by_position_and_document_against_a_loop(starts, monkeypatch):
    monkeypatch.setattr(target_sums, "RANGE_STARTS", starts)
    result = measured(Targets(), split())
    for d, (_, nll) in enumerate(Neighbours().score(DOCUMENTS)):
        tokens, sentences = collections.defaultdict(list), collections.defaultdict(list)
        for t, nats in enumerate(nll):
            for n, value in enumerate(nats):
                tokens[max(start for start in starts if start <= n)].append(float(value))
                sentences[max(start for start in starts if start <= t)].append(float(value))
        for sums, expected in ((result.by_token, tokens), (result.by_sentence, sentences)):
            assert sums.count[d].tolist() == [len(expected[start]) for start in starts]
            np.testing.assert_allclose(
                sums.nll[d], [sum(expected[start]) for start in starts], atol=1e-6
            )
        total = sum(map(float, np.concatenate(nll)))
        assert result.by_document.nll[d] == pytest.approx(total, abs=1e-5)
    assert result.perplexity.tokens == result.by_document.count.sum() == 17
    assert result.perplexity.nll == pytest.approx(result.by_document.nll.sum(), abs=1e-5)


def test_bags_have_no_end():
    class Bags(Neighbours):
        objective = "bags"
        first_word_end = 3

    result = measured(Targets(), split(), Bags())
    # Of each document a word at the first position of every sentence, then those at the second.
    assert result.by_token.count[:, :3].tolist() == [[3, 2, 1], [1, 0, 0], [2, 2, 0]]
    with pytest.raises(InputError, match="^the models predict bags of words; choose models that"):
        measured(Targets(tags=True), split(), Bags())


TAGS = [[["NN", "IN"], ["NN"], ["NN", ",", "VB"]], [["NN"]], [["IN", "NN"], ["IN", "NN"]]]


def test_parts_of_speech_add_up_to_the_text():
    result = measured(Targets(tags=True), split(tags=TAGS))
    assert result.by_tag is not None
    assert dict(zip(result.by_tag.names, result.by_tag.tokens, strict=True)) == {
        **{"Noun": 6, "IN": 3, "Verb": 1},
        **{"punctuation": 1, "END": 6},
    }
    assert result.by_tag.sums.nll.sum() == pytest.approx(result.perplexity.nll)
    # The commas have 0.6, the END of each sentence 0.5.
    nats = dict(zip(result.by_tag.names, result.by_tag.sums.nll.sum(axis=0), strict=True))
    assert (nats["punctuation"], nats["END"]) == (pytest.approx(0.6), pytest.approx(3.0))
    with pytest.raises(InputError, match="data, test: document .* has no parts of speech; tag"):
        measured(Targets(tags=True), split())


def test_sums_are_saved_and_read_whole():
    class Hopeless(Neighbours):
        def score(self, documents):
            for document, nll in super().score(documents):
                yield document, [np.where(nats > 0.8, np.inf, nats) for nats in nll]

    for scorer in (Neighbours(), Hopeless()):
        evaluation = Targets(tags=True)
        result = measured(evaluation, split(tags=TAGS, characters=40), scorer)
        saved = json.loads(files.json_text(evaluation.to_json(result)))
        read = evaluation.from_json(saved)
        assert (read.perplexity, read.perplexity.characters) == (result.perplexity, 40)
        assert math.isinf(read.perplexity.nll) == (type(scorer) is Hopeless)
        for sums, expected in zip(
            (read.by_token, read.by_sentence, read.by_tag and read.by_tag.sums),
            (result.by_token, result.by_sentence, result.by_tag and result.by_tag.sums),
            strict=True,
        ):
            assert sums is not None and expected is not None
            np.testing.assert_array_equal(sums.nll, expected.nll)
            np.testing.assert_array_equal(sums.count, expected.count)
        assert read.by_tag and result.by_tag and read.by_tag[:2] == result.by_tag[:2]


def test_ranges_of_positions():
    assert GROUPINGS[0].groups == ["1", "2", "3-5", "6-10", "11-20", "21+"]
