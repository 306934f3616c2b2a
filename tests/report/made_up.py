"""Results that are made up, and tables of them, for tests of reports."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dclm_jax.coherence.results import Coherence, DocumentOutcome, OrderResult
from dclm_jax.evaluation.context_ablation import ContextPerplexities
from dclm_jax.evaluation.significance import Sums
from dclm_jax.evaluation.target_sums import RANGE_STARTS, TargetSums
from dclm_jax.report import tables
from dclm_jax.report.results import RunFacts, RunResults
from dclm_jax.report.rows import BASELINES
from dclm_jax.scoring.perplexity import Perplexity


def facts(model: Any = "rnnlm", seed: Any = 0, text: Any = "a", **config: Any) -> RunFacts:
    """The facts of a run."""
    return RunFacts(
        workdir=f"runs/{model}-{seed}",
        config={
            "model.name": model,
            "model.embedding_dim": 8,
            "model.hidden_dim": 4,
            "data.segment_length": 5,
            "data.directory": f"somewhere/{seed}",
            "training.seed": seed,
            **config,
        },
        parameters=1234,
        objective="words",
        has_pieces=False,
        has_context=model not in ("rnnlm", "rlm"),
        usual_oov_rate=None,
        step=20,
        matmul_precision="highest",
        training_text=text,
        seconds=60,
        curve=[(10, 200.0), (20, 150.0)],
        validation=150.0,
    )


def result(
    model: Any = "rnnlm",
    seed: Any = 0,
    test: Any = 100.0,
    accuracy: Any = 0.5,
    documents: Any = (5.0, 7.0, 6.0),
    text: Any = "a",
    first: Any = 0.5,
    **config: Any,
) -> RunResults:
    """The facts and results of a run. Of three documents, with these nats, the first has two
    targets, at the first two positions; the others have one, at the second and third position."""
    nats_0, nats_1, nats_2 = (*documents, 0.0, 0.0)[:3]
    by_token = by_range([2.0, nats_0 - 2.0], [0.0, nats_1], [0.0, 0.0, nats_2])
    size = len(documents)
    return RunResults(
        facts=facts(model, seed, text, **config),
        test=sums(test, Sums(by_token.nll[:size], by_token.count[:size])),
        valid=sums(test + 5, by_range([7.0], [8.0, 9.0]), tokens=27),
        contexts=ContextPerplexities(test + 1, test + 2, test + 3),
        coherence=coherence(accuracy, first_sentence=first),
    )


def sums(
    perplexity: float, by_token: Sums, by_sentence: Sums | None = None, tokens: int = 25
) -> TargetSums:
    """Sums with this perplexity, which is unrelated to the sums by position."""
    totals = Perplexity(
        vocabulary_size=12,
        nll=tokens * math.log(perplexity),
        tokens=tokens,
        words=tokens - 5,
        oov_words=1,
        known_nll=(tokens - 1) * math.log(perplexity + 0.5),
    )
    return TargetSums(totals, by_token, by_sentence or by_token)


def coherence(
    accuracy: float, outcomes: Sequence[float] | None = None, **changes: Any
) -> OrderResult[Coherence]:
    """An accuracy; unless it is 0.5, it varies over test sets and documents."""
    varies = accuracy != 0.5
    if outcomes is None:
        outcomes = [accuracy + varies * d * accuracy / 100 for d in (-1, 0, 1)]
    values = {
        "kind": "bootstrap",
        "mean": accuracy,
        "sd": 0.04 * varies,
        "replicates": 100,
        "permutations": 1,
        "documents": 3,
        "words": 9,
        "pairs": 300,
        "seed": 0,
        "pool": 50,
        "pool_error": 0.003 * varies,
    }
    documents = [DocumentOutcome(i, 50, 50 * outcome) for i, outcome in enumerate(outcomes)]
    return OrderResult(Coherence(**values | changes), documents)


def by_range(*documents: Sequence[float], counts: Any = None) -> Sums:
    """Nats of documents in the first ranges; one target wherever there are any."""
    nll = np.array([[*row, *[0.0] * (len(RANGE_STARTS) - len(row))] for row in documents])
    return Sums(nll, (nll > 0).astype(int) if counts is None else by_range(*counts).nll)


def table(rows, title):
    """The cells of the table whose title begins with `title`."""
    every = tables.tables(rows, BASELINES).values()
    (cells,) = [table.cells for table in every if table.title.startswith(title)]
    return cells


def by_column(rows, title):
    header, *cells = table(rows, title)
    return [dict(zip(header, line, strict=True)) for line in cells]
