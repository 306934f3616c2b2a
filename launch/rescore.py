"""Rescores n-best lists with language models, document by document.

A list has several hypotheses of every segment: translations, transcripts. From the first segment of
a document to the last one hypothesis is chosen, and each is scored given those chosen before it.
Lists to try it on, and what a model of documents makes of them:

    python -m launch.corrupt --data=data/sotu --split=valid --max_sentences=10 --output=data/nbest
    python -m launch.rescore --workdir=runs/tour --nbest=data/nbest/nbest.txt --tune \\
        --documents=data/nbest/documents.txt --references=data/nbest/references.txt \\
        --output=best.txt --metrics=tuned.json

The list (--nbest) is a file as Moses writes it, `id ||| words ||| features ||| score`, or as Kaldi
writes words_text, or a folder of Kaldi's with its costs. Features are written `NAME= value` or
`NAME=value`. A feature that a hypothesis lacks is 0 there, and a note counts such hypotheses.
--documents has a line `ID DOCUMENT` for every segment; without it the list is one document.
--references has a sentence a line, in the order of the list, and gives a table: the first of each
list, a random one, the chosen one and the oracle, the best hypothesis of each list. BLEU is
sacrebleu's, of words as they are.

Hypotheses and references may be empty (silence). An empty hypothesis has the log P of END alone. If
it is chosen, it does not enter the context of the next segments.

--scored_nbest writes a Moses list again and adds to every line the log P (nats) of the hypothesis
under each model, given the hypotheses chosen before. Other tools can read the file, and so can this
command. The feature has the name of the run; if the list has that name already, NAME_2.

The score of a hypothesis is a weighted sum of log P (nats) under each model, the decoder's total
`score`, the list's own features, and `words`, the number of its words (if the list has no feature
of that name), because log P alone likes short hypotheses. Without --weights those of models and
`score` are 1 and all others 0. --tune finds weights by minimum error rate training (Och 2003) on a
development list, and --weights takes them from there to another one:

    python -m launch.rescore --workdirs=runs/a,runs/b --nbest=test.nbest --documents=test.docs \\
        --references=test.txt --weights=tuned.json --output=best.txt --metrics=test.json

Search is greedy, or follows --beam documents so far; --viterbi is exact, for models that read one
sentence before at most (rnnlm, codclm, n-grams). p-values are of a paired bootstrap over documents
(over segments where there is one document): how likely it is that the row is no better than the
first of the list, or than what --baseline says another system has chosen.
"""

import dataclasses
import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from absl import flags

from dclm_jax import files
from dclm_jax.data import nbest
from dclm_jax.decoding.rescoring import (
    Task,
    decode_list,
    default_weights,
    rescoring_task,
    scored_lines,
)
from dclm_jax.errors import InputError, shown
from dclm_jax.evaluation import mert, translation
from dclm_jax.evaluation.translation import METRICS
from dclm_jax.tables import aligned
from launch import _app, _evaluation

flags.declare_key_flag("workdir")
flags.declare_key_flag("lowercase")
_evaluation.define_workdirs()
_NBEST = flags.DEFINE_string("nbest", None, "N-best list: a file, or a folder of Kaldi's.")
_DOCUMENTS = flags.DEFINE_string("documents", None, "A line `ID DOCUMENT` for every segment.")
_REFERENCES = flags.DEFINE_string("references", None, "References: a line for every segment.")
_BASELINE = flags.DEFINE_string(
    "baseline", None, "What to compare with instead of the first of each list: a line a segment."
)
_OUTPUT = flags.DEFINE_string(
    "output", None, "File for the chosen hypotheses, a line a segment; '-' is standard output."
)
_METRICS = flags.DEFINE_string(
    "metrics", None, "JSON file for weights and measures; '-' is standard output."
)
_SCORED_NBEST = flags.DEFINE_string(
    "scored_nbest",
    None,
    "File for the whole list with log P under each model as a further feature; '-' is standard "
    "output. The list must be one of Moses.",
)
_WEIGHTS = flags.DEFINE_string(
    "weights", None, "Weights of all features, separated by commas, or a file that --metrics wrote."
)
_TUNE = flags.DEFINE_bool("tune", False, "Tune the weights on this list and its references.")
_OBJECTIVE = flags.DEFINE_enum("objective", "bleu", list(METRICS), "What --tune improves.")
_RESTARTS = flags.DEFINE_integer("restarts", 10, "Random weights that --tune begins with as well.")
_BEAM = flags.DEFINE_integer("beam", 1, "Ways through a document to follow; 1 is greedy search.")
_VITERBI = flags.DEFINE_bool("viterbi", False, "Exact search.")
_BOOTSTRAP = flags.DEFINE_integer("bootstrap", 1000, "Resampled test sets of p-values.")
_SEED = flags.DEFINE_integer("seed", 0, "Seed of random choices, tuning and test sets.")
_OUTPUTS = (_OUTPUT, _METRICS, _SCORED_NBEST)


@dataclasses.dataclass(frozen=True)
class _Written:
    """What is read of a file that --metrics wrote."""

    weights: dict[str, files.Number]


def main(argv: Sequence[str]) -> None:
    del argv
    _check_flags()
    lists = nbest.read_nbest(_NBEST.value or "", report=_evaluation.tell)
    division = [range(len(lists.segments))]
    if _DOCUMENTS.value:
        division = nbest.read_division(_DOCUMENTS.value, lists)
    references = nbest.read_references(_REFERENCES.value, lists) if _REFERENCES.value else []
    baseline = nbest.read_sentences(_BASELINE.value, lists) if _BASELINE.value else []
    runs = _evaluation.restore_all()
    models = [run.lm for run in runs]
    _evaluation.require_language_models(models, "launch.rescore")
    task = rescoring_task(
        {run.label: run.lm for run in runs},
        lists,
        division,
        options=_evaluation.word_options(models),
    )
    segments = itertools.chain.from_iterable(task.documents)
    for _ in _evaluation.counting_unknown(
        segments, lambda segment: segment.hypotheses, models[0].text, lists.path
    ):
        pass
    if _SCORED_NBEST.value:
        nbest.require_extensible(lists, task.model_names)
    weights = _weights(task)
    statistics = {
        name: [
            metric.statistics(segment.hypotheses, reference)
            for segment, reference in zip(lists.segments, references, strict=True)
        ]
        for name, metric in METRICS.items()
        if references
    }
    to_screen = files.STDOUT not in [flag.value for flag in _OUTPUTS]
    show: Callable[[str], None] = print if to_screen else lambda line: None
    for name, run in zip(task.model_names, runs, strict=True):
        show(f"{name}: {run.lm.summary}")
    show(f"{len(lists.segments):,} segments of {_described(division)}")
    if _TUNE.value:
        weights = _tuned(task, statistics[_OBJECTIVE.value], weights, show)
    show("weights: " + ", ".join(map("{} {:.4g}".format, task.names, weights)))
    chosen, features = _decode(task, weights)
    scored = scored_lines(task, features) if _SCORED_NBEST.value else []
    value: dict[str, Any] = {
        "nbest": lists.path,
        "segments": len(lists.segments),
        "documents": len(division),
        "search": "viterbi" if _VITERBI.value else f"beam of {_BEAM.value}",
        "weights": dict(zip(task.names, weights.tolist(), strict=True)),
        "runs": [_evaluation.describe_run(run.lm, run.workdir) for run in runs],
        "seed": _SEED.value,
    }
    if references:
        systems = _systems(chosen, statistics)
        if baseline:
            pairs = list(zip(baseline, references, strict=True))
            systems["baseline"] = {
                name: np.array([metric.statistics([ours], of)[0] for ours, of in pairs])
                for name, metric in METRICS.items()
            }
        value |= _measured(systems, division)
        show("\n".join(_table(value)))
    if _OUTPUT.value:
        with files.open_output(_OUTPUT.value) as file:
            for segment, choice in zip(lists.segments, chosen, strict=True):
                file.write(" ".join(segment.hypotheses[choice]) + "\n")
    if _SCORED_NBEST.value:
        with files.open_output(_SCORED_NBEST.value) as file:
            file.writelines(scored)
    if _METRICS.value:
        files.write_json(_METRICS.value, value)


def _check_flags() -> None:
    """Refuses what is missing, and flags that have no effect."""
    if not _NBEST.value:
        raise InputError("--nbest is missing; expected an n-best list")
    if not any(flag.value for flag in (*_OUTPUTS, _REFERENCES)):
        raise InputError(
            "--output, --metrics, --scored_nbest and --references: expected one of them at least"
        )
    for first, second in itertools.combinations(_OUTPUTS, 2):
        if first.value and first.value == second.value:
            raise InputError(
                f"--{first.name} and --{second.name} are both {first.value}; expected two places"
            )
    for flag in (_TUNE, _BASELINE):
        if flag.value and not _REFERENCES.value:
            raise InputError(f"--{flag.name} needs --references, which is missing")
    for flag in (_OBJECTIVE, _RESTARTS):
        if flag.present and not _TUNE.value:
            raise InputError(f"--{flag.name} belongs to --tune, which is missing")
    if _VITERBI.value and _BEAM.present:
        raise InputError("--viterbi replaces --beam; expected one of the two")
    for name in (
        *("format", "normalize", "text_key", "language", "divider", "quoted", "encoding"),
        "batch_size",
    ):
        if flags.FLAGS[name].present:
            raise InputError(f"--{name} has no meaning for n-best lists")
    for flag, least in ((_BEAM, 1), (_RESTARTS, 0), (_BOOTSTRAP, 1), (_SEED, 0)):
        if flag.value < least:
            raise InputError(f"--{flag.name}={flag.value}; expected at least {least}")


def _described(division: Sequence[range]) -> str:
    if _DOCUMENTS.value:
        return f"{len(division):,} documents"
    return "one document; --documents=FILE says which segments belong together"


def _weights(task: Task) -> np.ndarray:
    """Those of --weights; without it models and the decoder's score count 1, all else 0."""
    given, names = _WEIGHTS.value, task.names
    if given is None:
        return default_weights(task)
    if os.path.isfile(given):
        found = files.read_json(given, _Written).weights
        if set(found) != set(names):
            raise InputError(
                f"{given}: has weights of {shown(list(found))}; expected {', '.join(names)}"
            )
        values, place = [found[name] for name in names], given
    else:
        values, place = given.split(","), "--weights"
        if len(values) != len(names):
            raise InputError(
                f"--weights is no file and has {len(values)} parts; expected {len(names)} numbers: "
                f"{', '.join(names)}"
            )
    try:
        weights = np.array(values, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{place}: {shown(values)}; expected numbers") from error
    if not np.all(np.isfinite(weights)) or not weights.any():
        raise InputError(f"{place}: {shown(values)}; expected finite numbers, not all of them 0")
    return weights


def _decode(task: Task, weights: np.ndarray) -> tuple[list[int], list[np.ndarray]]:
    """As `decode_list`, by the search of the flags, with its progress on the terminal."""
    beam = None if _VITERBI.value else _BEAM.value
    with _evaluation.Progress("rescoring") as progress:
        return decode_list(task, weights, beam=beam, on_document=progress)


def _tuned(
    task: Task,
    statistics: Sequence[np.ndarray],
    start: np.ndarray,
    show: Callable[[str], None],
) -> np.ndarray:
    metric = METRICS[_OBJECTIVE.value]
    tuned = mert.tune(
        lambda weights: _decode(task, weights),
        statistics,
        metric,
        start,
        restarts=_RESTARTS.value,
        seed=_SEED.value,
        on_round=lambda number, now: show(f"round {number}: {metric.name} {now.value:.2f}"),
    )
    return tuned.weights


def _systems(
    chosen: Sequence[int], statistics: dict[str, list[np.ndarray]]
) -> dict[str, dict[str, np.ndarray]]:
    """The statistics [S, Q] of what each row of the table chooses, by metric."""
    lists = next(iter(statistics.values()))
    random = np.random.default_rng(_SEED.value).integers([len(one) for one in lists]).tolist()
    choices = {"first": [0] * len(chosen), "random": random, "rescored": chosen}
    systems = {
        row: {name: translation.picked(of, choice) for name, of in statistics.items()}
        for row, choice in choices.items()
    }
    systems["oracle"] = {
        name: translation.picked(of, translation.oracle(METRICS[name], of))
        for name, of in statistics.items()
    }
    return systems


def _measured(
    systems: dict[str, dict[str, np.ndarray]], division: Sequence[range]
) -> dict[str, Any]:
    """The metrics of every row, and what all others are compared with."""
    baseline = "baseline" if "baseline" in systems else "first"
    rows: dict[str, Any] = {}
    for row, statistics in systems.items():
        rows[row] = {"right": float(np.mean(statistics["wer"][:, 0] == 0))}
        for name, metric in METRICS.items():
            result = translation.compare(
                metric,
                statistics[name],
                systems[baseline][name],
                division,
                samples=_BOOTSTRAP.value,
                seed=_SEED.value,
            )
            rows[row][name] = result._asdict() if row != baseline else {"value": result.value}
    return {"compared_with": baseline, "bootstrap": _BOOTSTRAP.value, "rows": rows}


def _table(value: dict[str, Any]) -> list[str]:
    header = ["", "segments right"]
    for metric in METRICS.values():
        header += [metric.name, "documents better", "p"]
    lines = [header]
    for row, measured in value["rows"].items():
        cells = [row, f"{100 * measured['right']:.2f}%"]
        for name in METRICS:
            cells.append(f"{measured[name]['value']:.2f}")
            if row == value["compared_with"]:
                cells += ["", ""]
            else:
                cells.append(f"{100 * measured[name]['improved']:.2f}%")
                cells.append(f"{measured[name]['p']:.4f}")
        lines.append(cells)
    return [*aligned(lines), f"better and p: than {value['compared_with']}"]


if __name__ == "__main__":
    _app.run(main)
