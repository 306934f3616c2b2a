"""The table of what runs left by themselves, which nothing is measured for."""

from collections.abc import Mapping, Sequence
from typing import Any

from dclm_jax import tables as layout
from dclm_jax.coherence.results import Coherence
from dclm_jax.evaluation.perplexity import warning
from dclm_jax.experiments.grouping import differing, shown_option, symbol, with_defaults
from dclm_jax.experiments.report import Table
from dclm_jax.experiments.runs import Evaluation, FinishedRun
from dclm_jax.models import MODELS


def table(runs: Sequence[FinishedRun]) -> Table:
    """What runs left, blank where something is missing, and the rules that numbers were counted
    by."""
    configs = [with_defaults(run.config) for run in runs]
    options = differing(configs)
    measured = ["parameters", "development perplexity", "test perplexity", "of known"]
    measured.append("coherence %")
    cells = [["model", *map(symbol, options), *measured, "training minutes"]]
    for run, config in zip(runs, configs, strict=True):
        cells.append(
            [
                run.label,
                *(shown_option(config, key) for key in options),
                "" if run.evaluation is None else f"{run.evaluation.parameters:,}",
                "" if run.development is None else f"{run.development:.2f}{_of_what(config)}",
                "" if run.evaluation is None else f"{run.evaluation.perplexity:.2f}",
                _known(run.evaluation),
                "" if run.coherence is None else _quick_coherence(run.coherence),
                "" if run.seconds is None else f"{run.seconds / 60:.1f}",
            ]
        )
    about = []
    if first := next((run.evaluation for run in runs if run.evaluation is not None), None):
        about.append(
            f"Perplexity = exp(sum NLL / targets) over {first.tokens:,} targets "
            f"(END counted, START not), vocabulary {first.vocabulary_size:,}, OOV rate "
            f"{100 * first.oov_rate:.2f}%."
        )
    if one := next((run.coherence for run in runs if run.coherence is not None), None):
        about.append(
            "Coherence: log P(document) > log P(permutation), ties count half, "
            f"{one.documents:,} documents."
        )
    if len({config["data.directory"] for config in configs if "data.directory" in config}) > 1:
        about.append("Development perplexities of different corpora do not compare.")
    for run in runs:
        if run.evaluation is not None and (
            told := warning(run.evaluation.oov_rate, run.evaluation.own_oov_rate)
        ):
            about.append(f"{run.label}: {told}")
        if run.coherence is not None and run.coherence.warning:
            about.append(f"{run.label}: {run.coherence.warning}")
        about += [f"{run.label}: {missing}" for missing in run.missing]
    return Table("Results", "\n".join(about), cells)


def text(runs: Sequence[FinishedRun]) -> str:
    """`table` for a terminal."""
    _, about, cells = table(runs)
    return "\n".join([*layout.aligned(cells), about])


def _of_what(config: Mapping[str, Any]) -> str:
    """What is said after a perplexity that is not one of words given the words before: of bags, or
    given a source."""
    model = MODELS.get(config["model.name"])
    if model is None:
        return ""
    return " (bags)" if model.objective == "bags" else " (given a source)" * model.reads_source


def _known(evaluation: Evaluation | None) -> str:
    known = evaluation and evaluation.known_perplexity
    return "" if known is None else f"{known:.2f}"


def _quick_coherence(result: Coherence) -> str:
    kept = f" (first {result.keep_first} kept)" if result.keep_first else ""
    return f"{100 * result.mean:.2f}{kept}"
