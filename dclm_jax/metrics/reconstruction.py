"""Similarity of output documents to input documents (Li et al. 2015, section 4.3, Table 3).

BLEU is corpus BLEU with one segment per document; the other measures are means over documents. For
BLEU and ROUGE a document is one sequence of words. The reference of ROUGE is the input. ROUGE has
recall (Eq. 16) and F1, which does not reward long outputs.

ROUGE-W follows Eq. 13-15 of Lin (2004) with f(k) = k^1.2, the default of his program, over whole
documents. The program scores sentence by sentence and gives a perfect copy a recall below 1.

The coherence penalty L (Eq. 18) aligns each output sentence with the input sentence of the highest
F1 over their verbs and nouns, with repetitions; both texts need tags of the Penn Treebank. Among
input sentences of equal F1 the nearest position is taken, and of two nearest positions the earlier.
L thus does not penalize an output sentence without a verb or noun of the input. The paper aligns
such sentences at random. Their share is reported, too.
"""

import collections
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dclm_jax.data.documents import PLAIN, Document, OnDocument, TextOptions
from dclm_jax.data.readers import corresponding, read_documents
from dclm_jax.data.text_files import UTF8
from dclm_jax.errors import InputError
from dclm_jax.metrics import systems
from dclm_jax.tables import aligned

WLCS_EXPONENT = 1.2
_VERBS_AND_NOUNS = ("VB", "NN")
_ROUGES = ("rouge_1", "rouge_2", "rouge_w")


class Rouge(NamedTuple):
    """Recall and F1 in percent."""

    recall: float
    f1: float


class Alignment(NamedTuple):
    """The order of the sentences of an output document.

    Attributes:
      penalty: L; None for fewer than two sentences.
      unaligned: number of sentences without a verb or noun of the input.
    """

    penalty: float | None
    unaligned: int


class Measures(NamedTuple):
    """Measures of an output document against its input.

    Attributes:
      bleu_statistics: int64 [10], additive over documents (`systems.bleu_statistics`).
      rouge_1, rouge_2, rouge_w: see the module.
      sentences: number of output sentences.
      alignment: None unless both documents have tags.
    """

    bleu_statistics: np.ndarray
    rouge_1: Rouge
    rouge_2: Rouge
    rouge_w: Rouge
    sentences: int
    alignment: Alignment | None


def measure_output(output: Document, reference: Document) -> Measures:
    """The measures of an output document against its input, the reference."""
    words, reference_words = (
        [word for sentence in document.sentences for word in sentence]
        for document in (output, reference)
    )
    alignment = None
    if output.tags is not None and reference.tags is not None:
        positions, f1 = align(content_words(output), content_words(reference))
        alignment = Alignment(coherence_penalty(positions), f1.count(0))
    return Measures(
        bleu_statistics=systems.bleu_statistics([words], reference_words)[0],
        rouge_1=rouge_n(words, reference_words, 1),
        rouge_2=rouge_n(words, reference_words, 2),
        rouge_w=rouge_w(words, reference_words),
        sentences=len(output.sentences),
        alignment=alignment,
    )


def summarize(measures: Sequence[Measures]) -> dict[str, Any]:
    """The measures of a corpus for a result file, from the measures of at least one document.

    Returns:
      "documents", their number; "bleu", from 0 to 100; "rouge_1", "rouge_2" and "rouge_w", each
      with the means of "recall" and "f1" over documents; "coherence", the mean of L over the
      "coherence_documents", which have tags and outputs of at least two sentences, None if there
      are none; "unaligned", the share of output sentences without a verb or noun of their input,
      None without tags; "sentences" and "words", numbers in the outputs; "input_words", the number
      of words in the inputs.
    """
    tagged = [(document, document.alignment) for document in measures if document.alignment]
    penalties = [alignment.penalty for _, alignment in tagged if alignment.penalty is not None]
    unaligned = sum(alignment.unaligned for _, alignment in tagged)
    tagged_sentences = sum(document.sentences for document, _ in tagged)
    totals_Q = np.sum([document.bleu_statistics for document in measures], axis=0)
    words, input_words, *_ = totals_Q.tolist()
    rouges = {
        name: Rouge(*np.mean([getattr(document, name) for document in measures], axis=0).tolist())
        for name in _ROUGES
    }
    return {
        "documents": len(measures),
        "bleu": systems.bleu(totals_Q),
        **{name: rouge._asdict() for name, rouge in rouges.items()},
        "coherence": float(np.mean(penalties)) if penalties else None,
        "coherence_documents": len(penalties),
        "unaligned": unaligned / max(tagged_sentences, 1) if tagged else None,
        "sentences": sum(document.sentences for document in measures),
        "words": words,
        "input_words": input_words,
    }


def evaluate_files(
    outputs: str | pathlib.Path,
    inputs: str | pathlib.Path,
    options: TextOptions = PLAIN,
    *,
    encoding: str = UTF8,
    on_document: OnDocument = lambda done: None,
) -> list[Measures]:
    """The measures of each document of `outputs` against the document of `inputs` at its position.
    Both are files or folders with equal numbers of documents; one may be "-", standard input."""
    paths = outputs, inputs
    texts = [read_documents(path, options, encoding=encoding, keep_empty=True) for path in paths]
    measures = []
    for output, reference in corresponding(texts, paths):
        if not reference.sentences:
            raise InputError(
                f"{inputs}: {reference.id} has no words; remove the document from both texts"
            )
        measures.append(measure_output(output, reference))
        on_document(len(measures))
    return measures


def reconstruction_table(name: str, summary: Mapping[str, Any]) -> str:
    """Aligned text: the columns of Table 3, and a row for the result of `summarize`."""
    header = ["", "BLEU", "ROUGE-1", "F1", "ROUGE-2", "F1", "ROUGE-W", "F1", "L", "unaligned"]
    rouges = [value for rouge in _ROUGES for value in summary[rouge].values()]
    numbers = [f"{value:.2f}" for value in (summary["bleu"], *rouges)]
    penalty = "-" if summary["coherence"] is None else f"{summary['coherence']:.3f}"
    unaligned, averaged = "-", "no L without tags (configs/larger_context/tag.py adds tags)"
    if summary["unaligned"] is not None:
        unaligned = f"{100 * summary['unaligned']:.2f}%"
        number = f"{summary['coherence_documents']:,}"
        averaged = f"L over {number} outputs of at least two sentences"
    row = [name, *numbers, penalty, unaligned, f"{summary['words']:,}"]
    note = (
        f"{summary['documents']:,} documents; {averaged}; inputs have {summary['input_words']:,} "
        "words"
    )
    return "\n".join([*aligned([[*header, "words"], row]), note])


def rouge_n(output: Sequence[str], reference: Sequence[str], order: int) -> Rouge:
    """ROUGE-N of two sequences of words, from their shared n-grams with repetitions."""
    output_grams, reference_grams = (
        collections.Counter(zip(*(words[first:] for first in range(order)), strict=False))
        for words in (output, reference)
    )
    shared = (output_grams & reference_grams).total()
    return _percent(shared / max(reference_grams.total(), 1), shared / max(output_grams.total(), 1))


def weighted_lcs(x: Sequence[str], y: Sequence[str], exponent: float = WLCS_EXPONENT) -> float:
    """WLCS of Lin (2004, section 3.3): k consecutive matching words have weight k^exponent."""
    weights = np.arange(min(len(x), len(y)) + 1) ** float(exponent)
    gains = np.diff(weights).tolist()
    # For the words of x so far and the first j words of y: the weight, and the run of matches at
    # the end.
    best, run = [0.0] * (len(y) + 1), [0] * (len(y) + 1)
    for word in x:
        diagonal, diagonal_run = 0.0, 0
        for j, other in enumerate(y, 1):
            above, above_run = best[j], run[j]
            if word == other:
                best[j], run[j] = diagonal + gains[diagonal_run], diagonal_run + 1
            else:
                best[j], run[j] = max(above, best[j - 1]), 0
            diagonal, diagonal_run = above, above_run
    return best[-1]


def rouge_w(
    output: Sequence[str], reference: Sequence[str], exponent: float = WLCS_EXPONENT
) -> Rouge:
    """ROUGE-W of two sequences of words (Lin 2004, Eq. 13-15; F with beta = 1)."""
    if not output or not reference:
        return Rouge(0.0, 0.0)
    # f^-1(WLCS / f(m)) for f(k) = k^exponent.
    length = weighted_lcs(reference, output, exponent) ** (1 / exponent)
    return _percent(length / len(reference), length / len(output))


def content_words(document: Document) -> list[collections.Counter[str]]:
    """The verbs and nouns of each sentence of a document with tags of the Penn Treebank."""
    return [
        collections.Counter(
            word for word, tag in zip(words, tags, strict=True) if tag.startswith(_VERBS_AND_NOUNS)
        )
        for words, tags in zip(document.sentences, document.tags or (), strict=True)
    ]


def align(
    outputs: Sequence[collections.Counter[str]], inputs: Sequence[collections.Counter[str]]
) -> tuple[list[int], list[float]]:
    """For each output sentence the position of the input sentence with the highest F1, and this F1;
    see the module."""
    positions, scores = [], []
    for position, output in enumerate(outputs):
        f1 = [_f1(output, sentence) for sentence in inputs]
        best = max(range(len(inputs)), key=lambda i: (f1[i], -abs(i - position), -i))
        positions.append(best)
        scores.append(f1[best])
    return positions, scores


def coherence_penalty(positions: Sequence[int]) -> float | None:
    """L (Eq. 18): the mean over pairs i < j of output sentences of |(j - i) - (j' - i')|, from the
    position of the input sentence aligned with each output sentence; None without a pair."""
    if len(positions) < 2:
        return None
    shifts = np.asarray(positions) - np.arange(len(positions))
    first, second = np.triu_indices(len(positions), k=1)
    return float(np.abs(shifts[second] - shifts[first]).mean())


def _f1(output: collections.Counter[str], reference: collections.Counter[str]) -> float:
    shared = (output & reference).total()
    return 2 * shared / (output.total() + reference.total()) if shared else 0.0


def _percent(recall: float, precision: float) -> Rouge:
    f1 = 2 * recall * precision / (recall + precision) if recall else 0.0
    return Rouge(100 * recall, 100 * f1)
