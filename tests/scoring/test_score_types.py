"""Scores of sentences and documents: their sums."""

from dclm_jax.scoring.score_types import DocumentScore, SentenceScore


def score_of(*surprisals: float) -> SentenceScore:
    return SentenceScore(
        ["w"] * len(surprisals), [True] * len(surprisals), {"surprisal": list(surprisals)}
    )


def test_sums_over_sentences_and_documents_are_in_float64():
    """In float32 all of these sums are 2^24."""
    assert score_of(2**24, 1).log_prob == -(2**24) - 1
    assert DocumentScore("text", [score_of(2**24), score_of(1)]).log_prob == -(2**24) - 1
