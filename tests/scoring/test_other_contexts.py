"""Scores in the contexts of other documents, against documents that are put together by hand."""

import numpy as np
import pytest

import dclm_jax
from dclm_jax.data.documents import Document
from dclm_jax.data.encoding import Encoded
from dclm_jax.data.prepare import prepare
from dclm_jax.errors import InputError
from dclm_jax.scoring.caches import CachedScorer, CacheSetting, unigram_cache
from dclm_jax.scoring.neural import NeuralScorer, _Request
from dclm_jax.scoring.other_contexts import OtherContexts, has_others, in_other_contexts
from dclm_jax.scoring.scorer import Continuation
from dclm_jax.training.config import default_config
from dclm_jax.training.loop import train
from tests.exhaustive import also
from tests.models.support import AUTOENCODERS, MODELS
from tests.scoring.test_scorer import make_document, make_model

USUAL = ("rnnlm", "ccdclm", "adclm", "pointer_drnnlm", "rlm_bow_lf", "codclm", "rnnslm")
LENGTHS = [[3, 0, 5, 2], [1], [4] * 9, [], [9, 2], [6, 1, 1]]


def make_documents():
    rng = np.random.default_rng(3)
    return [make_document(rng, lengths) for lengths in LENGTHS]


def by_hand(scorer, documents, index, pool):
    """The nats [contexts, M + 1] of every sentence of a document in the context of each other
    document of the pool and of the documents after it."""
    scored = documents[index]
    others = [document for document in pool if document and list(document[0]) != list(scored[0])]
    of_sentences = []
    for t, sentence in enumerate(scored):
        requests = []
        for begin, _ in enumerate(others):
            text = [*others[begin:], *others[:begin]] * 5
            context = [sentence for document in text for sentence in document][:t]
            requests.append(Continuation([*context, sentence]))
        of_sentences.append(np.array([nll[0] for _, nll in scorer.score(requests)], np.float64))
    return of_sentences


@pytest.mark.parametrize("name", [*USUAL, *also(sorted({*MODELS} - {*USUAL, *AUTOENCODERS}))])
def test_means_are_those_of_documents_put_together_by_hand(name):
    """All other documents are drawn, so that the order of draws has no effect."""
    model, params = make_model(name)
    scorer, documents = NeuralScorer(model, params, batch_size=4), make_documents()
    scored = list(in_other_contexts(scorer, documents, OtherContexts(99)))
    assert [document for document, _ in scored] == documents
    differ = 0
    for index, (own, scores) in enumerate(scored):
        assert len(scores) == len(own)
        expected = by_hand(scorer, documents, index, documents) if own else []
        for t, (got, nats) in enumerate(zip(scores, expected, strict=True)):
            np.testing.assert_allclose(got.mean, nats.mean(axis=0), rtol=2e-5, atol=1e-6)
            deviation = nats.std(axis=0, ddof=1) if t else np.zeros(nats.shape[1])
            np.testing.assert_allclose(got.deviation, deviation, rtol=1e-3, atol=2e-6)
            differ += (got.deviation > 1e-4).any()
    assert differ == 0 if model.context_order == 0 else differ > 9


def test_other_text_gives_contexts_and_numbers_and_seeds_choose_from_it():
    model, params = make_model("ccdclm")
    scorer, documents = NeuralScorer(model, params), make_documents()
    pool = [make_document(np.random.default_rng(seed), [seed + 1] * 4) for seed in range(9)]
    each = by_hand(scorer, documents, 2, pool)

    def scored(number, seed, pool=pool):
        options = OtherContexts(number, seed=seed)
        return list(in_other_contexts(scorer, documents, options, pool))[2][1]

    drawn = set()
    for seed in range(12):
        single = scored(1, seed)
        (row,) = [
            row for row, nats in enumerate(each[3]) if np.allclose(nats, single[3].mean, 1e-4)
        ]
        drawn.add(row)
        for t, nats in enumerate(each):
            np.testing.assert_allclose(single[t].mean, nats[row], rtol=2e-5, atol=1e-6)
            assert not single[t].deviation.any() if t == 0 else np.isnan(single[t].deviation).all()
    assert len(drawn) > 3
    np.testing.assert_array_equal(scored(3, 5)[4].mean, scored(3, 5)[4].mean)
    assert not np.array_equal(scored(3, 5)[4].mean, scored(3, 6)[4].mean)
    # A document that is in the pool twice is one context.
    for whole in (pool, [*pool, pool[3]]):
        of_all = scored(10, 1, whole)
        np.testing.assert_allclose(of_all[1].mean, each[1].mean(axis=0), rtol=2e-5)
        deviation = each[1].std(axis=0, ddof=1)
        np.testing.assert_allclose(of_all[1].deviation, deviation, rtol=1e-3, atol=2e-6)


def test_conditions_with_one_target_have_equal_choices_wherever_they_are():
    model, params = make_model("ccdclm")
    scorer, rng = NeuralScorer(model, params), np.random.default_rng(3)
    target, other_target, *firsts = make_document(rng, [4, 5, *[3] * 9])
    pool = [[first] for first in firsts[:7]]
    a, b, c = [firsts[7], target], [firsts[8], target], [firsts[7], other_target]

    def means(documents):
        scored = in_other_contexts(scorer, documents, OtherContexts(2), pool)
        return [scores[1].mean for _, scores in scored]

    together = means([a, b, c])
    np.testing.assert_allclose(together[0], together[1], rtol=1e-5)
    for document, mean in zip((a, b, c), together, strict=True):
        np.testing.assert_allclose(means([document])[0], mean, rtol=1e-5)


def test_a_document_with_the_same_first_sentence_or_item_gives_no_context(caplog):
    """Not to the other one, and not as what follows a shorter document."""
    model, params = make_model("ccdclm")
    scorer, rng = NeuralScorer(model, params), np.random.default_rng(1)
    first, *others = make_document(rng, [3, 4, 5, 6, 2, 7])
    documents = [[first, others[0]], [others[1]], [first, *others[2:4]], [others[4], others[3]]]

    def assert_means(scored, index, pool):
        expected = by_hand(scorer, documents, index, pool)
        for got, nats in zip(scored[index][1], expected, strict=True):
            np.testing.assert_allclose(got.mean, nats.mean(axis=0), rtol=2e-5)

    scored = list(in_other_contexts(scorer, documents, OtherContexts(2)))
    for index in (0, 2):
        assert_means(scored, index, [documents[1], documents[3]])
    assert_means(scored, 3, documents[:2])
    messages = "\n".join(caplog.messages)
    assert "documents of one sentence: 1 of 4;" in messages and "fewer than" not in messages
    caplog.clear()
    list(in_other_contexts(scorer, documents, OtherContexts(3)))
    assert "fewer than 3 contexts of other documents: 3 of 4, at least 2 each" in caplog.text

    cells = ["x", "y", "y", "x"]
    encoded = [
        Encoded(document, id=cell, passed=Document(cell, [], rows=[{"it": cell}]))
        for document, cell in zip(documents, cells, strict=True)
    ]
    scored = list(in_other_contexts(scorer, encoded, OtherContexts(3, item="it")))
    assert_means(scored, 0, [documents[1]])
    assert_means(scored, 2, [documents[3]])
    assert_means(scored, 3, [documents[1], documents[2]])
    with pytest.raises(InputError, match="no document has a cell in the column 'item' of items"):
        list(in_other_contexts(scorer, encoded, OtherContexts(3, item="item")))


def test_what_has_no_other_context_is_refused():
    model, params = make_model("ccdclm")
    scorer = NeuralScorer(model, params)
    document = make_document(np.random.default_rng(1), [3, 4])
    for documents in ([document], [document, document]):
        assert not has_others(documents)
        with pytest.raises(
            InputError, match="document 0 has no other document, with another first"
        ):
            list(in_other_contexts(scorer, documents, OtherContexts()))
    assert len(list(in_other_contexts(scorer, [document[:1]], OtherContexts()))) == 1
    # Without context there is nothing to choose.
    plain = NeuralScorer(*make_model("rnnlm"))
    ((_, scores),) = in_other_contexts(plain, [document], OtherContexts())
    for got, nats in zip(scores, next(plain.score([document]))[1], strict=True):
        assert got.mean.tolist() == nats.tolist() and not got.deviation.any()
    with pytest.raises(InputError, match="number"):
        OtherContexts(0)
    with pytest.raises(InputError, match="documents is an iterator, which can be read only once"):
        OtherContexts(documents=iter([]))
    with pytest.raises(
        InputError, match="other_contexts is 10; expected an OtherContexts, such as"
    ):
        list(dclm_jax.restore("english").score([["a ."]], other_contexts=10))  # pyright: ignore
    two = make_documents()[:3]
    cached = CachedScorer(unigram_cache, scorer, CacheSetting(strength=3.0), 0.5)
    autoencoder = NeuralScorer(*make_model("standard_autoencoder"))
    for refused in (cached, autoencoder):
        with pytest.raises(InputError, match="autoencoders and models with test-time adaptation"):
            list(in_other_contexts(refused, two, OtherContexts()))


def test_a_long_sentence_of_another_document_counts_for_the_size_of_a_block():
    short, long = [np.zeros(5, np.int32)] * 3, [np.zeros(20_000, np.int32)] * 2
    request = _Request(None, short, long, 0, [])
    assert request.size(False) == (3, 20_000, 32_768)
    assert _Request(None, short, short, 0, []).size(False) == (3, 5, 8)


K = 6


def chain(rng, length):
    """Sentences of one word: after cI comes wI; after all others, and first, any of cI, wI, n."""
    sentences = []
    for _ in range(length):
        if sentences and sentences[-1].startswith("c"):
            sentences.append(f"w{sentences[-1][1:]}")
        else:
            sentences.append(rng.choice([*(f"{kind}{i}" for kind in "cw" for i in range(K)), "n"]))
    return sentences


def test_contexts_that_tell_nothing_have_no_effect_and_the_own_context_has_its_entropy(tmp_path):
    """A word depends on the sentence before, and not on being first: other contexts without a cue
    are as good as no context, and the own cue saves the whole choice among 2 K + 1 words."""
    rng = np.random.default_rng(0)
    for split, number in {"train": 200, "valid": 20, "test": 20}.items():
        documents = ("\n".join(chain(rng, 12)) for _ in range(number))
        (tmp_path / f"{split}.txt").write_text("\n\n".join(documents) + "\n")
    sources = {split: tmp_path / f"{split}.txt" for split in ("train", "valid", "test")}
    prepare(sources, tmp_path / "data")
    values = {"data.directory": str(tmp_path / "data"), "data.segment_length": 6}
    values |= {"model.embedding_dim": 16, "model.hidden_dim": 16, "model.num_layers": 1}
    values |= {"optimizer.name": "adam", "optimizer.learning_rate": 0.01, "training.epochs": 16}
    config = default_config("drnnlm")
    config.update_from_flattened_dict(values)
    train(config, tmp_path / "run")
    lm = dclm_jax.restore(tmp_path / "run")
    pairs = [[f"c{i}", f"w{i}"] for i in range(K)]
    pool = [[first, "n"] for first in ("n", *(f"w{i}" for i in range(K)))]
    table = lm.surprisals(pairs, other_contexts=OtherContexts(7, pool), no_context_too=True)
    is_word = (table["sentence"] == 2) & (table["position"] == 1)
    own, other, none = (
        table[name][is_word]
        for name in ("surprisal", "surprisal_other_context", "surprisal_no_context")
    )
    entropy = np.log(2 * K + 1)
    assert abs((none - other).mean()) < 0.1 and abs(other.mean() - entropy) < 0.15
    assert abs((other - own).mean() - entropy) < 0.2
    # The cue of another document tells the wrong word.
    wrong = lm.surprisals(pairs, other_contexts=OtherContexts(K - 1))["surprisal_other_context"]
    assert (wrong[is_word] > entropy + 1).all()
