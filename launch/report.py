"""Reports on trained runs: the tables and figures of the DCLM paper (Ji et al. 2015), or one table.

    python -m launch.report --output=reports/ptb \\
        --workdirs=runs/ptb/rnnlm-0,runs/ptb/rnnlm-1,runs/ptb/ccdclm-0,runs/ptb/ccdclm-1

Runs that differ in nothing but training.seed are one row: means and standard deviations over seeds.
All runs are measured on the same corpus: development and test perplexity (Table 2), with z-tests
against rnnlm; bootstrap coherence (Table 3), with z-tests against the baselines; perplexity with
the context exchanged or removed; perplexity by position in the sentence and in the document.
Where a model was trained with several segment lengths L, their learning curves are drawn as well
(Figure 3).

DIR holds report.md, report.json (every row), the pictures, and in runs/ what was measured of each
run: the same command measures only runs that are new or have changed, so it can be stopped, and
what was measured on other --data or with other options is kept.

Coherence is most of the time: as long as --pool test perplexities (--pool=0, the paper's, as long
as --bootstrap of them), but little for rnnlm and codclm.

With --quick nothing is measured: one table of what training, evaluation and coherence have left in
each workdir, and with --output their learning curves in DIR/learning_curves.png.

    python -m launch.evaluate  --workdir=RUN --split=test --output=RUN/perplexity.json
    python -m launch.coherence --workdir=RUN --split=test --output=RUN/coherence.json
    python -m launch.report    --quick --workdirs=RUN,OTHER_RUN --output=DIR
"""

import contextlib
import hashlib
import json
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from absl import flags

from dclm_jax import files, storage
from dclm_jax.errors import InputError
from dclm_jax.evaluation import inputs
from dclm_jax.experiments import grouping, measurement, plots, report, runs
from dclm_jax.language_model import LanguageModel
from dclm_jax.training.config import flat
from dclm_jax.training.metrics import FILE as METRICS_FILE
from dclm_jax.training.workdir import CORPUS_FILE, RESULT_FILE
from launch import _app, _evaluation

_WORKDIRS = flags.DEFINE_list("workdirs", None, "Trained runs, separated by commas.", required=True)
_OUTPUT = flags.DEFINE_string("output", None, "Directory to write.")
_QUICK = flags.DEFINE_bool("quick", False, "Show what is there, and measure nothing.")
_DATA = flags.DEFINE_string(
    "data", None, "Prepared corpus; default: the one the first run was trained on."
)
_BOOTSTRAP = flags.DEFINE_integer(
    "bootstrap", 1000, "Test sets of the coherence test; 0 leaves it out."
)
_POOL = flags.DEFINE_integer(
    "pool", 50, "Permutations of each document that test sets draw from; 0: each draw has its own."
)
_SEED = flags.DEFINE_integer("seed", 0, "Seed of permutations and test sets.")
_RUNS = "runs"
_MARKDOWN = "report.md"
_CURVES = "learning_curves.png"


def main(argv: Sequence[str]) -> None:
    del argv
    workdirs = [workdir.strip() for workdir in _WORKDIRS.value]
    if not workdirs or not all(workdirs):
        raise InputError("--workdirs holds an empty name; expected work directories")
    if _OUTPUT.value:
        plots.check_target(_CURVES)
    if _QUICK.value:
        _show(workdirs)
        return
    if not _OUTPUT.value:
        raise InputError("--output is missing; expected a directory to write, or --quick")
    for name, flag in (("bootstrap", _BOOTSTRAP), ("pool", _POOL)):
        if flag.value < 0 or flag.value == 1:
            raise InputError(f"--{name} is {flag.value}; expected 0, or 2 and more")
    if _SEED.value < 0:
        raise InputError(f"--seed is {_SEED.value}; expected 0 or more")
    to_measure = _restore_all(workdirs)
    output = storage.locate(_OUTPUT.value)
    # Before long work: there must be a place for it.
    with files.writing(output / _RUNS), storage.reaching(output):
        (output / _RUNS).mkdir(parents=True, exist_ok=True)
    rows = grouping.rows([_result(run, output / _RUNS) for run in to_measure])
    pictures = report.pictures(rows)
    for name, picture in pictures.items():
        plots.plot_curves(picture, output / name)
    files.write_json(output / "report.json", report.to_json(rows))
    with files.open_output(output / _MARKDOWN) as file:
        file.write(report.markdown(rows, pictures))
    print(report.text(rows))
    print(f"report: {output / _MARKDOWN}")


def _show(workdirs: Sequence[str]) -> None:
    for flag in (_DATA, _BOOTSTRAP, _POOL, _SEED):
        if flag.present:
            raise InputError(f"--{flag.name} says how to measure; --quick measures nothing")
    finished = runs.read_runs(workdirs)
    print(report.quick_text(finished))
    if _OUTPUT.value:
        path = storage.locate(_OUTPUT.value) / _CURVES
        plots.plot_curves(report.learning_curves(finished), path)
        print(f"Learning curves: {path}")


class _Run(NamedTuple):
    """A run to measure: its model, its documents, what tells it from others, and what is known
    without a measurement."""

    lm: LanguageModel
    documents: dict[str, list[list[Any]]]
    identity: dict[str, Any]
    known: dict[str, Any]


def _restore_all(workdirs: Sequence[str]) -> list[_Run]:
    """All runs, which can be reported together."""
    models = _evaluation.restore_comparable(workdirs)
    _evaluation.require_language_models(models, "launch.report")
    vocabulary = models[0].vocabulary
    data = _DATA.value or models[0].config["data"]["directory"]
    splits = {split: inputs.open_split(vocabulary, data, split) for split in ("valid", "test")}
    documents = {
        split: [document.sentences for document in opened.documents]
        for split, opened in splits.items()
    }
    measured_on = {
        "vocabulary": vocabulary.fingerprint,
        "documents": {name: measurement.fingerprint(split) for name, split in documents.items()},
        "options": {"replicates": _BOOTSTRAP.value, "pool": _POOL.value, "seed": _SEED.value},
    }
    restored = []
    for workdir, lm in zip(workdirs, models, strict=True):
        of = {"version": measurement.VERSION, "model": measurement.model_fingerprint(lm)}
        restored.append(_Run(lm, documents, {**of, **measured_on}, _known(workdir, lm)))
    # What cannot be told apart should be said before long work.
    grouping.rows([run.known for run in restored])
    return restored


def _known(workdir: str, lm: LanguageModel) -> dict[str, Any]:
    """What is known of a run without a measurement; an n-gram model was not trained in steps."""
    known = {
        "workdir": workdir,
        "parameters": lm.num_parameters,
        "objective": lm.scorer.objective,
        "step": lm.step,
        "config": dict(flat(lm.config)),
        "training_text": None,
        "seconds": None,
        "curve": [],
        "unfinished": False,
    }
    wanted = {METRICS_FILE, CORPUS_FILE, RESULT_FILE}
    with storage.fetched(workdir, wanted.intersection) as folder:
        if (folder / CORPUS_FILE).exists():
            text = hashlib.sha256((folder / CORPUS_FILE).read_bytes()).hexdigest()[:8]
            known["training_text"] = text
        if (folder / METRICS_FILE).exists():
            curve, seconds = runs.read_curve(folder)
            known["seconds"] = round(seconds)
            known["curve"] = [[one.step, one.perplexity] for one in curve]
            known["unfinished"] = not (folder / RESULT_FILE).exists()
    if known["unfinished"]:
        print(f"note: {workdir} is not trained to its end; step {lm.step} is measured")
    return known


def _result(run: _Run, folder: storage.Location) -> dict[str, Any]:
    """What was measured of a run, now or by an earlier call."""
    workdir, identity = run.known["workdir"], run.identity
    place = storage.resolve(workdir)
    # On other documents or with other options it is kept beside this one: a quick look loses
    # nothing that took hours.
    of = [str(place), identity["documents"], identity["options"]]
    name = hashlib.sha256(json.dumps(of).encode()).hexdigest()[:8]
    kept = folder / f"{place.name}-{name}.json"
    # One that is damaged is made again.
    with contextlib.suppress(InputError):
        result = files.read_json(kept, dict[str, Any])
        if result.get("identity") == identity:
            print(f"{workdir}: measured before", flush=True)
            return {**result, **run.known}
    start = time.monotonic()
    with _evaluation.Progress(workdir) as progress:
        measured = measurement.measure(
            run.lm.scorer, **run.documents, **identity["options"], on_document=progress
        )
    result = {"identity": identity, **measured}
    files.write_json(kept, result)
    print(f"{workdir}: measured in {time.monotonic() - start:.0f} s", flush=True)
    return {**result, **run.known}


if __name__ == "__main__":
    _app.run(main)
