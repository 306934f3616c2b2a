"""Measures trained runs and writes the tables and figures of the DCLM paper (Ji et al. 2015).

    python -m launch.report --output=reports/ptb \\
        --workdirs=runs/ptb/rnnlm-0,runs/ptb/rnnlm-1,runs/ptb/ccdclm-0,runs/ptb/ccdclm-1

Runs that differ in nothing but training.seed are one row: means and standard deviations over seeds.
All runs are measured on the same corpus: development and test perplexity (Table 2), with z-tests
against rnnlm; bootstrap coherence (Table 3), with z-tests against the baselines; perplexity with
the context exchanged or removed; perplexity by position in the sentence and in the document.
Where a model was trained with several segment lengths L, their learning curves are drawn as well
(Figure 3).

DIR holds report.md, report.json (every row), the pictures, and in runs/ what was measured of each
run: the same command measures only runs that are new or have changed, so it can be stopped.

Coherence is most of the time: as long as --pool test perplexities (--pool=0, the paper's, as long
as --bootstrap of them), but little for rnnlm and codclm.
"""

import dataclasses
import hashlib
import json
import time
from collections.abc import Sequence
from typing import Any

from absl import flags

import dclm_jax
from dclm_jax import storage
from dclm_jax.errors import InputError
from dclm_jax.evaluation import compare, inputs, outputs, plots, report
from dclm_jax.language_model import LanguageModel
from dclm_jax.training.config import flat
from launch import _app, _evaluation

_WORKDIRS = flags.DEFINE_list("workdirs", None, "Trained runs, separated by commas.", required=True)
_OUTPUT = flags.DEFINE_string("output", None, "Directory to write.", required=True)
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


def main(argv: Sequence[str]) -> None:
    del argv
    for name, value in (("bootstrap", _BOOTSTRAP), ("pool", _POOL), ("seed", _SEED)):
        if value.value < 0:
            raise InputError(f"--{name} is {value.value}; expected 0 or more")
    plots.check_target("report.png")
    output = storage.locate(_OUTPUT.value)
    rows = report.rows([_result(workdir.strip(), output) for workdir in _WORKDIRS.value])
    pictures = _draw(rows, output)
    outputs.write_json(output / "report.json", report.to_json(rows))
    with outputs.open_output(output / "report.md") as file:
        file.write(report.markdown(rows, pictures))
    print(report.text(rows))
    print(f"report: {output / 'report.md'}")


def _result(workdir: str, output: storage.Location) -> dict[str, Any]:
    """What was measured of a run, now or by an earlier call."""
    lm = dclm_jax.restore(workdir)
    data = _DATA.value or lm.config["data"]["directory"]
    documents = {split: _documents(lm, data, split) for split in ("valid", "test")}
    options = report.Options(_BOOTSTRAP.value, _POOL.value, _SEED.value)
    identity = {
        "model": report.identity(lm.config),
        "step": lm.step,
        "documents": {name: report.fingerprint(split) for name, split in documents.items()},
        "options": dataclasses.asdict(options),
    }
    place = storage.resolve(workdir)
    name = hashlib.sha256(str(place).encode()).hexdigest()[:8]
    kept = output / _RUNS / f"{place.name}-{name}.json"
    result = _read(kept)
    if result.get("identity") == identity:
        print(f"{workdir}: measured before", flush=True)
        return result
    start = time.monotonic()
    with _evaluation.Progress(workdir) as progress:
        measured = report.measure(lm.scorer, **documents, options=options, on_document=progress)
    result = {
        "identity": identity,
        "workdir": workdir,
        "parameters": lm.num_parameters,
        "step": lm.step,
        "config": dict(flat(lm.config)),
        **_training(workdir),
        **measured,
    }
    outputs.write_json(kept, result)
    print(f"{workdir}: measured in {time.monotonic() - start:.0f} s", flush=True)
    return result


def _read(kept: storage.Location) -> dict[str, Any]:
    """An earlier measurement; nothing if it is absent or damaged, and is to be made again."""
    with storage.reaching(kept):
        content = kept.read_bytes() if kept.is_file() else b""
    try:
        result = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return result if isinstance(result, dict) else {}


def _documents(lm: LanguageModel, data: str, split: str) -> list[list[Any]]:
    opened = inputs.open_split(lm.vocabulary, data, split)
    return [document.sentences for document in opened.documents]


def _training(workdir: str) -> dict[str, Any]:
    """Seconds and learning curve; an n-gram model has none."""
    with storage.fetched(workdir, {compare.METRICS_FILE}.intersection) as folder:
        if not (folder / compare.METRICS_FILE).exists():
            return {"seconds": None, "curve": []}
        curve, seconds = compare.read_curve(folder)
    return {"seconds": round(seconds), "curve": [[one.step, one.perplexity] for one in curve]}


def _draw(rows: Sequence[report.Row], output: storage.Location) -> dict[str, str]:
    """Draws what there is to draw; file names by title."""
    pictures = {}
    for place, title in report.PLACES.items():
        curves = [
            plots.Curve(row.label, range(len(report.BOUNDS)), report.by_range(row, place))
            for row in rows
        ]
        pictures[title] = f"{place}.png"
        plots.plot_curves(
            curves,
            output / pictures[title],
            title=title,
            x="position",
            y="test perplexity",
            ticks=report.ranges(),
        )
    lengths = report.length_curves(rows)
    if lengths:
        title = "Development log-likelihood by updates (Figure 3)"
        pictures[title] = "segment_length.png"
        plots.plot_curves(
            lengths,
            output / pictures[title],
            title=title,
            x="updates",
            y="nats a token",
        )
    return pictures


if __name__ == "__main__":
    _app.run(main)
