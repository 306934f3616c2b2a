"""Measurements that are made up, and tables of them, for tests of reports."""

from typing import Any

from dclm_jax.evaluation.measures import ByPosition
from dclm_jax.experiments import tables
from dclm_jax.experiments.comparison import BASELINES


def result(
    model: Any = "rnnlm",
    seed: Any = 0,
    test: Any = 100.0,
    accuracy: Any = 0.5,
    documents: Any = (5.0, 7.0, 6.0),
    text: Any = "a",
    first: Any = 0.5,
    **config: Any,
) -> dict[str, Any]:
    """The facts and measurements of a run as `report.measure` gives them."""
    counted = {"tokens": 10, "vocabulary_size": 12, "oov_rate": 0.05}
    return {
        "workdir": f"runs/{model}-{seed}",
        "parameters": 1234,
        "objective": "words",
        "has_context": model not in ("rnnlm", "rlm"),
        "own_oov_rate": None,
        "step": 20,
        "seconds": 60,
        "curve": [[10, 200.0], [20, 150.0]],
        "training_text": text,
        "unfinished": False,
        "config": {
            "model.name": model,
            "model.embedding_dim": 8,
            "model.hidden_dim": 4,
            "data.segment_length": 5,
            "data.directory": f"somewhere/{seed}",
            "training.seed": seed,
            **config,
        },
        "valid": {"perplexity": test + 5, **counted},
        "test": {
            "perplexity": test,
            "known_perplexity": test + 0.5,
            "bits_per_word": 7.5,
            **counted,
        },
        "arrangements": {"own": test, "shuffled": test + 1, "mixed": test + 2, "none": test + 3},
        "by_token": by_range([2.0, 3.0, 0.0], [0.0, 3.0, 0.0], [0.0, 0.0, 1.0]),
        "by_sentence": by_range([5.0], [3.0], [1.0]),
        "by_document": list(documents),
        "coherence": {
            "mean": accuracy,
            "sd": 0.04 if accuracy != 0.5 else 0.0,
            "replicates": 100,
            "documents": 3,
            "pool": 50,
            "pool_error": 0.003 if accuracy != 0.5 else 0.0,
            "keep_first": 0,
            "left_out": 0,
            "first_sentence": first,
        },
    }


def by_range(*documents: list[float]) -> dict[str, list[list[float]]]:
    """Nats of documents in the first ranges; one target wherever there are any."""
    nll = [[*row, *[0.0] * (len(ByPosition.BOUNDS) - len(row))] for row in documents]
    return {"nll": nll, "count": [[int(value > 0) for value in row] for row in nll]}


def table(rows, title):
    """The cells of the table whose title begins with `title`."""
    every = tables.tables(rows, BASELINES).values()
    (cells,) = [table.cells for table in every if table.title.startswith(title)]
    return cells


def by_column(rows, title):
    header, *cells = table(rows, title)
    return [dict(zip(header, line, strict=True)) for line in cells]
