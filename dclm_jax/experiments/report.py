"""A report on runs: tables, figures and all numbers of what is measured of them, and a page."""

import dataclasses
import functools
import importlib.metadata
import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dclm_jax import files, storage
from dclm_jax.errors import InputError
from dclm_jax.evaluation import adaptation, context_ablation, datasets
from dclm_jax.evaluation.perplexity import COUNTING_RULES
from dclm_jax.experiments import comparison, examples, figures, html, results, tables
from dclm_jax.experiments.comparison import Row
from dclm_jax.experiments.figures import Figure
from dclm_jax.experiments.results import Run, Split
from dclm_jax.experiments.subjects import Subject
from dclm_jax.tables import Table

MARKDOWN = "report.md"
_PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy")


@dataclasses.dataclass(frozen=True)
class Options:
    """What to measure.

    Attributes:
      bootstrap: test sets of coherence; 0 leaves it out.
      permutation_pool: permutations of each document that test sets draw from; 0: each draw has
        its own.
      fix_first: sentences at the start of each document that coherence leaves in place.
      seed: random seed for permutations, test sets and the context ablation.
      adaptations: settings of test-time adaptation by kind, see `evaluation.adaptation`.
    """

    bootstrap: int = 1000
    permutation_pool: int = 50
    fix_first: int = 0
    seed: int = 0
    adaptations: Mapping[str, adaptation.Setting] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("bootstrap", "permutation_pool"):
            value = getattr(self, name)
            if value < 0 or value == 1:
                raise InputError(f"--{name} is {value}; expected 0, or 2 and more")
        for name in ("fix_first", "seed"):
            if getattr(self, name) < 0:
                raise InputError(f"--{name} is {getattr(self, name)}; expected 0 or more")

    @property
    def coherence(self) -> dict[str, int]:
        """The options of `results.COHERENCE`."""
        return {
            "replicates": self.bootstrap,
            "pool": self.permutation_pool,
            "keep_first": self.fix_first,
            "seed": self.seed,
        }


def open_runs(subjects: Sequence[Subject], options: Options, data: str | None = None) -> list[Run]:
    """Runs of one vocabulary with the documents to measure them on, if they can be measured.

    Args:
      subjects: the runs.
      options: what to measure.
      data: the prepared corpus; by default that of the first run.
    """
    for kind in options.adaptations:
        obstacles = [adaptation.obstacle(subject.lm, kind) for subject in subjects]
        if all(obstacles):
            raise InputError(f"--adapt={kind}: each of the runs {obstacles[0]}")
    first = subjects[0].lm
    directory = data or first.config["data"]["directory"]
    splits = {}
    for split in ("valid", "test"):
        opened = datasets.open_split(first.vocabulary, directory, split)
        splits[split] = Split.of([document.sentences for document in opened.documents])
    return [Run(subject.workdir, subject.lm, directory, splits) for subject in subjects]


def measure(
    runs: Sequence[Run], options: Options, measured: Callable[..., dict[str, Any] | None]
) -> list[dict[str, Any]]:
    """The facts of runs and what is measured of them, None for what is not.

    Args:
      runs: on the same documents.
      options: what to measure.
      measured: `results.measured`, or a partial of it.
    """
    all_results = [_measure(run, options, measured) for run in runs]
    documents = runs[0].splits["test"].documents
    if tables.first_decides(all_results) and max(map(len, documents)) >= 3:
        first_kept = options.coherence | {"keep_first": 1}
        for run, result in zip(runs, all_results, strict=True):
            result["first_kept"] = measured(run, results.COHERENCE, first_kept)
    for run, result in zip(runs, all_results, strict=True):
        result["adapted"] = {
            kind: measured(
                run,
                results.ADAPTED,
                {
                    "adapt": {
                        "kind": kind,
                        "setting": setting,
                        "grid": adaptation.GRIDS[kind],
                        "tuned_on": run.splits["valid"].fingerprint,
                    },
                    **options.coherence,
                },
            )
            for kind, setting in options.adaptations.items()
            if not adaptation.obstacle(run.lm, kind)
        }
    return all_results


def _measure(
    run: Run, options: Options, measured: Callable[..., dict[str, Any] | None]
) -> dict[str, Any]:
    known = results.facts(run)
    valid = measured(run, results.PERPLEXITY, {}, split="valid")
    context = measured(run, results.CONTEXT, {"seed": options.seed})
    positions = measured(run, results.POSITIONS, {})
    test = arrangements = None
    if positions is not None:
        test = {**positions["perplexity"], "own_oov_rate": known["own_oov_rate"]}
        arrangements = context and {"own": test["perplexity"], **context}
    coherence = measured(run, results.COHERENCE, options.coherence) if options.bootstrap else None
    return {
        **known,
        "valid": valid,
        "test": test,
        "arrangements": arrangements,
        **{
            name: positions and positions[name]
            for name in (*context_ablation.PLACES, "by_document")
        },
        "coherence": coherence,
    }


def baselines_of(rows: Sequence[Row], value: str | None) -> Sequence[str]:
    """The baselines that a value of --baseline names: a row by the work directory of one of its
    runs, or a model."""
    if value is None:
        return comparison.BASELINES
    for row in rows:
        workdirs = [storage.resolve(result["workdir"]) for result in row.results]
        if storage.resolve(value) in workdirs:
            return (row.label,)
    models = sorted({row.model for row in rows})
    if value not in models:
        raise InputError(
            f"--baseline is {value}; expected one of --workdirs, or of the models "
            + ", ".join(models)
        )
    return (value,)


@dataclasses.dataclass(frozen=True)
class Report:
    """Rows of results and the baselines that they are compared with."""

    rows: Sequence[Row]
    baselines: Sequence[str]
    notes: Sequence[str] = ()

    @functools.cached_property
    def tables(self) -> dict[str, Table]:
        """The tables by name."""
        return tables.tables(self.rows, self.baselines)

    @functools.cached_property
    def figures(self) -> dict[str, Figure]:
        """The figures by name."""
        return figures.of_rows(self.rows, self.baselines)

    def text(self) -> str:
        """The tables for a terminal."""
        return "\n\n".join(table.text() for table in self.tables.values())

    def write(self, output: storage.Location) -> list[str]:
        """Writes report.md, report.csv, report.tex, report.json and the figures into a folder, and
        returns a line for each figure."""
        drawn = self.figures.items()
        lines = [figures.draw(figure, output / f"{name}.png") for name, figure in drawn]
        files.write_json(output / "report.json", tables.to_json(self.rows, self.baselines))
        for name, content in (
            ("report.csv", tables.comma_separated(self.rows, self.baselines)),
            ("report.tex", self._latex()),
            (MARKDOWN, self._markdown()),
        ):
            with files.open_output(output / name) as file:
                file.write(content)
        return lines

    def _markdown(self) -> str:
        parts = [table.markdown() for table in self.tables.values()]
        # The figures of the paper.
        names = [name for name in self.figures if name != "learning_curves"]
        undrawn = {name: self.figures[name].undrawn for name in names}
        parts += [f"![{self.figures[n].title}]({n}.png)" for n in names if not undrawn[n]]
        parts += [f"{n}.png is not drawn: {undrawn[n]}." for n in names if undrawn[n]]
        return "\n\n".join([*parts, *self.notes]) + "\n"

    def _latex(self) -> str:
        parts = ["% \\usepackage{booktabs}", *(table.latex() for table in self.tables.values())]
        return "\n\n".join(parts) + "\n"

    def html(
        self, runs: Sequence[Run], provenance: Mapping[str, Any], *, read_examples: bool = True
    ) -> str:
        """The report as one page.

        Args:
          runs: that were measured.
          provenance: how the numbers were made, see `html.Report`.
          read_examples: whether to score some documents word by word.
        """
        documents = runs[0].splits["test"].documents
        models = {run.workdir: run.lm for run in runs}
        return html.report(
            html.Report(
                "Report on document-context language models",
                f"{len(self.rows)} configurations, {len(runs)} runs",
                {row.label: row.config for row in self.rows},
                self.tables,
                self.figures,
                examples.read(self.rows, models, documents, self.baselines[0])
                if read_examples
                else [],
                COUNTING_RULES[runs[0].lm.scorer.objective],
                tables.runs_table(self.rows),
                provenance,
            )
        )


def provenance(runs: Sequence[Run], options: Options, command: str) -> dict[str, Any]:
    """How the numbers of a report were made: commands, and facts by name."""
    first = runs[0]
    run = f"--workdir={first.workdir} --data={first.data}"
    drawn = f"--bootstrap={options.bootstrap} --permutation_pool={options.permutation_pool}"
    splits = first.splits.items()
    return {
        "This page": [command],
        "Single numbers, of the first run": [
            f"python -m launch.evaluate --split=test {run}",
            f"python -m launch.coherence --split=test {run} --permutations=0 {drawn}"
            f" --seed={options.seed} --fix_first={options.fix_first}",
        ],
        "Measured on, and with": {
            "corpus": first.data,
            **{f"{name} documents": f"{len(split.documents):,}" for name, split in splits},
            **{f"fingerprint of {name} documents": split.fingerprint for name, split in splits},
            "fingerprint of the vocabulary": first.lm.vocabulary.fingerprint,
            **options.coherence,
            "version of measurements": results.VERSION,
        },
        "Versions": {
            "Python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in _PACKAGES},
        },
    }
