"""Measures of the next-word distribution at every target, with and without earlier sentences.

The distribution p at a target w_n is P(. | everything before w_n) over all V entries of the
vocabulary. It is the distribution whose -log p(w_n) is the surprisal of w_n. With a vocabulary of
subwords the surprisal of a word is the sum over its pieces, and all other measures are of the
distribution of the word's first piece, over all pieces.

    entropy            H_n = -sum_w p(w) log p(w), in nats (Pimentel et al. 2023)
    entropy_reduction  H_n - H_{n+1}, in nats: the entropy at w_n minus the entropy at the next
                       target of the sentence (Hale 2006, with the entropy of one next word in
                       place of the entropy of all continuations). The difference may be negative.
                       END has none (NaN), because no target of the sentence follows.
    rank               1 + the number of entries that are more probable than w_n; equally probable
                       entries have the same rank.
    divergence         KL(p || q) = sum_w p(w) (log p(w) - log q(w)), in nats, where q is the
                       distribution without earlier sentences: the information that the earlier
                       sentences give about the next word.

In the first sentence of a document, and under a model without context, p and q are equal.
"""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from dclm_jax.errors import InputError
from dclm_jax.reading.likelihoods import block_measures
from dclm_jax.scoring.neural import BlockFunctions, NeuralScorer
from dclm_jax.scoring.scorer import Scored, first_pieces, sentences_to_score, sum_pieces

SURPRISAL, DIVERGENCE = "surprisal", "divergence"
WORD_MEASURES = (SURPRISAL, "entropy", "entropy_reduction", "rank", DIVERGENCE)
_COMPUTED = (SURPRISAL, "entropy", "rank")
GREATEST_RANK = "greatest_rank"
"""The greatest rank of the pieces of a word; not a measure of `WORD_MEASURES`."""
NO_CONTEXT = "_no_context"
"""Ending of the name of a measure of q."""
SURPRISAL_NO_CONTEXT = f"{SURPRISAL}{NO_CONTEXT}"
OTHER_COLUMNS = f"{SURPRISAL}_other_context", f"{SURPRISAL}_other_context_sd"
"""The surprisal with the contexts of other documents: mean and standard deviation over contexts."""
_FUNCTIONS = {
    no_context_too: BlockFunctions(
        read=functools.partial(block_measures, no_context_too=no_context_too),
        shape=(2 * len(_COMPUTED) + 1 if no_context_too else len(_COMPUTED),),
    )
    for no_context_too in (False, True)
}
Measured = Mapping[str, np.ndarray]
"""Measures of a sentence by name, each float64 [M + 1] for the targets w1..wM END."""


def score_columns(
    measures: Sequence[str] = (SURPRISAL,), *, no_context_too: bool, other_contexts: bool = False
) -> list[str]:
    """The names of the columns of `measures`, in their order. The surprisal is always the first;
    then come `OTHER_COLUMNS`, if asked for, and the surprisal under q if `no_context_too`. Every
    other measure stands before its value under q; the divergence is a single column."""
    if isinstance(measures, str):
        raise InputError(f"measures are {measures!r}; expected a list of names")
    names = [SURPRISAL, *(OTHER_COLUMNS if other_contexts else ())]
    names += [SURPRISAL_NO_CONTEXT] if no_context_too else []
    measures = list(measures)
    for index, name in enumerate(measures):
        if name not in WORD_MEASURES:
            raise InputError(
                f"the measure {name!r} is unknown; choose from {', '.join(WORD_MEASURES)}"
            )
        if name in measures[:index]:
            raise InputError(f"the measure {name!r} is named twice; name each measure once")
        if name != SURPRISAL:
            names += [name]
            names += [f"{name}{NO_CONTEXT}"] if no_context_too and name != DIVERGENCE else []
    return names


def needs_no_context(names: Sequence[str]) -> bool:
    """Whether columns with these names, from `score_columns`, need q."""
    return SURPRISAL_NO_CONTEXT in names or DIVERGENCE in names


def measure_documents(
    scorer: NeuralScorer, documents: Iterable[Scored], *, no_context_too: bool
) -> Iterator[tuple[Scored, list[Measured]]]:
    """All measures of documents, in the order of the documents and in one pass.

    Args:
      scorer: a scorer of a model that predicts words.
      documents: documents of ids, as for `Scorer.score`.
      no_context_too: whether to compute the measures of q, named NAME_no_context, and the
        divergence.
    """
    model = scorer.model
    if model.objective != "words":
        raise InputError(
            f"{model.name} predicts bags of words and has no distribution of the next word; choose "
            "a model that predicts words, or only the measure surprisal"
        )
    differ, first_word_end = no_context_too and model.context_order != 0, model.first_word_end
    for document, values in scorer.computing(_FUNCTIONS[differ]).score(documents):
        sentences, first_scored = sentences_to_score(document)
        measured = []
        for number, values_NxX in enumerate(values, start=first_scored):
            values_XxM = _of_targets(sentences[number], values_NxX, first_word_end)
            named = _named(values_XxM, no_context_too, differ and number > 0)
            first = first_pieces(sentences[number], first_word_end)
            ranks_N = values_NxX[:, _COMPUTED.index("rank")]
            measured.append({**named, GREATEST_RANK: np.maximum.reduceat(ranks_N, first)})
        yield document, measured


def _of_targets(ids: np.ndarray, values_NxX: np.ndarray, first_word_end: int) -> np.ndarray:
    """The measures float64 [X, M] of words and END from the measures of their pieces."""
    values_XxN = values_NxX.T.astype(np.float64)
    values_XxM = values_XxN[:, first_pieces(ids, first_word_end)]
    count = len(_COMPUTED)
    for row in range(0, len(values_XxN) - 1, count):
        values_XxM[row] = sum_pieces(ids, values_XxN[row], first_word_end)
    return values_XxM


def _named(values_XxN: np.ndarray, no_context_too: bool, differ: bool) -> Measured:
    """The measures of the targets of a sentence by name. Unless p and q `differ`, q is p."""
    count = len(_COMPUTED)
    measured = _with_reduction(values_XxN[:count])
    if not no_context_too:
        return measured
    others = _with_reduction(values_XxN[count : 2 * count]) if differ else measured
    divergence = values_XxN[-1] if differ else np.zeros(values_XxN.shape[1])
    named = {f"{name}{NO_CONTEXT}": values for name, values in others.items()}
    return {**measured, **named, DIVERGENCE: divergence}


def _with_reduction(values_XxN: np.ndarray) -> dict[str, np.ndarray]:
    """The computed measures, and the entropy reduction of every target."""
    measured = dict(zip(_COMPUTED, values_XxN, strict=True))
    entropy = measured["entropy"]
    return {**measured, "entropy_reduction": entropy - np.append(entropy[1:], np.nan)}
