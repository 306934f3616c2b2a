"""Measures of the next-word distribution against float64 numpy loops over the whole vocabulary."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dclm_jax.errors import InputError
from dclm_jax.evaluation.adaptation import adapt
from dclm_jax.mixture import mix
from dclm_jax.nn.logits import OutputInputs
from dclm_jax.nn.plan import CPU
from dclm_jax.nn.softmax import token_measures
from dclm_jax.reading.driver import cast_params
from dclm_jax.reading.likelihoods import block_measures
from dclm_jax.scoring import distributions
from dclm_jax.scoring.neural import NeuralScorer
from dclm_jax.scoring.scorer import Continuation
from tests import oracles
from tests.exhaustive import also
from tests.models.support import DOCUMENTS, model_jit, opened, pack, random_params, small_model
from tests.nn.test_softmax import plan_of
from tests.test_read_document import TEXT, language_model

KINDS = ["rnnlm", "drnnlm", "adclm", "codclm", "rlm_bow_lf", "rnn_lin", "pointer_drnnlm"]
"""No context; a carried state; attention; logits that positions share; bags; hashed features; words
to copy."""
OTHER_KINDS = [name for name in KINDS if name not in ("rnnlm", "adclm")]


def measures(probabilities: np.ndarray, targets: Any, without: np.ndarray) -> dict[str, list]:
    """The measures of the targets of a sentence, by their definitions, one word after another."""
    result: dict[str, list] = {name: [] for name in distributions.WORD_MEASURES}
    for n, (p, q, target) in enumerate(zip(probabilities, without, targets, strict=True)):
        entropy = sum(-p_w * np.log(p_w) for p_w in p if p_w > 0)
        result["surprisal"].append(-np.log(p[target]))
        result["entropy"].append(entropy)
        result["rank"].append(1 + sum(p_w > p[target] for p_w in p))
        result["divergence"].append(
            sum(p_w * np.log(p_w / q_w) for p_w, q_w in zip(p, q, strict=True) if p_w > 0)
        )
        if n:
            result["entropy_reduction"].append(result["entropy"][n - 1] - entropy)
    result["entropy_reduction"].append(np.nan)
    return result


def expected(model, params, document) -> list[dict[str, list]]:
    """The measures of the sentences of a document, also without context."""
    plain = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    reading = oracles.read(model, plain, document)
    result = []
    for words, p in zip(document, reading.probabilities, strict=True):
        (q,) = oracles.read(model, plain, [words]).probabilities
        targets = [*words, oracles.END]
        alone = measures(q, targets, q)
        del alone["divergence"]
        named = {f"{name}_no_context": values for name, values in alone.items()}
        result.append({**measures(p, targets, q), **named})
    return result


@model_jit
def measured(model, params, batch):
    params = cast_params(model, params)
    context = opened(model, params, batch)
    scored = jnp.ones((*batch.mask_BxSxN.shape[:2], 1), bool)
    return block_measures(model, params, context, batch, scored, no_context_too=True)[1]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", KINDS)
def test_measures_equal_their_definitions_in_float64(name):
    model = small_model(name)
    params, batch = random_params(model), pack((*DOCUMENTS, ()), S=4, N=7)
    values = np.asarray(measured(model, params, batch))
    order = ["surprisal", "entropy", "rank"]
    order = [*order, *(f"{measure}_no_context" for measure in order), "divergence"]
    for b, document in enumerate(DOCUMENTS):
        for s, sentence in enumerate(expected(model, params, document)):
            for x, measure in enumerate(order):
                actual = values[b, s, : len(document[s]) + 1, x]
                np.testing.assert_allclose(actual, sentence[measure], rtol=1e-9, atol=1e-9)
    assert not values[~batch.mask_BxSxN].any()
    assert (name == "rnnlm" or name == "rnn_lin") == (abs(values[..., -1]).max() < 1e-12)


@pytest.mark.parametrize("name", ["rnnlm", "adclm", *also(OTHER_KINDS)])
def test_documents_have_the_measures_of_their_sentences(name):
    model = small_model(name)
    params = random_params(model)
    documents = [[np.array(words) for words in document] for document in DOCUMENTS]
    scored = distributions.measure_documents(
        NeuralScorer(model, params, batch_size=2), documents, no_context_too=True
    )
    for (document, sentences), ids in zip(scored, DOCUMENTS, strict=True):
        assert [len(sentence) for sentence in sentences] == [10] * len(document)
        for t, (sentence, by_hand) in enumerate(
            zip(sentences, expected(model, params, ids), strict=True)
        ):
            # A word is one piece.
            by_hand["greatest_rank"] = by_hand["rank"]
            assert sentence.keys() == by_hand.keys()
            for measure, values in sentence.items():
                np.testing.assert_allclose(values, by_hand[measure], rtol=1e-4, atol=2e-5)
            if t == 0 or model.context_order == 0:
                assert not sentence["divergence"].any()
                assert sentence["entropy_no_context"].tolist() == sentence["entropy"].tolist()
    scorer = NeuralScorer(model, params)
    whole = [*distributions.measure_documents(scorer, documents, no_context_too=False)]
    names = {*distributions.WORD_MEASURES, "greatest_rank"} - {"divergence"}
    assert set(whole[0][1][0]) == names
    # Of a continuation the last sentence is measured, which may be the first of its document.
    for document, ids in zip(documents, DOCUMENTS, strict=True):
        request = [Continuation(document)]
        scored = distributions.measure_documents(scorer, request, no_context_too=True)
        ((_, [last]),) = scored
        by_hand = expected(model, params, ids)[-1]
        np.testing.assert_allclose(last["divergence"], by_hand["divergence"], rtol=1e-4, atol=2e-5)


def of_arrays(features: Any, kernel: Any, bias: Any) -> OutputInputs:
    """Factors of logits."""
    return OutputInputs(jnp.asarray(features), jnp.asarray(kernel), jnp.asarray(bias))


def columns_of(inputs: OutputInputs, targets: Any, mask: Any, plan: Any = CPU, others: Any = None):
    return np.asarray(token_measures(inputs, jnp.asarray(targets), jnp.asarray(mask), plan, others))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("chunk", [1, 5, 23])
def test_measures_do_not_depend_on_chunks(chunk):
    rng = np.random.default_rng(1)
    arrays = [[rng.normal(size=size) for size in ((23, 4), (4, 9), 9)] for _ in range(2)]
    targets, mask = rng.integers(9, size=23), rng.random(23) < 0.7
    inputs, others = (of_arrays(*factors) for factors in arrays)
    columns = columns_of(inputs, targets, mask, plan_of(chunk), others)
    p, q = (
        np.array([oracles.softmax(row) for row in features @ kernel + bias])
        for features, kernel, bias in arrays
    )
    by_hand = measures(p, targets, q)
    for x, name in ((0, "surprisal"), (1, "entropy"), (2, "rank"), (6, "divergence")):
        np.testing.assert_allclose(columns[:, x], np.where(mask, by_hand[name], 0), atol=1e-12)


def test_rounding_makes_no_divergence_negative():
    """Equal distributions, whose logits differ by a constant of each position."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(200, 3)).astype(np.float32)
    kernel, bias = rng.normal(size=(3, 50)).astype(np.float32), np.zeros(50, np.float32)
    words, mask = np.zeros(200, int), np.ones(200, bool)
    shifted = kernel + np.float32(10 * rng.normal(size=(3, 1)))
    columns = columns_of(
        of_arrays(features, kernel, bias),
        words,
        mask,
        others=of_arrays(features, shifted, bias),
    )
    assert np.all(columns[:, 6] >= 0) and np.all(columns[:, 6] < 1e-4)


def test_equally_probable_words_have_one_rank_and_certainty_has_no_entropy():
    bias = np.array([2, 1, 1, 3, 1, 0], np.float32)
    nothing = np.zeros((6, 1), np.float32), np.zeros((1, 6), np.float32)
    inputs, certain = of_arrays(*nothing, bias), of_arrays(*nothing, 1000 * bias)
    words, mask = np.arange(6), np.ones(6, bool)
    assert columns_of(inputs, words, mask)[:, 2].tolist() == [2, 3, 3, 1, 3, 6]
    columns = columns_of(certain, words, mask, others=inputs)
    assert not columns[:, 1].any()
    np.testing.assert_allclose(columns[:, 6], columns[3, 3], rtol=1e-6)
    infinite = of_arrays(*nothing, np.full(6, np.inf, np.float32))
    assert np.isnan(columns_of(infinite, words, mask)).all()


def test_the_table_has_a_column_per_measure(warns):
    lm = language_model("adclm")
    documents = [TEXT, ["dogs bark .", "", "the unheard dogs ."]]
    plain = lm.surprisals([TEXT], no_context_too=True)
    names = ["rank", "entropy", "entropy_reduction", "divergence", "surprisal"]
    with warns("sentences without words omitted: 1"):
        table = lm.surprisals(documents, no_context_too=True, measures=names)
    columns = ["surprisal", "surprisal_no_context", "rank", "rank_no_context", "entropy"]
    columns += ["entropy_no_context", "entropy_reduction", "entropy_reduction_no_context"]
    place = ["document", "sentence", "position", "word"]
    assert [*table] == [*place, *columns, "divergence", "known"]
    for name in ("surprisal", "surprisal_no_context"):
        np.testing.assert_allclose(table[name][: len(plain[name])], plain[name], atol=1e-5)
    ends = table["word"] == "<END>"
    assert np.isnan(table["entropy_reduction"]).tolist() == ends.tolist()
    (score,) = lm.score([TEXT], measures=["rank", "divergence"])
    assert [*score.sentences[0].measures] == ["surprisal", "rank", "divergence"]
    assert score.sentences[0].log_probs_no_context is None


MIXTURE = mix(language_model("rnnlm"), language_model("adclm"), 0.5)
ADAPTED = adapt(language_model("adclm"), "unigram", weight=0.1, strength=30)


@pytest.mark.parametrize(
    ("lm", "measures", "message"),
    [
        ("rnnlm", ["entropie"], "the measure 'entropie' is unknown; choose from"),
        ("rnnlm", ["rank", "rank"], "the measure 'rank' is named twice; name each"),
        ("rnnlm", "rank", "measures are 'rank'; expected a list of names"),
        ("rnnslm", ["rank"], "rnnslm predicts bags of words and has no distribution"),
        (
            "standard_autoencoder",
            ["divergence"],
            "is an autoencoder, whose sentences",
        ),
        (
            *(MIXTURE, ["entropy"]),
            "mixture scores only the words of a text, so that entropy, entropy_reduction, rank,"
            " divergence are not known; choose the measure surprisal, or a single neural model",
        ),
        (ADAPTED, ["entropy"], "adclm + unigram scores only the words of a text"),
    ],
)
def test_a_distribution_that_is_not_scored_is_refused(lm, measures, message):
    lm = language_model(lm) if isinstance(lm, str) else lm
    with pytest.raises(InputError, match=re.escape(message)):
        lm.surprisals([TEXT], measures=measures)
