"""Documents in HTML, words coloured by surprisal or by what the context saves, and attention.

A page is `head(...)`, `document(...)` for each document, and `foot()`: one file that loads nothing.
The numbers below words are there if the reader asks for them; the arrow keys go from word to word.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dclm_jax.experiments import templates
from dclm_jax.experiments.words import SAVED, SURPRISAL, saves, weights, words
from dclm_jax.language_model import DocumentScore, SentenceAttention


def head(title: str, *, compared: bool) -> str:
    """The begin of a page, up to its first document.

    Args:
      title: as plain text.
      compared: whether the scores have those of sentences by themselves.
    """
    what = "surprisal in nats, −log P(word | all words before it in the document)"
    if compared:
        what = (
            "what the sentences before save, in nats, the surprisal of the word in its sentence "
            "alone minus its surprisal in the document"
        )
    scale = SAVED if compared else SURPRISAL
    return _parts().head(title, templates.source("page.css"), what, scale)


def document(
    labels: Sequence[str],
    scores: Sequence[DocumentScore],
    attended: Sequence[Sequence[SentenceAttention]] = (),
) -> str:
    """A document as scored by each of some runs, a sentence after the other.

    Args:
      labels: of the runs; one alone is not shown.
      scores: of the document, by run.
      attended: what its words attend to, by run, where it is to be shown: nothing is where there is
        one position, or none.
    """
    shown = labels if len(labels) > 1 else [""]
    sentences = []
    for number in range(len(scores[0].sentences)):
        readings = [
            (label, words(score.sentences[number]))
            for label, score in zip(shown, scores, strict=True)
        ]
        attention = [
            (f"{label} attention of sentence {number + 1}".strip(), weights(of_run[number]))
            for label, of_run in zip(shown, attended, strict=False)
            if len(of_run[number].positions) > 1
        ]
        sentences.append((readings, attention))
    sums = [(label, _sums(score)) for label, score in zip(shown, scores, strict=True)]
    return _parts().document(scores[0].id, sums, sentences)


def foot() -> str:
    """The end of a page."""
    return _parts().foot()


def _parts() -> Any:
    return templates.environment().get_template("surprisal.html.j2").module


def _sums(score: DocumentScore) -> str:
    """Nats a token, of those that are scored."""
    sentences = score.sentences
    log_probs = np.array([one for of in sentences for one in of.log_probs])
    alone = np.array([one for of in sentences for one in of.log_probs_no_context or ()])
    scored = ~np.isnan(log_probs)
    if not scored.any():
        return "no token is scored"
    text = f"{scored.sum():,} tokens, {-log_probs[scored].mean():.2f} nats a token"
    if alone.size:
        saved = float((log_probs - alone)[scored].mean())
        text += f", alone {-alone[scored].mean():.2f}: the context {saves(saved)}"
    return text
