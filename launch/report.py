"""Reports on trained runs: the tables and figures of the DCLM paper (Ji et al. 2015), or one table.

    python -m launch.report --output=reports/ptb --workdirs='runs/ptb/*'
    python -m launch.report --output=reports/two --workdirs=runs/rnnlm,runs/ccdclm

Runs that differ in nothing but training.seed are one row: means and standard deviations over seeds.
All runs are measured on the same corpus: development and test perplexity (Table 2), with z-tests
against rnnlm; bootstrap coherence (Table 3), with z-tests against the baselines; perplexity with
the context exchanged or removed; perplexity by position in the sentence and in the document.
Where a model was trained with several segment lengths L, their learning curves are drawn as well
(Figure 3). Hyper-parameters that differ between rows have columns.

--baseline=RUN or MODEL compares all rows with one run, or with that model trained alike. Intervals
are of 95%, by bootstrap over the test documents, paired where two rows are compared: they speak of
other documents, and the standard deviations over seeds of other training runs.

Where the first sentence of a document, moved alone, is told in 75% of the cases or more by one of
the models (launch.coherence says why that matters), coherence is measured twice: with all sentences
permuted, and with the first one kept. --keep_first=N keeps N in any case.

--adapt=cache,unigram,dynamic adds test perplexity and coherence of runs that adapt themselves to
each document as they read it, in these ways or some of them, tuned on the development set, and
whether rows keep what they are ahead of the baseline (launch.evaluate says what they are).

--html=FILE writes a page as well, one file that needs no network, for phones and desktops: the
configurations side by side, curves, tables with marks of significance, and three test documents,
chosen by a rule that stands there, word by word: surprisal with and without the sentences before,
and attention. The reader steps through their sentences by buttons or the arrow keys. It ends with
how each number was made:

    python -m launch.report --output=reports/two --workdirs=runs/rnnlm,runs/adclm --blocks=5 \\
        --html=reports/two.html

--blocks=N adds coherence where blocks of 2, 4 and 8 sentences are permuted, N permutations of each
document: as long as 3 N test perplexities.

DIR holds report.md, report.csv (a line a row, all numbers), report.tex (for the package booktabs),
report.json, the pictures, and in runs/ what was measured of each run: the same command measures
only runs that are new or have changed, so it can be stopped, and what was measured on other --data
or with other options is kept.

Coherence is most of the time: as long as --pool test perplexities (--pool=0, the paper's, as long
as --bootstrap of them), but little for rnnlm and codclm as they are; --bootstrap=0 leaves it out.

With --quick nothing is measured: one table of what training, evaluation and coherence have left in
each workdir, with a blank for what is missing and the command that would fill it, and with --output
the learning curves in DIR/learning_curves.png. Its --html is the page of that, which says what
would fill its other parts.

    python -m launch.evaluate  --workdir=RUN --split=test --output=RUN/perplexity.json
    python -m launch.coherence --workdir=RUN --split=test --output=RUN/coherence.json
    python -m launch.report    --quick --workdirs='runs/*' --output=DIR
"""

import contextlib
import hashlib
import importlib.metadata
import json
import platform
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from absl import flags

from dclm_jax import files, storage
from dclm_jax.coherence.measure import BLOCK_SIZES
from dclm_jax.errors import InputError
from dclm_jax.evaluation import adaptation, datasets
from dclm_jax.evaluation.permutations import Shuffle
from dclm_jax.experiments import (
    examples,
    grouping,
    measurement,
    page,
    pictures,
    plots,
    records,
    report,
    runs,
    summary,
    templates,
)
from dclm_jax.language_model import LanguageModel
from dclm_jax.training.config import flat
from dclm_jax.training.workdir import CORPUS_FILE, METRICS_FILE, RESULT_FILE
from launch import _adaptation, _app, _evaluation

_evaluation.define_workdirs()
# Those of tuning are refused.
for _flag in _adaptation.SETTINGS:
    flags.declare_key_flag(_flag.name)
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
_KEEP_FIRST = flags.DEFINE_integer(
    "keep_first", 0, "Sentences at the start of each document that coherence leaves in place."
)
_BLOCKS = flags.DEFINE_integer(
    "blocks",
    0,
    "Permutations of each document's blocks of 2, 4 and 8 sentences that test sets draw from; 0 "
    "leaves coherence by the size of blocks out.",
)
_SEED = flags.DEFINE_integer("seed", 0, "Seed of permutations and test sets.")
_BASELINE = flags.DEFINE_string(
    "baseline",
    None,
    "What rows are compared with: one of the runs, by its workdir, or a model, such as rnnlm, of "
    "which the run is taken that was trained alike. Default: rnnlm, in coherence drnnlm and hrnnlm "
    "as well.",
)
_HTML = flags.DEFINE_string("html", None, "Page to write as well: one file that needs no network.")
_RUNS = "runs"
_MARKDOWN = "report.md"
_OF_THE_RUN = ("version", "model")
_CURVES = "learning_curves.png"
_PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy")


def main(argv: Sequence[str]) -> None:
    del argv
    if flags.FLAGS.workdirs is None:
        raise InputError("--workdirs is missing; expected runs, separated by commas, or 'runs/*'")
    workdirs = _evaluation.expand_workdirs()
    if _OUTPUT.value or _HTML.value is not None:
        plots.check_target(_CURVES)
    if _HTML.value is not None:
        _require_place(_HTML.value)
    if _QUICK.value:
        _show(workdirs)
        return
    if not _OUTPUT.value:
        raise InputError("--output is missing; expected a directory to write, or --quick")
    for name, flag in (("bootstrap", _BOOTSTRAP), ("pool", _POOL), ("blocks", _BLOCKS)):
        if flag.value < 0 or flag.value == 1:
            raise InputError(f"--{name} is {flag.value}; expected 0, or 2 and more")
    for name, flag in (("keep_first", _KEEP_FIRST), ("seed", _SEED)):
        if flag.value < 0:
            raise InputError(f"--{name} is {flag.value}; expected 0 or more")
    _adaptation.check_settings()
    for flag in (_adaptation.TUNE_ON, _adaptation.TUNE_INPUT):
        if flag.present:
            raise InputError(f"--{flag.name}: a report tunes on the development set, valid")
    if _BLOCKS.value and not _BOOTSTRAP.value:
        raise InputError("--blocks needs test sets, and --bootstrap is 0; expected 2 and more")
    to_measure = _restore_all(workdirs)
    # What cannot be told apart, or compared, should be said before long work.
    _baselines(grouping.rows([run.known for run in to_measure]))
    output = storage.locate(_OUTPUT.value)
    # Before long work: there must be a place for it.
    with files.writing(output / _RUNS), storage.reaching(output):
        (output / _RUNS).mkdir(parents=True, exist_ok=True)
    rows = grouping.rows(_results(to_measure, output / _RUNS))
    baselines = _baselines(rows)
    to_draw = pictures.of_rows(rows, baselines)
    notes = [plots.draw(picture, output / name) for name, picture in to_draw.items()]
    undrawn = {name: plots.undrawn(picture) for name, picture in to_draw.items()}
    drawn = {name: picture.title for name, picture in to_draw.items() if not undrawn[name]}
    untold = [f"{name} is not drawn: {reason}." for name, reason in undrawn.items() if reason]
    if not _BOOTSTRAP.value:
        untold.append("Coherence was left out by --bootstrap=0; --bootstrap=1000 fills it in.")
    tables = report.tables(rows, baselines)
    files.write_json(output / "report.json", records.to_json(rows, baselines))
    for name, content in (
        ("report.csv", records.comma_separated(rows, baselines)),
        ("report.tex", report.latex(tables)),
        (_MARKDOWN, report.markdown(tables, drawn, untold)),
    ):
        with files.open_output(output / name) as file:
            file.write(content)
    print("\n".join([report.text(tables), *notes, f"report: {output / _MARKDOWN}"]))
    if _HTML.value is not None:
        models = {run.known["workdir"]: run.lm for run in to_measure}
        documents = to_measure[0].documents["test"]
        read = examples.read(rows, models, documents, baselines[0])
        sections = page.measured(rows, baselines, read, _how(to_measure))
        _write_page(_HTML.value, f"{len(rows)} configurations, {len(to_measure)} runs", sections)


def _require_place(path: str) -> None:
    """There must be a place for the page, and what makes it, before long work."""
    templates.environment()
    location = storage.locate(path)
    if path in ("", "-") or location.is_dir():
        raise InputError(f"--html is {path!r}; expected a file to write")
    with files.writing(location.parent), storage.reaching(location):
        location.parent.mkdir(parents=True, exist_ok=True)


def _write_page(path: str, subject: str, sections: Sequence[page.Section]) -> None:
    with files.open_output(path) as file:
        file.write(page.render("Report on document-context language models", subject, sections))
    print(f"page: {path}")


def _how(to_measure: Sequence["_Run"]) -> list[page.Part]:
    """How numbers were made, beside what is said of each."""
    first, *_ = to_measure
    data = _DATA.value or first.lm.config["data"]["directory"]
    run = f"--workdir={shlex.quote(first.known['workdir'])} --data={shlex.quote(str(data))}"
    options = first.identity["options"]
    drawn = f"--bootstrap={options['replicates']} --pool={options['pool']} --seed={options['seed']}"
    single = [
        f"python -m launch.evaluate --split=test {run}",
        f"python -m launch.coherence --split=test {run} --permutations=0 {drawn}"
        f" --keep_first={options['keep_first']}",
    ]
    facts = {
        "corpus": data,
        **{f"{name} documents": f"{len(split):,}" for name, split in first.documents.items()},
        "fingerprints of documents": first.identity["documents"],
        "fingerprint of the vocabulary": first.identity["vocabulary"],
        **options,
        "version of measurements": measurement.VERSION,
    }
    return [
        page.Commands("This page", [_command()]),
        page.Commands("Single numbers, of the first run", single),
        page.Facts("Measured on, and with", facts),
        _versions(),
    ]


def _command() -> str:
    return shlex.join(["python", "-m", "launch.report", *sys.argv[1:]])


def _versions() -> page.Facts:
    packages = {name: importlib.metadata.version(name) for name in _PACKAGES}
    return page.Facts("Versions", {"Python": platform.python_version(), **packages})


def _baselines(rows: Sequence[grouping.Row]) -> Sequence[str]:
    """What --baseline names: a row by the workdir of one of its runs, or a model."""
    value = _BASELINE.value
    if value is None:
        return grouping.BASELINES
    for row in rows:
        if any(storage.resolve(one["workdir"]) == storage.resolve(value) for one in row.results):
            return (row.label,)
    models = sorted({row.model for row in rows})
    if value not in models:
        raise InputError(
            f"--baseline is {value}; expected one of --workdirs, or of the models "
            + ", ".join(models)
        )
    return (value,)


def _show(workdirs: Sequence[str]) -> None:
    measuring = (_DATA, _BOOTSTRAP, _POOL, _BLOCKS, _KEEP_FIRST, _SEED, _BASELINE)
    tuning = (_adaptation.TUNE_ON, _adaptation.TUNE_INPUT)
    for flag in (*measuring, *_adaptation.SETTINGS, *tuning):
        if flag.present:
            raise InputError(f"--{flag.name} says how to measure; --quick measures nothing")
    finished = runs.read_runs(workdirs)
    print(summary.text(finished))
    if _OUTPUT.value:
        path = storage.locate(_OUTPUT.value) / _CURVES
        print(plots.draw(pictures.learning_curves(finished), path))
    if _HTML.value is not None:
        made = [page.Commands("This page", [_command()]), _versions()]
        _write_page(_HTML.value, f"{len(finished)} runs, as they are", page.quick(finished, made))


class _Run(NamedTuple):
    """A run to measure: its model, its documents, what tells it from others, and what is known
    without a measurement."""

    lm: LanguageModel
    documents: dict[str, list[list[Any]]]
    identity: dict[str, Any]
    known: dict[str, Any]


def _restore_all(workdirs: Sequence[str]) -> list[_Run]:
    """All runs, which can be reported together."""
    models = [run.lm for run in _evaluation.restore_all()]
    _evaluation.require_language_models(models, "launch.report")
    for kind in _adaptation.ADAPT.value:
        obstacles = [adaptation.obstacle(lm, kind) for lm in models]
        if all(obstacles):
            raise InputError(f"--adapt={kind}: each of the runs {obstacles[0]}")
    vocabulary = models[0].vocabulary
    data = _DATA.value or models[0].config["data"]["directory"]
    splits = {split: datasets.open_split(vocabulary, data, split) for split in ("valid", "test")}
    documents = {
        split: [document.sentences for document in opened.documents]
        for split, opened in splits.items()
    }
    measured_on = {
        "vocabulary": vocabulary.fingerprint,
        "documents": {name: measurement.fingerprint(split) for name, split in documents.items()},
        "options": {
            "replicates": _BOOTSTRAP.value,
            "pool": _POOL.value,
            "keep_first": _KEEP_FIRST.value,
            "seed": _SEED.value,
        },
    }
    restored = []
    for workdir, lm in zip(workdirs, models, strict=True):
        of = {"version": measurement.VERSION, "model": measurement.model_fingerprint(lm)}
        restored.append(_Run(lm, documents, {**of, **measured_on}, _known(workdir, lm)))
    return restored


def _known(workdir: str, lm: LanguageModel) -> dict[str, Any]:
    """What is known of a run without a measurement; an n-gram model was not trained in steps."""
    known = {
        "workdir": workdir,
        "parameters": lm.num_parameters,
        "objective": lm.scorer.objective,
        "own_oov_rate": lm.text.unknown_rates.get("test"),
        "step": lm.step,
        "config": flat(lm.config),
        "training_text": None,
        "seconds": None,
        "curve": [],
        "unfinished": False,
    }
    wanted = {METRICS_FILE, CORPUS_FILE, RESULT_FILE}
    with storage.fetched(workdir, wanted.intersection) as folder:
        if (folder / CORPUS_FILE).exists():
            with files.reading(folder / CORPUS_FILE):
                known["training_text"] = storage.file_sha256(folder / CORPUS_FILE)[:8]
        if (folder / METRICS_FILE).exists():
            curve, seconds = runs.read_curve(folder)
            known["seconds"] = round(seconds)
            known["curve"] = [[one.step, one.perplexity] for one in curve]
            known["unfinished"] = not (folder / RESULT_FILE).exists()
    if known["unfinished"]:
        print(f"note: {workdir} is not trained to its end; step {lm.step} is measured")
    return known


def _results(to_measure: Sequence[_Run], folder: storage.Location) -> list[dict[str, Any]]:
    """What was measured of all runs; coherence with the first sentence kept as well where that
    alone decides."""
    results = []
    for run in to_measure:
        options = run.identity["options"]
        measure = partial(measurement.measure, run.lm.scorer, **run.documents, **options)
        result = {**_kept(run, folder, run.identity, measure), **run.known}
        result["test"] = {**result["test"], "own_oov_rate": run.known["own_oov_rate"]}
        results.append(result)
    test = to_measure[0].documents["test"]
    if report.first_decides(results) and max(map(len, test)) >= 3:
        print("the first sentence gives documents away: coherence is measured with it kept as well")
        for run, result in zip(to_measure, results, strict=True):
            result["first_kept"] = _coherence(run, folder, keep_first=1)
    if _BLOCKS.value:
        shuffles = [Shuffle(size, fix_first=_KEEP_FIRST.value) for size in BLOCK_SIZES[1:]]
        sizes = [shuffle.block for shuffle in shuffles if any(map(shuffle.fits, test))]
        for run, result in zip(to_measure, results, strict=True):
            result["blocks"] = {
                str(size): _coherence(run, folder, block=size, pool=_BLOCKS.value) for size in sizes
            }
    named = [
        _evaluation.Subject(run.known["workdir"], run.known["workdir"], run.lm)
        for run in to_measure
    ]
    for run, result, one in zip(to_measure, results, named, strict=True):
        result["adapted"] = {
            kind: _adapted(run, folder, kind, partial(_adaptation.adapt_run, one, kind, named[:1]))
            for kind in _adaptation.ADAPT.value
            if not adaptation.obstacle(one.lm, kind)
        }
    return results


def _adapted(
    run: _Run, folder: storage.Location, kind: str, adapt: Callable[[], _evaluation.Subject]
) -> dict[str, Any]:
    """What is measured of a run that adapts itself."""

    def measure(on_document: Callable[[int, int], None]) -> dict[str, Any]:
        lm, test, options = adapt().lm, run.documents["test"], run.identity["options"]
        measured = measurement.measure_adapted(lm.scorer, test, on_document=on_document, **options)
        return {"setting": lm.adaptation.setting if lm.adaptation else {}, **measured}

    identity = {**run.identity, "adapt": _adaptation.identity(kind)}
    return _kept(run, folder, identity, measure, f" + {kind}")


def _coherence(run: _Run, folder: storage.Location, block: int = 1, **other: int) -> dict[str, Any]:
    """Coherence alone, with other options than those of the run."""
    options = {**run.identity["options"], **other}
    identity = {**run.identity, "options": options, "coherence_alone": True}
    # Without blocks the identity is the one of older measurements, which had none.
    identity |= {"block": block} if block > 1 else {}
    measure = partial(
        measurement.measure_coherence, run.lm.scorer, run.documents["test"], block=block, **options
    )
    return _kept(run, folder, identity, measure)


def _kept(
    run: _Run,
    folder: storage.Location,
    identity: dict[str, Any],
    measure: Callable[..., Any],
    way: str = "",
) -> dict[str, Any]:
    """What `measure` gives, now or in an earlier call; `way` tells it from others of the run."""
    workdir = run.known["workdir"]
    told = f"{workdir}{way}"
    place = storage.resolve(workdir)
    # On other documents or with other options it is kept beside this one: a quick look loses
    # nothing that took hours.
    others = {key: value for key, value in identity.items() if key not in _OF_THE_RUN}
    name = hashlib.sha256(json.dumps([str(place), others]).encode()).hexdigest()[:8]
    kept = folder / f"{place.name}-{name}.json"
    # One that is damaged is made again.
    with contextlib.suppress(InputError):
        result = measurement.read(kept, identity, len(run.documents["test"]))
        print(f"{told}: measured before", flush=True)
        return result
    start = time.monotonic()
    with _evaluation.Progress(told) as progress:
        result = measure(on_document=progress)
    measurement.keep(kept, identity, result)
    print(f"{told}: measured in {time.monotonic() - start:.0f} s", flush=True)
    return result


if __name__ == "__main__":
    _app.run(main)
