import collections
import math
from typing import Any

import jax
import numpy as np
import pytest

from dclm_jax.data.batches import Earlier, Shape, TrainingBatches, length_bucket, pack_sentences
from dclm_jax.errors import InputError
from tests.data.support import corpus_of

L, B = 3, 4


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """23 documents of 1 to 8 sentences; every word occurs once, so that it names its place."""
    rng = np.random.default_rng(0)
    word = iter(range(10**6))
    text = "\n".join(
        "".join(
            " ".join(f"w{next(word)}" for _ in range(rng.integers(1, 40))) + "\n"
            for _ in range(rng.integers(1, 9))
        )
        for _ in range(23)
    )
    return corpus_of(tmp_path_factory.mktemp("batches"), text, vocab_size=10**6)


def make(corpus, **options) -> TrainingBatches:
    defaults: Any = {"segment_length": L, "batch_size": B, "seed": 5}
    return TrainingBatches(corpus, **{**defaults, **options})


def an_epoch(batches):
    return [batches(step) for step in range(batches.steps_per_epoch)]


def segments_of(corpus, length=L, longest=10**9):
    """All segments of at most `length` sentences of at most `longest` words."""
    segments = []
    for d in range(corpus.num_documents):
        kept = [tuple(s.tolist()) for s in corpus.document(d) if len(s) <= longest]
        segments += [tuple(kept[i : i + length]) for i in range(0, len(kept), length)]
    return segments


def rows_of(batches):
    """The rows of some batches that are not empty, in order of their words."""
    return sorted(row for batch in batches for row in unpack(batch) if row)


def unpack(batch):
    """Rows as tuples of sentences, by plain loops, checking START, END and padding."""
    rows = []
    for tokens_SxN, targets_SxN, mask_SxN in zip(
        batch.tokens_BxSxN, batch.targets_BxSxN, batch.mask_BxSxN, strict=True
    ):
        row = []
        for tokens, targets, mask in zip(tokens_SxN, targets_SxN, mask_SxN, strict=True):
            size = int(mask.sum())
            assert mask.tolist() == [True] * size + [False] * (len(mask) - size)
            assert not tokens[size:].any() and not targets[size:].any()
            if size:
                assert tokens[0] == 0 and targets[size - 1] == 1
                assert tokens[1:size].tolist() == targets[: size - 1].tolist()
                row.append(tuple(targets[: size - 1].tolist()))
        rows.append(tuple(row))
    return rows


def test_pack_sentences_values():
    batch = pack_sentences([[np.array([5, 6]), np.array([7])], [np.array([], int)]], 3, 4)
    np.testing.assert_array_equal(
        batch.tokens_BxSxN,
        [[[0, 5, 6, 0], [0, 7, 0, 0], [0] * 4], [[0] * 4] * 3],
    )
    np.testing.assert_array_equal(
        batch.targets_BxSxN,
        [[[5, 6, 1, 0], [7, 1, 0, 0], [0] * 4], [[1, 0, 0, 0], [0] * 4, [0] * 4]],
    )
    np.testing.assert_array_equal(
        batch.mask_BxSxN,
        [[[1, 1, 1, 0], [1, 1, 0, 0], [0] * 4], [[1, 0, 0, 0], [0] * 4, [0] * 4]],
    )
    assert batch.tokens_BxSxN.dtype == batch.targets_BxSxN.dtype == np.int32
    assert batch.mask_BxSxN.dtype == bool


def test_pack_sentences_of_no_rows():
    assert pack_sentences([], 2, 3).tokens_BxSxN.shape == (0, 2, 3)


def test_length_bucket():
    cases = {1: 8, 8: 8, 9: 16, 48: 48, 49: 64, 512: 512, 513: 1024, 1025: 2048, 50_001: 65_536}
    assert {length: length_bucket(length) for length in cases} == cases


@pytest.mark.parametrize(
    ("segments", "positions", "count"),
    [(32, 256, 1), (32, 384, 2), (31, 384, 2), (20, 2048, 8), (6, 1024, 4), (1, 4096, 1)],
)
def test_microbatches_of_long_sentences(segments, positions, count):
    shape = Shape(segments, 5, positions)
    assert shape.microbatches == count
    assert shape.positions_at_once == math.ceil(segments / count) * 5 * positions


@pytest.mark.parametrize("max_words", [0, 20])
def test_an_epoch_is_every_segment_once_in_few_shapes_and_at_most_one_partial_batch(
    corpus, max_words
):
    """Every segment of the sentences that are short enough."""
    batches = make(corpus, max_sentence_length=max_words)
    expected = segments_of(corpus, longest=max_words or 10**9)
    assert batches.num_segments == len(expected)
    assert batches.steps_per_epoch == -(-len(expected) // B)
    for epoch in range(3):
        steps = range(epoch * batches.steps_per_epoch, (epoch + 1) * batches.steps_per_epoch)
        made = [batches(step) for step in steps]
        assert rows_of(made) == sorted(expected)
        assert sum(not all(unpack(batch)) for batch in made) == (len(expected) % B > 0)
        for batch in made:
            longest = max(len(words) for row in unpack(batch) for words in row)
            assert batch.tokens_BxSxN.shape == (B, L, length_bucket(longest + 1))


def test_a_batch_is_a_function_of_seed_and_step(corpus):
    def rows(batches, step):
        return unpack(batches(step))

    batches = make(corpus, seed=1)
    steps = batches.steps_per_epoch
    forward = [rows(batches, step) for step in range(3 * steps)]
    fresh = make(corpus, seed=1)
    assert [rows(fresh, step) for step in reversed(range(3 * steps))] == forward[::-1]
    other = make(corpus, seed=2)
    assert [rows(other, step) for step in range(steps)] != forward[:steps]
    assert forward[:steps] != forward[steps : 2 * steps]


def test_sentences_before_a_segment_come_along(corpus):
    expected = {}
    for d in range(corpus.num_documents):
        document = [tuple(s.tolist()) for s in corpus.document(d)]
        for i in range(0, len(document), L):
            expected[tuple(document[i : i + L])] = tuple(document[max(0, i - 4) : i])
    seen = {}
    for batch in an_epoch(make(corpus, earlier=Earlier(4))):
        assert batch.earlier is not None
        assert batch.earlier.tokens_BxSxN.shape[1] == 4
        assert batch.earlier.tokens_BxSxN.shape[2] == batch.tokens_BxSxN.shape[2]
        # The sentence right before a segment is the last: what is missing is missing in front.
        exists_BxC = batch.earlier.mask_BxSxN[..., 0]
        assert (np.diff(exists_BxC.astype(int)) >= 0).all()
        seen |= dict(zip(unpack(batch), unpack(batch.earlier), strict=True))
    seen.pop((), None)
    assert seen == expected
    assert {len(sentences) for sentences in expected.values()} > {0, 3}


def test_a_share_of_segments_loses_the_sentences_before_it(corpus):
    """Drawn anew in every epoch from the segments that have sentences before them; nothing else of
    a batch differs."""
    complete, shared = (make(corpus, earlier=Earlier(4, share)) for share in (0.0, 0.4))
    lost = []
    for step in range(60 * complete.steps_per_epoch):
        before, after = complete(step), shared(step)
        np.testing.assert_array_equal(before.tokens_BxSxN, after.tokens_BxSxN)
        rows = zip(unpack(before), unpack(before.earlier), unpack(after.earlier), strict=True)
        for segment, earlier, kept in rows:
            assert kept in (earlier, ())
            if earlier:
                lost.append((step // complete.steps_per_epoch, segment, kept == ()))
    assert abs(np.mean([is_lost for *_, is_lost in lost]) - 0.4) < 0.05
    of_epochs = [
        {segment for epoch, segment, is_lost in lost if is_lost and epoch == number}
        for number in range(60)
    ]
    with_earlier = {segment for _, segment, _ in lost}
    assert set.union(*of_epochs) == with_earlier and of_epochs[0] != of_epochs[1]


@pytest.mark.parametrize("options", [{"has_source": True}, {}])
def test_a_share_has_no_effect_where_no_sentence_is_before_a_segment(corpus, options):
    for step in range(3):
        batches = [make(corpus, earlier=Earlier(0, share), **options)(step) for share in (0.0, 1.0)]
        for got, expected in zip(*map(jax.tree.leaves, batches), strict=True):
            np.testing.assert_array_equal(got, expected)
    every = make(corpus, earlier=Earlier(2, 1.0))
    for batch in an_epoch(every):
        assert batch.earlier is not None and not batch.earlier.mask_BxSxN.any()


def test_more_sentences_before_than_the_text_has(tmp_path):
    corpus = corpus_of(tmp_path, "a b\nc\nd e f g h\n")
    sizes = {"segment_length": 1, "batch_size": 3, "max_sentence_length": 2}
    batch = make(corpus, earlier=Earlier(8), **sizes)(0)
    assert batch.earlier is not None
    rows = dict(zip(unpack(batch), unpack(batch.earlier), strict=True))
    first, second = (tuple(map(tuple, [sentence])) for sentence in corpus.document(0)[:2])
    assert rows == {first: (), second: first}


@pytest.mark.parametrize(
    "options",
    [
        {"segment_length": L},
        {"segment_length": L, "earlier": Earlier(2)},
        {"segment_length": 0, "has_source": True},
    ],
)
def test_a_batch_has_no_more_rows_than_there_are_segments(corpus, options):
    segments = len(segments_of(corpus)) if options["segment_length"] else corpus.num_documents
    all_at_once = make(corpus, batch_size=segments, **options)
    assert all_at_once(0).mask_BxSxN.shape[0] == segments
    for batch_size in (segments + 1, 50 * segments, 10**12):
        batches = make(corpus, batch_size=batch_size, **options)
        assert batches.batch_size == segments and batches.steps_per_epoch == 1
        for step in range(3):
            pairs = [jax.tree.leaves(of(step)) for of in (batches, all_at_once)]
            for got, expected in zip(*pairs, strict=True):
                np.testing.assert_array_equal(got, expected)
    # One segment less, and a second batch holds what is left beside empty rows.
    fewer = make(corpus, batch_size=segments - 1, **options)
    assert [fewer(step).mask_BxSxN.shape[0] for step in range(2)] == [segments - 1] * 2
    assert sorted(sum(map(bool, unpack(fewer(step)))) for step in range(2)) == [1, segments - 1]


@pytest.fixture(scope="module")
def long_documents(tmp_path_factory):
    """Documents of 1 to 70 sentences, which are longer in the shortest documents."""
    sizes = [1, 16, 17, 33, 2, 70, 32, 16, 40, 5]
    text = "\n".join(
        "".join(f"a{d} b{s}{' c' * (30 if size < 10 else s % 5)}\n" for s in range(size))
        for d, size in enumerate(sizes)
    )
    return corpus_of(tmp_path_factory.mktemp("long"), text)


@pytest.mark.parametrize(
    ("segment_length", "expected"),
    [
        (0, [16] * 5 + [32] * 2 + [64] * 2 + [70]),
        (64, [16] * 6 + [32] * 2 + [64] * 3),
        (20, [16] * 8 + [20] * 8),
        (16, [16] * 20),
    ],
)
def test_long_segments_are_padded_to_few_numbers_of_sentences(
    long_documents, segment_length, expected
):
    def batches(size):
        return make(long_documents, segment_length=segment_length, batch_size=size, seed=3)

    shapes = [batch.tokens_BxSxN.shape for batch in an_epoch(batches(1))]
    assert sorted(shape[1] for shape in shapes) == expected
    epoch = an_epoch(batches(4))
    for batch in epoch:
        rows = [row for row in unpack(batch) if row]
        longest_row = max(len(row) for row in rows)
        assert batch.tokens_BxSxN.shape[1] == min(s for s in set(expected) if s >= longest_row)
        longest = max(len(s) for row in rows for s in row)
        assert batch.tokens_BxSxN.shape[2] == length_bucket(longest + 1)
    assert rows_of(epoch) == sorted(segments_of(long_documents, segment_length or 70))


def test_no_sentence_is_short_enough(tmp_path):
    corpus = corpus_of(tmp_path, "a b c\nd e f g\n")
    with pytest.raises(InputError, match="max_sentence_length is 2; the shortest .* has 3 words"):
        make(corpus, max_sentence_length=2)


def test_a_document_is_its_own_source(corpus):
    options = {"segment_length": 0, "max_sentence_length": 20, "has_source": True}
    for batch in an_epoch(make(corpus, **options)):
        assert batch.source is not None
        assert unpack(batch) == unpack(batch.source)


@pytest.mark.parametrize("segment_length", [2, 0])
@pytest.mark.parametrize("batch_size", [1, 3])
def test_shapes_are_those_of_the_batches(corpus, segment_length, batch_size):
    batches = make(corpus, segment_length=segment_length, batch_size=batch_size, seed=1)
    for steps in (range(batches.steps_per_epoch), range(1, 3), range(5, 5), range(1, 10**12)):
        first = steps[: batches.steps_per_epoch]
        sizes = [batches(step).mask_BxSxN.shape for step in first]
        expected = collections.Counter(Shape(B, S, N) for B, S, N in sizes)
        assert batches.shapes(steps) == expected
