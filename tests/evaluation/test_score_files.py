"""Files of scores: the note about OOV words of stimuli."""

import logging

from dclm_jax.evaluation.score_files import noted_oov
from dclm_jax.evaluation.score_types import DocumentScore, SentenceScore


def score_of(name: str, known: list[list[bool]], *, is_stimulus: bool = True) -> DocumentScore:
    """The score of a document whose words are known or not; END, the last target, is known."""
    sentences = [SentenceScore(["w"] * (1 + len(words)), [*words, True], {}) for words in known]
    cells: list[list[str | None]] = [["1"] * (1 + len(words)) for words in known]
    return DocumentScore(name, sentences, {"item": cells} if is_stimulus else {})


def test_the_note_counts_oov_words_and_the_stimuli_with_them(caplog):
    scores = [
        score_of("a", [[False, True], [False]]),
        score_of("b", [[True, True]]),
        score_of("c", [[False]]),
        score_of("text", [[False] * 9], is_stimulus=False),
    ]
    with caplog.at_level(logging.INFO):
        assert list(noted_oov(scores)) == scores
    (message,) = caplog.messages
    assert message.startswith("OOV words: 3 of 6 words, in 2 of 3 documents; ")
    caplog.clear()
    with caplog.at_level(logging.INFO):
        assert list(noted_oov(scores[1:2])) == scores[1:2]
    assert not caplog.messages
