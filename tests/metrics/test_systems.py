"""BLEU and word error rate by hand and by sacrebleu's own sums, and what is compared with them."""

import itertools

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU as SacreBleu

from dclm_jax.errors import InputError
from dclm_jax.metrics import systems
from dclm_jax.metrics.systems import METRICS

BLEU, WER = METRICS["bleu"], METRICS["wer"]


@pytest.fixture
def many_test_sets(monkeypatch):
    monkeypatch.setattr(systems, "BOOTSTRAP_SETS", 4000)


def words(seed, count):
    rng = np.random.default_rng(seed)
    return [["abcdef"[i] for i in rng.integers(0, 6, rng.integers(1, 12))] for _ in range(count)]


def edits(hypothesis, reference):
    """Levenshtein's distance by its definition."""
    if not hypothesis or not reference:
        return len(hypothesis) + len(reference)
    return min(
        edits(hypothesis[1:], reference) + 1,
        edits(hypothesis, reference[1:]) + 1,
        edits(hypothesis[1:], reference[1:]) + (hypothesis[0] != reference[0]),
    )


def test_word_errors_are_the_fewest_edits():
    hypotheses = [[], *(text[:6] for text in words(1, 30))]
    for reference in ([], [*"abcab"], [*"f"]):
        counted = WER.statistics(hypotheses, reference)
        assert counted[:, 0].tolist() == [edits(text, reference) for text in hypotheses]
        assert set(counted[:, 1]) == {len(reference)}


def test_metrics_of_lists_with_empty_hypotheses_and_references_by_hand():
    lists = [[[], [*"abcde"]], [[*"x"], []], [[]]]
    counted = systems.list_statistics(lists, [[*"abcdf"], [], [*"xy"]])
    expected = [[[5, 5], [1, 5]], [[1, 0], [0, 0]], [[2, 2]]]
    assert [errors.tolist() for errors in counted["wer"]] == expected
    # The list's 7 reference words: 5 deletions, 1 insertion, 2 deletions.
    totals = systems.picked(counted["wer"], [0, 0, 0]).sum(axis=0)
    assert WER.score(totals) == pytest.approx(100 * 8 / 7)
    first, second, third = counted["bleu"]
    assert first.tolist() == [[0, 5, *[0] * 8], [5, 5, 4, 3, 2, 1, 5, 4, 3, 2]]
    assert second.tolist() == [[1, 0, *[0] * 4, 1, 0, 0, 0], [0] * 10]
    assert third.tolist() == [[0, 2, *[0] * 8]]
    # 5 words of 7, and precisions 4/5, 3/4, 2/3, 1/2, whose product is 1/5; with the insertion 6 of
    # 7, and 4/6 of the words.
    without, inserted = first[1] + second[1] + third[0], first[1] + second[0] + third[0]
    assert BLEU.score(without) == pytest.approx(100 * np.exp(1 - 7 / 5) * (1 / 5) ** 0.25)
    assert BLEU.score(inserted) == pytest.approx(100 * np.exp(1 - 7 / 6) * (1 / 6) ** 0.25)
    assert BLEU.score(first[0]) == 0
    assert BLEU.score(second[1]) == BLEU.segment_score(second[1]) == 100
    for name, metric in METRICS.items():
        assert systems.oracle(metric, counted[name]) == [1, 1, 0]


@pytest.mark.usefixtures("many_test_sets")
@pytest.mark.parametrize("metric", METRICS.values())
def test_documents_and_test_sets_of_empty_references_alone_are_compared(metric):
    references = [[*"abcd"], [], []]
    ours, theirs = (
        np.concatenate([metric.statistics([a], b) for a, b in zip(texts, references, strict=True)])
        for texts in ([[*"abcd"], [], []], [[*"abcd"], [*"x"], []])
    )
    division = [range(1), range(1, 2), range(2, 3)]
    result = systems.compare_systems(metric, ours, theirs, division, seed=0)
    assert result["value"] == pytest.approx(100 if metric is BLEU else 0)
    assert result["improved"] == pytest.approx(1 / 3)
    # No better where the second document is not drawn.
    assert result["p"] == pytest.approx((2 / 3) ** 3, abs=0.03)


def test_bleu_is_that_of_sacrebleu():
    hypotheses, references = words(2, 40), words(3, 40)
    lists = systems.list_statistics([[text] for text in hypotheses], references)["bleu"]
    texts = [list(map(" ".join, sentences)) for sentences in (hypotheses, references)]
    whole = SacreBleu(tokenize="none").corpus_score(texts[0], [texts[1]])
    assert BLEU.score(np.sum(lists, axis=0)[0]) == pytest.approx(whole.score, rel=1e-12)
    single = SacreBleu(tokenize="none", effective_order=True)
    for (counted,), ours, reference in zip(lists[:10], *texts, strict=False):
        expected = single.sentence_score(ours, [reference]).score
        assert BLEU.segment_score(counted) == pytest.approx(expected, rel=1e-12)


def test_words_are_taken_as_they_are():
    # sacrebleu's usual tokenizer would split "u.s.-based" and unescape "&amp;".
    (counted,) = BLEU.statistics([["u.s.-based", "&amp;"]], ["u.s.-based", "&amp;"])
    assert counted.tolist() == [2, 2, 2, 1, 0, 0, 2, 1, 0, 0]


def test_the_oracle_is_the_best_of_every_list():
    references = words(4, 6)
    lists = [words([5, index], 5) for index in range(6)]
    of_lists = [WER.statistics(*pair) for pair in zip(lists, references, strict=True)]
    least = min(
        sum(rows[choice, 0] for rows, choice in zip(of_lists, way, strict=True))
        for way in itertools.product(range(5), repeat=6)
    )
    assert systems.picked(of_lists, systems.oracle(WER, of_lists))[:, 0].sum() == least
    perfect = [[*texts, text] for texts, text in zip(lists, references, strict=True)]
    of_lists = [BLEU.statistics(*pair) for pair in zip(perfect, references, strict=True)]
    assert systems.oracle(BLEU, of_lists) == [5] * 6


@pytest.mark.usefixtures("many_test_sets")
def test_documents_are_compared():
    # Errors of two documents of two segments: 3 against 4, and 5 against 5.
    ours = np.array([[1, 10], [2, 10], [3, 10], [2, 10]])
    theirs = np.array([[4, 10], [0, 10], [2, 10], [3, 10]])
    documents = [range(2), range(2, 4)]
    result = systems.compare_systems(WER, ours, theirs, documents, seed=0)
    assert (result["value"], result["improved"]) == (20.0, 0.5)
    # No better if the second document is drawn twice, which is one test set in four.
    assert result["p"] == pytest.approx(0.25, abs=0.03)
    # By segments: the differences are -3, 2, 1 and -1, and all 4^4 test sets are as likely.
    drawn = list(map(sum, itertools.product([-3, 2, 1, -1], repeat=4)))
    single = systems.compare_systems(WER, ours, theirs, [range(4)], seed=0)
    assert single["p"] == pytest.approx(np.mean(np.array(drawn) >= 0), abs=0.03)
    assert single["improved"] == 1.0
    again = systems.compare_systems(WER, ours, theirs, [range(4)], seed=0)
    assert again == single


@pytest.mark.parametrize(
    ("metric", "module"),
    [(BLEU, "sacrebleu.metrics.bleu"), (WER, "rapidfuzz.distance.Levenshtein")],
)
def test_where_a_package_is_missing_its_installation_is_named(monkeypatch, metric, module):
    monkeypatch.setitem(__import__("sys").modules, module, None)
    name = module.split(".")[0]
    with pytest.raises(InputError, match=rf"{name}: pip install 'dclm_jax\[metrics\]'"):
        metric.statistics([["a"]], ["a"])
