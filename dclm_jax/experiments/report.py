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
from dclm_jax.experiments import comparison, examples, figures, html, results, tables
from dclm_jax.experiments.comparison import Row, without
from dclm_jax.experiments.figures import Figure
from dclm_jax.experiments.results import Store
from dclm_jax.experiments.subjects import (
    Subject,
    directory_of,
    expand_workdirs,
    matmul_precision,
    restore_all,
)
from dclm_jax.experiments.verdict import verdicts
from dclm_jax.log import job_logger, logger
from dclm_jax.tables import Table
from dclm_jax.text_scorer import TextScorer

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
      fix_first: number of sentences at the start of each document that stay in place.
      seed: random seed for permutations, test sets and the context ablation.
      adaptations: settings of test-time adaptation by kind, see `evaluation.adaptation`.
      data: prepared corpus. Default: the training corpus of the first run.
      baseline: baseline of all rows: the workdir of one of the runs, or a model, such as rnnlm,
        trained with the same recipe. Default: rnnlm for perplexity; rnnlm, drnnlm and hrnnlm for
        coherence.
    """

    bootstrap: int = 1000
    permutation_pool: int = 50
    fix_first: int = 0
    seed: int = 0
    adaptations: Mapping[str, adaptation.Setting] = dataclasses.field(default_factory=dict)
    data: str | None = None
    baseline: str | None = None

    def __post_init__(self) -> None:
        if self.bootstrap < 0 or self.bootstrap == 1:
            raise InputError(f"--bootstrap is {self.bootstrap}; choose 0, or 2 or more")
        # The test checks its options, also if coherence is skipped.
        self.bootstrap_test()

    def bootstrap_test(self) -> Bootstrap:
        """The test of coherence; of one test set if coherence is skipped."""
        shuffle = Shuffle(fix_first=self.fix_first)
        return Bootstrap(shuffle, self.seed, self.bootstrap or 1, self.permutation_pool)


def report(
    workdirs: storage.PathLike | Iterable[storage.PathLike],
    output: storage.PathLike | None = None,
    *,
    page: storage.PathLike | None = None,
    quick: bool = False,
    **options: Any,
) -> "Report":
    """A report on trained runs, as from `launch.report`.

    Args:
      workdirs: workdirs of the runs; a pattern such as "runs/*" stands for all matching runs.
      output: directory to write.
      page: HTML file to write.
      quick: whether to use only saved results, and to measure nothing.
      **options: attributes of `Options`, such as bootstrap=100 or baseline="rnnlm".
    """
    if isinstance(workdirs, str | os.PathLike):
        workdirs = [workdirs]
    subjects = restore_all(expand_workdirs(map(str, workdirs)), TextScorer)
    return of_runs(subjects, Options(**options), Store(compute=not quick), output, page)


def of_runs(
    subjects: Sequence[Subject],
    options: Options,
    store: Store,
    output: storage.PathLike | None = None,
    page: storage.PathLike | None = None,
    *,
    command: str = "dclm_jax.report",
) -> "Report":
    """A report on runs of one vocabulary.

    Args:
      subjects: the runs.
      options: options of the measurements.
      store: the results of the runs.
      output: directory to write.
      page: HTML file to write.
      command: the command that makes the report, for the HTML file.
    """
    splits = _splits(subjects, options)
    facts = list(map(results.facts, subjects))
    baselines_of(comparison.rows(facts), options.baseline)
    for known in facts:
        if known["unfinished"]:
            logger.info(
                f"training of {known['workdir']} is unfinished; results are from step "
                f"{known['step']}"
            )
    require_places(output, page)
    rows = comparison.rows(measure(subjects, facts, splits, options, store))
    notes = [*filter(None, [matmul_precision(subjects)])]
    if not options.bootstrap:
        notes.append("--bootstrap=0 skipped coherence; --bootstrap=1000 measures it.")
    made = Report(rows, baselines_of(rows, options.baseline), notes)
    lines = [made.text()]
    if output is not None:
        folder = storage.locate(output)
        lines += [*made.write(folder), f"report: {folder / MARKDOWN}"]
    if page is not None:
        models = {subject.workdir: subject.lm for subject in subjects}
        documents = splits["test"].sentences
        content = html.report(
            made.rows,
            made.verdicts,
            made.tables,
            made.figures,
            examples.read(made.rows, models, documents) if store.compute else [],
            _provenance(subjects[0], splits, options, command),
        )
        with files.open_output(str(page)) as file:
            file.write(content)
        lines.append(f"HTML report: {page}")
    # The tables are logged last, because the reader of a pipe, such as head, may end early.
    job_logger.info("\n".join(lines))
    return made


def _splits(subjects: Sequence[Subject], options: Options) -> dict[str, Dataset]:
    """The splits "valid" and "test" of the prepared corpus. Runs that cannot be measured are
    refused."""
    for kind in options.adaptations:
        obstacles = [adaptation.obstacle(subject.lm, kind) for subject in subjects]
        if all(obstacles):
            raise InputError(f"--adapt={kind}: each run {obstacles[0]}")
    first = subjects[0]
    directory = options.data or directory_of(first)
    return {name: open_split(first.lm.vocabulary, directory, name) for name in ("valid", "test")}


def _provenance(
    subject: Subject, splits: Mapping[str, Dataset], options: Options, command: str
) -> dict[str, Any]:
    """Facts on the origin of the numbers, by name; `subject` is the first run."""
    return {
        "command": command,
        "corpus": splits["test"].source["data"],
        **{
            f"{_IN_PROSE[name]} documents": (
                f"{len(split.sentences):,}, fingerprint {split.fingerprint}"
            )
            for name, split in splits.items()
        },
        "fingerprint of the vocabulary": subject.lm.vocabulary.fingerprint,
        "matmul precision": subject.lm.matmul_precision,
        **without(dataclasses.asdict(options), ["adaptations", "data", "baseline"]),
        "version of the measurements": results.VERSION,
        "version of Python": platform.python_version(),
        **{f"version of {name}": importlib.metadata.version(name) for name in _PACKAGES},
    }


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


def measure(
    subjects: Sequence[Subject],
    facts: Sequence[dict[str, Any]],
    splits: Mapping[str, Dataset],
    options: Options,
    store: Store,
) -> list[dict[str, Any]]:
    """The facts and measurements of runs; None for missing measurements."""
    valid, test = splits["valid"], splits["test"]
    all_results = [
        known | _measure(subject, valid, test, options, store)
        for subject, known in zip(subjects, facts, strict=True)
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
    drawn = store.order_test(subject, test, options.bootstrap_test())
    if drawn is None:
        return None
    if not options.fix_first:
        first = store.order_test(subject, test, FirstSentence(seed=options.seed))
        if first is None:
            return None
        return {**dataclasses.asdict(drawn.result), "first_sentence": first.result}
    return dataclasses.asdict(drawn.result)


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
    def verdicts(self) -> list[str]:
        """The results in words."""
        return verdicts(self.rows)

    @functools.cached_property
    def tables(self) -> dict[str, Table]:
        """The tables by name."""
        return tables.tables(self.rows, self.baselines)

    @functools.cached_property
    def figures(self) -> dict[str, Figure]:
        """The figures by name."""
        return figures.of_rows(self.rows, self.baselines)

    def text(self) -> str:
        """The verdicts, tables and notes for a terminal."""
        tables = (table.text() for table in self.tables.values())
        return "\n\n".join([*self.verdicts, *tables, *self.notes])

    def write(self, output: storage.Location) -> list[str]:
        """Writes report.md, report.tex, report.json and the figures into a folder, and
        returns a line for each figure."""
        lines = []
        for name, figure in self.figures.items():
            path = output / f"{name}.png"
            if figure.undrawn:
                lines.append(f"{path}: not drawn: {figure.undrawn}")
            else:
                figures.plot(figure, path)
                lines.append(f"{figure.title}: {path}")
        files.write_json(output / "report.json", tables.to_json(self.rows, self.baselines))
        for name, content in (
            ("report.tex", self._latex()),
            (MARKDOWN, self._markdown()),
        ):
            with files.open_output(output / name) as file:
                file.write(content)
        return lines

    def _markdown(self) -> str:
        parts = [*self.verdicts, *(table.markdown() for table in self.tables.values())]
        undrawn = {name: figure.undrawn for name, figure in self.figures.items()}
        parts += [f"![{self.figures[n].title}]({n}.png)" for n in undrawn if not undrawn[n]]
        parts += [f"{n}.png is not drawn: {reason}." for n, reason in undrawn.items() if reason]
        return "\n\n".join([*parts, *self.notes]) + "\n"

    def _latex(self) -> str:
        parts = ["% \\usepackage{booktabs}", *(table.latex() for table in self.tables.values())]
        return "\n\n".join(parts) + "\n"
