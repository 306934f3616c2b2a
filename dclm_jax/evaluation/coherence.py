"""Local coherence: is a document likelier than its own sentences in another order?

Ji et al. (2015), section 4.2, after Barzilay and Lapata (2008): no supervised training, the
document with the higher likelihood counts as the coherent one. A permutation is never the document
itself. Permutations are drawn with replacement, so that short documents repeat some: a document of
two sentences has a single one. A document whose sentences are all the same can only tie.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from dclm_jax import files
from dclm_jax.errors import InputError
from dclm_jax.evaluation.scoring import Document, SentenceScorer

# What decides the test sets of a bootstrap.
_TEST_SET_KEYS = ("documents", "words", "replicates", "seed", "pool")
# First words of the seeds of independent random streams.
_ORDERS, _TEST_SETS = 0, 1


@dataclasses.dataclass(frozen=True)
class Coherence:
    """Accuracy in telling documents from permutations of their sentences.

    Attributes:
      kind: "fixed" or "bootstrap".
      mean: mean accuracy, 0 to 1.
      sd: sample standard deviation of accuracy over `replicates`; None where there is only one.
      replicates: rounds of one permutation a document (fixed) or resampled test sets (bootstrap).
      permutations: of each document (fixed), or of each of its draws into a test set (bootstrap).
      documents: documents with two sentences or more, also those of a test set.
      words: of all these documents, which tells texts apart under any vocabulary.
      pairs: comparisons made in all.
      seed: of the permutations and test sets; the same seed gives every model the same ones.
      pool: permutations of a document that a bootstrap draws from; 0: each draw has its own.
      pool_error: standard error of the mean that is due to the pool and that more test sets do not
        lessen.
    """

    kind: Literal["fixed", "bootstrap"]
    mean: files.Share
    sd: files.Share | None
    replicates: files.Count
    permutations: files.Count
    documents: files.Count
    words: files.Count
    pairs: files.Count
    seed: Annotated[int, files.Range(0, 2**128, "a whole number from 0 to 2^128")]
    pool: files.Count = 0
    pool_error: files.Share = 0.0

    def to_json(self) -> dict[str, Any]:
        """The attributes as a JSON object."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        spread = "" if self.sd is None else f", standard deviation {100 * self.sd:.2f}%"
        return (
            f"coherence ({self.kind}): accuracy {100 * self.mean:.2f}%{spread} over "
            f"{self.replicates:,} {'test sets' if self.kind == 'bootstrap' else 'permutations'} "
            f"of {self.documents:,} documents, ties count half"
        )


class ZTest(NamedTuple):
    """A one-sided two-sample z-test: the statistic, and P(z or more) if the means are equal."""

    z: float
    p: float


def fixed(
    scorer: SentenceScorer,
    documents: Sequence[Document],
    *,
    permutations: int = 20,
    seed: int = 0,
    on_document: Callable[[int, int], None] | None = None,
) -> Coherence:
    """The accuracy over `permutations` permutations of every document.

    Args:
      scorer: of the model.
      documents: a split; those with fewer than two sentences are left out.
      permutations: of each document.
      seed: of the permutations, 0 or more.
      on_document: called with the documents done and in all, to show progress.

    Raises:
      InputError: an argument is too small, or no document has two sentences.
    """
    _require_at_least("permutations", permutations, 1)
    _require_at_least("seed", seed, 0)
    chosen = _with_two_sentences(documents)
    counts = np.full(len(chosen), permutations)
    outcomes_DxP = np.array(list(_outcomes(scorer, chosen, counts, seed, on_document)))
    return _summary("fixed", outcomes_DxP.mean(axis=0), permutations, chosen, seed)


def bootstrap(
    scorer: SentenceScorer,
    documents: Sequence[Document],
    *,
    replicates: int = 1000,
    pool: int = 0,
    seed: int = 0,
    on_document: Callable[[int, int], None] | None = None,
) -> Coherence:
    """The paper's: mean and standard deviation of accuracy over resampled test sets.

    A test set has as many documents as the split, drawn with replacement, and each draw is shuffled
    afresh. All draws of one document are scored together, whichever test sets they belong to.

    Args:
      scorer: of the model.
      documents: a split; those with fewer than two sentences are left out.
      replicates: R, the number of test sets.
      pool: permutations of each document that its draws choose from; 0 for a fresh one each time,
        as in the paper. A pool costs R / pool times less, and adds its own sampling error to the
        mean, `pool_error`: at most 0.6% for 50 permutations of 155 documents.
      seed: of the test sets and permutations, 0 or more.
      on_document: called with the documents done and in all, to show progress.

    Raises:
      InputError: an argument is too small, or no document has two sentences.
    """
    _require_at_least("replicates", replicates, 1)
    if pool < 0 or pool == 1:
        raise InputError(f"pool is {pool}; expected 0, or 2 and more")
    _require_at_least("seed", seed, 0)
    chosen = _with_two_sentences(documents)
    rng = np.random.default_rng([_TEST_SETS, seed])
    draws_RxD = rng.integers(len(chosen), size=(replicates, len(chosen)))
    pool_error = 0.0
    if pool:
        counts = np.full(len(chosen), pool)
        outcomes_DxP = np.array(list(_outcomes(scorer, chosen, counts, seed, on_document)))
        outcomes_RxD = outcomes_DxP[draws_RxD, rng.integers(pool, size=draws_RxD.shape)]
        pool_error = math.sqrt(np.sum(outcomes_DxP.var(axis=1, ddof=1)) / pool) / len(chosen)
    else:
        counts = np.bincount(draws_RxD.reshape(-1), minlength=len(chosen))
        outcomes = list(_outcomes(scorer, chosen, counts, seed, on_document))
        outcomes_RxD = np.empty(draws_RxD.shape)
        # Both sides are ordered by document, and by draw within a document.
        order = np.argsort(draws_RxD, axis=None, kind="stable")
        outcomes_RxD.reshape(-1)[order] = np.concatenate(outcomes)
    result = _summary("bootstrap", outcomes_RxD.mean(axis=1), 1, chosen, seed)
    return dataclasses.replace(result, pool=pool, pool_error=pool_error)


def z_test(
    mean_a: float, sd_a: float, n_a: int, mean_b: float, sd_b: float, n_b: int, error: float = 0.0
) -> ZTest:
    """Whether A's mean is above B's.

    z = (mean_a - mean_b) / sqrt(sd_a^2 / n_a + sd_b^2 / n_b + error^2), where `error` is a standard
    error of the difference that n does not lessen.

    On bootstrap results n is the number of test sets, so the test speaks of this split and grows
    with R: it says nothing of other documents or other training runs. The paper tests bootstrap
    results as well, by a formula that it does not give: on its Table 3 this one has z = 43.22 and
    34.68, where it prints 36.55 and 31.26.

    Raises:
      InputError: both standard deviations are 0, or n is below 1.
    """
    _require_at_least("n", min(n_a, n_b), 1)
    variance = sd_a**2 / n_a + sd_b**2 / n_b + error**2
    if variance <= 0:
        raise InputError("a z-test needs a standard deviation above 0")
    z = (mean_a - mean_b) / math.sqrt(variance)
    return ZTest(z, 0.5 * math.erfc(z / math.sqrt(2)))


def read_result(path: str) -> Coherence:
    """A result file of launch.coherence.

    Raises:
      InputError: it cannot be read, or holds something else.
    """
    return files.read_json(path, Coherence, made_by="python -m launch.coherence --output")


def compare(a: tuple[str, Coherence], b: tuple[str, Coherence]) -> tuple[str, dict[str, Any]]:
    """The z-test of whether A's accuracy is above B's, on two bootstrap results.

    Args:
      a, b: a name (of the file, for messages) and the result.

    Returns:
      A text for people, and a JSON object.

    Raises:
      InputError: one is not a bootstrap result of two test sets or more, or their test sets differ.
    """
    (name_a, result_a), (name_b, result_b) = a, b
    samples = [_sample(name, result) for name, result in (a, b)]
    for key in _TEST_SET_KEYS:
        found_a, found_b = getattr(result_a, key), getattr(result_b, key)
        if found_a != found_b:
            raise InputError(
                f"the test sets differ: {key} is {found_a} in {name_a} and {found_b} in {name_b}"
            )
    try:
        error = math.hypot(result_a.pool_error, result_b.pool_error)
        z, p = z_test(*samples[0], *samples[1], error)
    except InputError as error:
        raise InputError(f"{name_a} and {name_b}: {error}") from error
    lines = [
        f"{name}: accuracy {100 * mean:.2f}%, standard deviation {100 * sd:.2f}% over {n:,} test "
        "sets"
        for (name, _), (mean, sd, n) in zip((a, b), samples, strict=True)
    ]
    text = "\n".join([*lines, f"{name_a} above {name_b}: z = {z:.2f}, one-sided p = {p:.3g}"])
    return text, {"kind": "z_test", "a": name_a, "b": name_b, "z": z, "p": p}


def _sample(name: str, result: Coherence) -> tuple[float, float, int]:
    if result.kind != "bootstrap" or result.sd is None:
        raise InputError(f"{name}: not a bootstrap result; expected one of --bootstrap=R, R > 1")
    return result.mean, result.sd, result.replicates


def random_orders(
    document: Document, count: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Orders of a document's sentences that are not the document.

    Args:
      document: of n sentences.
      count: orders to draw, with replacement.
      rng: the source of randomness.

    Returns:
      `original` int [n] and `orders` int [count, n]: indices of sentences, where equal sentences
      have the same index, so that equal texts are equal rows. No row is `original` unless all
      sentences are the same.
    """
    first_index: dict[bytes, int] = {}
    original = np.array(
        [
            first_index.setdefault(np.asarray(ids, np.int32).tobytes(), index)
            for index, ids in enumerate(document)
        ]
    )
    orders = rng.permuted(np.tile(original, (count, 1)), axis=1)
    if len(first_index) > 1:
        while np.any(same := np.all(orders == original, axis=1)):
            orders[same] = rng.permuted(orders[same], axis=1)
    return original, orders


class _Plan(NamedTuple):
    """How the outcomes of one document follow from the scores of `num_requests` requests."""

    orders: np.ndarray  # the original and every different permutation
    rows: np.ndarray  # where in `orders` the original is, then each draw
    way: str
    num_requests: int


class _Request(NamedTuple):
    """Sentences to score, or the last of them, for the plan of a document."""

    sentences: Document
    only_last: bool
    plan: _Plan


def _outcomes(
    scorer: SentenceScorer,
    documents: Sequence[Document],
    counts: np.ndarray,
    seed: int,
    on_document: Callable[[int, int], None] | None,
) -> Iterator[np.ndarray]:
    """For each document, float [counts[i]]: 1 where it is likelier than the draw, 0.5 for a tie."""

    def requests() -> Iterator[_Request]:
        for index, (document, count) in enumerate(zip(documents, counts, strict=True)):
            rng = np.random.default_rng([_ORDERS, seed, index])
            original, drawn = random_orders(document, int(count), rng)
            orders, rows = np.unique(
                np.concatenate([original[None], drawn]), axis=0, return_inverse=True
            )
            way, selections = _selections(orders, scorer.context_order)
            plan = _Plan(orders, rows.reshape(-1), way, len(selections))
            for selection in selections:
                yield _Request([document[index] for index in selection], way == "pairs", plan)

    collected: list[list[float]] = []
    done = 0
    for (_, _, plan), nll in scorer.score(requests()):
        collected.append([-float(np.sum(one, dtype=np.float64)) for one in nll])
        if len(collected) == plan.num_requests:
            totals = _totals(plan.way, plan.orders, collected)
            yield np.sign(totals[plan.rows[0]] - totals[plan.rows[1:]]) / 2 + 0.5
            collected = []
            done += 1
            if on_document is not None:
                on_document(done, len(documents))


def _selections(orders: np.ndarray, context_order: int | None) -> tuple[str, Sequence[Any]]:
    """Which sentences each request consists of, and the way to get the totals of `orders` from it.

    Without context a sentence has one score. With the previous sentence as context it has one at
    the start of a document and one after every sentence: n + n^2 scores of sentences for any number
    of orders, where each order scored by itself takes n.
    """
    num_orders, num_sentences = orders.shape
    if context_order == 0:
        return "sentences", list(orders[:1])
    if context_order == 1 and num_sentences + 1 < num_orders:
        indices = range(num_sentences)
        return "pairs", [(i,) for i in indices] + [(i, j) for i in indices for j in indices]
    return "orders", list(orders)


def _totals(way: str, orders: np.ndarray, scores: list[list[float]]) -> np.ndarray:
    """log P of each order; `fsum` gives equal terms equal totals in any order: ties are exact."""
    num_sentences = orders.shape[1]
    if way == "sentences":
        of_sentence = dict(zip(orders[0].tolist(), scores[0], strict=True))
        return np.array([math.fsum(of_sentence[i] for i in order) for order in orders.tolist()])
    if way == "pairs":
        flat = np.array(scores)[:, 0]
        first, after = flat[:num_sentences], flat[num_sentences:].reshape(num_sentences, -1)
        return np.array(
            [math.fsum([first[order[0]], *after[order[:-1], order[1:]]]) for order in orders]
        )
    return np.array([math.fsum(one) for one in scores])


def _summary(
    kind: Literal["fixed", "bootstrap"],
    accuracies: np.ndarray,
    permutations: int,
    documents: Sequence[Document],
    seed: int,
) -> Coherence:
    return Coherence(
        kind=kind,
        mean=float(accuracies.mean()),
        sd=float(accuracies.std(ddof=1)) if len(accuracies) > 1 else None,
        replicates=len(accuracies),
        permutations=permutations,
        documents=len(documents),
        words=sum(len(sentence) for document in documents for sentence in document),
        pairs=len(accuracies) * len(documents),
        seed=seed,
    )


def _with_two_sentences(documents: Sequence[Document]) -> list[Document]:
    chosen = [document for document in documents if len(document) > 1]
    if not chosen:
        raise InputError("no document has two sentences; coherence needs an order to change")
    return chosen


def _require_at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise InputError(f"{name} is {value}; expected at least {least}")
