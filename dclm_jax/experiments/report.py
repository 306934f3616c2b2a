"""A report on runs: tables, figures, all measured numbers, and an HTML report."""

import dataclasses
import functools
import importlib.metadata
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dclm_jax import files, storage
from dclm_jax.coherence.compare import Bootstrap, FirstSentence
from dclm_jax.errors import InputError
from dclm_jax.evaluation import adaptation, measures
from dclm_jax.evaluation.datasets import Dataset, open_split
from dclm_jax.evaluation.permutations import Shuffle
from dclm_jax.evaluation.perplexity import COUNTING_RULES
from dclm_jax.experiments import comparison, examples, figures, html, results, tables
from dclm_jax.experiments.comparison import Row, without
from dclm_jax.experiments.figures import Figure
from dclm_jax.experiments.results import Store
from dclm_jax.experiments.subjects import (
    Subject,
    expand_workdirs,
    matmul_precision,
    restore_all,
)
from dclm_jax.tables import Table

MARKDOWN = "report.md"
_IN_PROSE = {"valid": "validation", "test": "test"}
_PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy")


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of a report's measurements.

    Attributes:
      bootstrap: number of resampled test sets for coherence; 0 skips coherence.
      permutation_pool: number of permutations per document from which test sets draw; 0 shuffles
        every draw.
      fix_first: number of sentences at the start of each document that are not permuted.
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
                raise InputError(f"--{name} is {value}; choose 0, or 2 or more")
        for name in ("fix_first", "seed"):
            if getattr(self, name) < 0:
                raise InputError(f"--{name} is {getattr(self, name)}; choose 0 or more")


@dataclasses.dataclass(frozen=True)
class Request:
    """A request for a report, checked for errors.

    Attributes:
      subjects: runs of one vocabulary.
      splits: splits "valid" and "test" of the prepared corpus.
      options: options of the measurements.
      baseline: a run or a model with which rows are compared, see `baselines_of`.
    """

    subjects: Sequence[Subject]
    splits: Mapping[str, Dataset]
    options: Options
    baseline: str | None = None

    @classmethod
    def of(
        cls,
        subjects: Sequence[Subject],
        options: Options,
        *,
        data: str | None = None,
        baseline: str | None = None,
    ) -> "Request":
        """Checks that the runs can be measured and compared; `data` is by default the training
        corpus of the first run."""
        for subject in subjects:
            subject.lm.require_language_model("a report")
        for kind in options.adaptations:
            obstacles = [adaptation.obstacle(subject.lm, kind) for subject in subjects]
            if all(obstacles):
                raise InputError(f"--adapt={kind}: each run {obstacles[0]}")
        first = subjects[0].lm
        directory = data or first.config["data"]["directory"]
        names = "valid", "test"
        splits = {name: open_split(first.vocabulary, directory, name) for name in names}
        request = cls(subjects, splits, options, baseline)
        baselines_of(comparison.rows(request.facts), baseline)
        return request

    @functools.cached_property
    def facts(self) -> list[dict[str, Any]]:
        """Facts of the runs that need no measurement."""
        return list(map(results.facts, self.subjects))

    @property
    def notes(self) -> list[str]:
        """Lines about runs whose training is not finished."""
        return [
            f"note: training of {known['workdir']} is unfinished; results are from step "
            f"{known['step']}"
            for known in self.facts
            if known["unfinished"]
        ]

    def measured(self, store: Store) -> "Report":
        """The report; results that the store lacks are measured."""
        rows = comparison.rows(measure(self, store))
        notes = [*filter(None, [matmul_precision(self.subjects)])]
        if not self.options.bootstrap:
            notes.append("--bootstrap=0 skipped coherence; --bootstrap=1000 measures it.")
        return Report(rows, baselines_of(rows, self.baseline), notes)

    def write_page(
        self, path: str, report: "Report", command: str, *, read_examples: bool = True
    ) -> None:
        """Writes the HTML report.

        Args:
          path: path of the file.
          report: the measurements.
          command: the command that makes the report.
          read_examples: whether to score some documents word by word.
        """
        documents = self.splits["test"].sentences
        models = {subject.workdir: subject.lm for subject in self.subjects}
        content = html.Report(
            "Report on document-context language models",
            f"{tables.counted(len(report.rows), 'configuration')}, "
            f"{tables.counted(len(self.subjects), 'run')}",
            {row.label: row.config for row in report.rows},
            report.tables,
            report.figures,
            examples.read(report.rows, models, documents, report.baselines[0])
            if read_examples
            else [],
            COUNTING_RULES[self.facts[0]["objective"]],
            tables.runs_table(report.rows),
            self._provenance(command),
        )
        with files.open_output(path) as file:
            file.write(html.report(content))

    def _provenance(self, command: str) -> dict[str, Any]:
        """The origin of the numbers: commands, and facts by name."""
        subject, options, splits = self.subjects[0], self.options, self.splits.items()
        directory = self.splits["test"].source["data"]
        run = f"--workdir={subject.workdir} --data={directory}"
        drawn = f"--bootstrap={options.bootstrap} --permutation_pool={options.permutation_pool}"
        return {
            "This report": [command],
            "Numbers of the first run": [
                f"python -m launch.evaluate --split=test {run}",
                f"python -m launch.coherence --split=test {run} --permutations=0 {drawn}"
                f" --seed={options.seed} --fix_first={options.fix_first}",
            ],
            "Data and options": {
                "corpus": directory,
                **{
                    f"{_IN_PROSE[name]} documents": f"{len(split.sentences):,}"
                    for name, split in splits
                },
                **{
                    f"fingerprint of the {_IN_PROSE[name]} documents": split.fingerprint
                    for name, split in splits
                },
                "fingerprint of the vocabulary": subject.lm.vocabulary.fingerprint,
                "matmul precision": subject.lm.matmul_precision,
                **without(dataclasses.asdict(options), ["adaptations"]),
            },
            "Versions": {
                "Python": platform.python_version(),
                **{name: importlib.metadata.version(name) for name in _PACKAGES},
                "measurements": results.VERSION,
            },
        }


def report(
    workdirs: storage.PathLike | Iterable[storage.PathLike],
    output: storage.PathLike | None = None,
    *,
    page: storage.PathLike | None = None,
    data: str | None = None,
    baseline: str | None = None,
    quick: bool = False,
    **options: Any,
) -> "Report":
    """A report on trained runs, as from `launch.report`.

    Args:
      workdirs: workdirs of the runs; a pattern such as "runs/*" stands for all matching runs.
      output: directory to write.
      page: HTML file to write.
      data: prepared corpus; by default the corpus that the first run was trained on.
      baseline: the workdir of a run, or a model, with which all other runs are compared.
      quick: whether to use only saved results, and to measure nothing.
      **options: attributes of `Options`, such as bootstrap=100.
    """
    if isinstance(workdirs, str | os.PathLike):
        workdirs = [workdirs]
    subjects = restore_all(expand_workdirs(map(str, workdirs)))
    request = Request.of(subjects, Options(**options), data=data, baseline=baseline)
    require_places(output, page)
    made = request.measured(Store(compute=not quick))
    if output is not None:
        made.write(storage.locate(output))
    if page is not None:
        request.write_page(str(page), made, "dclm_jax.report", read_examples=not quick)
    return made


def require_places(output: storage.PathLike | None, page: storage.PathLike | None) -> None:
    """Makes the folders of the output, and refuses output that cannot be written or drawn."""
    if output is not None or page is not None:
        figures.check_target("figure.png")
    folders = []
    if page is not None:
        html.environment()
        path = storage.locate(page)
        if str(page) in ("", files.STDOUT) or path.is_dir():
            raise InputError(f"--html is {str(page)!r}; choose a file to write")
        folders.append(path.parent)
    if output is not None:
        if str(output) in ("", files.STDOUT):
            raise InputError(f"--output is {str(output)!r}; choose a directory to write")
        folders.append(storage.locate(output))
    for folder in folders:
        with files.writing(folder), storage.reaching(folder):
            folder.mkdir(parents=True, exist_ok=True)


def measure(request: Request, store: Store) -> list[dict[str, Any]]:
    """The facts and measurements of runs; None for missing measurements."""
    subjects, options = request.subjects, request.options
    valid, test = request.splits["valid"], request.splits["test"]
    all_results = [
        known | _measure(subject, valid, test, options, store)
        for subject, known in zip(subjects, request.facts, strict=True)
    ]
    if tables.first_decides(all_results) and max(map(len, test.sentences)) >= 3:
        first_fixed = dataclasses.replace(options, fix_first=1)
        for subject, result in zip(subjects, all_results, strict=True):
            result["first_kept"] = _coherence(subject, test, first_fixed, store)
    for subject, result in zip(subjects, all_results, strict=True):
        result["adapted"] = {}
        for kind, setting in options.adaptations.items():
            if not adaptation.obstacle(subject.lm, kind):
                adapted = store.adapted(subject, kind, setting, valid, valid.source["data"])
                measured = adapted and _adapted(adapted, test, options, store)
                result["adapted"][kind] = measured
    return all_results


def _measure(
    subject: Subject, valid: Dataset, test: Dataset, options: Options, store: Store
) -> dict[str, Any]:
    tested = store.targets(subject, test) or {}
    validated = store.targets(subject, valid) or {}
    context = store.context(subject, test, options.seed)
    perplexity = tested.get(results.PERPLEXITY)
    own_oov_rate = subject.lm.text.unknown_rates.get("test")
    return {
        "valid": validated.get(results.PERPLEXITY),
        "test": perplexity and {**perplexity, "own_oov_rate": own_oov_rate},
        "arrangements": perplexity and context and {"own": perplexity["perplexity"], **context},
        **{kind.name: tested.get(kind.name) for kind in measures.MEASURES},
        "coherence": _coherence(subject, test, options, store) if options.bootstrap else None,
    }


def _adapted(
    subject: Subject, test: Dataset, options: Options, store: Store
) -> dict[str, Any] | None:
    tested = store.targets(subject, test)
    return tested and {
        "setting": subject.lm.adaptation and subject.lm.adaptation.setting,
        "test": tested[results.PERPLEXITY],
        "coherence": _coherence(subject, test, options, store) if options.bootstrap else None,
    }


def _coherence(
    subject: Subject, test: Dataset, options: Options, store: Store
) -> dict[str, Any] | None:
    """The bootstrap result and, if no sentence is fixed, the accuracy with only the first sentence
    moved."""
    shuffle = Shuffle(fix_first=options.fix_first)
    bootstrap = Bootstrap(shuffle, options.seed, options.bootstrap, options.permutation_pool)
    drawn = store.order_test(subject, test, bootstrap)
    if drawn is None:
        return None
    if not options.fix_first:
        first = store.order_test(subject, test, FirstSentence(seed=options.seed))
        if first is None:
            return None
        return dataclasses.replace(drawn.result, first_sentence=first.result).to_json()
    return drawn.result.to_json()


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
            f"--baseline is {value}; choose a run of --workdirs, or one of the models "
            + ", ".join(models)
        )
    return (value,)


@dataclasses.dataclass(frozen=True)
class Report:
    """Rows of results, and the baselines with which they are compared."""

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
        """The tables and notes for a terminal."""
        return "\n\n".join([*(table.text() for table in self.tables.values()), *self.notes])

    def write(self, output: storage.Location) -> list[str]:
        """Writes report.md, report.csv, report.tex, report.json and the figures into a folder, and
        returns a line for each figure."""
        drawn = self.figures.items()
        lines = [figures.draw(figure, output / f"{name}.png") for name, figure in drawn]
        files.write_json(output / "report.json", tables.to_json(self.rows, self.baselines))
        for name, content in (
            ("report.csv", tables.comma_separated(self.rows, self.tables)),
            ("report.tex", self._latex()),
            (MARKDOWN, self._markdown()),
        ):
            with files.open_output(output / name) as file:
                file.write(content)
        return lines

    def _markdown(self) -> str:
        parts = [table.markdown() for table in self.tables.values()]
        # The figures of Ji et al. (2015).
        names = [name for name in self.figures if name != "learning_curves"]
        undrawn = {name: self.figures[name].undrawn for name in names}
        parts += [f"![{self.figures[n].title}]({n}.png)" for n in names if not undrawn[n]]
        parts += [f"{n}.png is not drawn: {undrawn[n]}." for n in names if undrawn[n]]
        return "\n\n".join([*parts, *self.notes]) + "\n"

    def _latex(self) -> str:
        parts = ["% \\usepackage{booktabs}", *(table.latex() for table in self.tables.values())]
        return "\n\n".join(parts) + "\n"
