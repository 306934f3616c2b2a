"""A report on runs: verdicts, tables, figures, all measured numbers, and an HTML report."""

import dataclasses
import functools
import importlib.metadata
import platform
from collections.abc import Sequence
from typing import Any

from dclm_jax import files, storage
from dclm_jax.data.datasets import open_split
from dclm_jax.errors import InputError
from dclm_jax.evaluation import adaptation
from dclm_jax.evaluation.results import VERSION, Results
from dclm_jax.language_model import LanguageModel
from dclm_jax.log import logger
from dclm_jax.report import figures, page, tables
from dclm_jax.report.figures import Figure
from dclm_jax.report.results import Collector, ReportOptions, RunResults, facts_of
from dclm_jax.report.rows import Row, baselines_of, rows_of, to_json, without
from dclm_jax.report.verdict import verdicts
from dclm_jax.runs import directory_of, matmul_precision
from dclm_jax.tables import Table

MARKDOWN = "report.md"
_NAMED = 3
"""Number of missing results that a note names."""
_PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy")


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
        files.write_json(output / "report.json", to_json(self.rows, self.baselines))
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


def make(
    models: Sequence[LanguageModel],
    options: ReportOptions,
    results: Results,
    output: storage.PathLike | None = None,
    html: storage.PathLike | None = None,
    *,
    command: str,
) -> tuple[Report, list[str]]:
    """A report on runs of one vocabulary, and a line for each of its files.

    Args:
      models: the models of the runs.
      output: directory to write.
      html: HTML file to write.
      command: the command that makes the report, for the HTML file.
    """
    for kind in options.adaptations:
        obstacles = [adaptation.obstacle(lm, kind) for lm in models]
        if all(obstacles):
            raise InputError(f"--adapt={kind}: each run {obstacles[0]}")
    directory = options.data or directory_of(models[0])
    valid, test = (open_split(models[0].vocabulary, directory, name) for name in ("valid", "test"))
    facts = [facts_of(lm, directory) for lm in models]
    # Runs and a baseline that do not fit are refused before results are measured.
    baselines_of(rows_of([RunResults(facts=run) for run in facts]), options.baseline)
    for run in facts:
        if run.unfinished:
            logger.info(
                f"training of {run.workdir} is unfinished; results are from step {run.step}"
            )
    _make_folders(output, html)
    collector = Collector(valid, test, options, results)
    all_rows = rows_of(collector.collect(models, facts))
    notes = _notes(collector, matmul_precision(models))
    report = Report(all_rows, baselines_of(all_rows, options.baseline), notes)
    lines = []
    if output is not None:
        folder = storage.locate(output)
        lines += [*report.write(folder), f"report: {folder / MARKDOWN}"]
    if html is not None:
        examples = []
        if options.measure:
            examples = page.example_scores(all_rows, models, list(test.documents))
        content = page.report(
            all_rows,
            report.verdicts,
            report.tables,
            report.figures,
            examples,
            _provenance(models[0], collector, command),
        )
        with files.open_output(str(html)) as file:
            file.write(content)
        lines.append(f"HTML report: {html}")
    return report, lines


def _make_folders(output: storage.PathLike | None, html: storage.PathLike | None) -> None:
    """Makes the folders of the output, and refuses output that cannot be written or drawn."""
    if output is not None or html is not None:
        figures.check_target("figure.png")
    folders = []
    if html is not None:
        page.environment()
        path = storage.locate(html)
        if str(html) in ("", files.STDOUT) or path.is_dir():
            raise InputError(f"--html is {str(html)!r}; choose a file to write")
        folders.append(path.parent)
    if output is not None:
        if str(output) in ("", files.STDOUT):
            raise InputError(f"--output is {str(output)!r}; choose a directory to write")
        folders.append(storage.locate(output))
    for folder in folders:
        with files.writing(folder), storage.reaching(folder):
            folder.mkdir(parents=True, exist_ok=True)


def _notes(collector: Collector, precision: str) -> list[str]:
    notes = [precision] if precision else []
    if not collector.options.bootstrap:
        notes.append("--bootstrap=0 skipped coherence; --bootstrap=1000 measures it.")
    if missing := collector.missing:
        first = "; ".join(missing[:_NAMED])
        more = f"; and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        notes.append(f"Not measured yet: {first}{more}. Add --measure to measure these results.")
    return notes


def _provenance(lm: LanguageModel, collector: Collector, command: str) -> dict[str, Any]:
    """Facts on the origin of the numbers, by name; `lm` is the model of the first run."""
    splits = {"validation": collector.valid, "test": collector.test}
    options = dataclasses.asdict(collector.options)
    return {
        "command": command,
        "corpus": collector.test.source["data"],
        **{
            f"{name} documents": f"{len(split.sentences):,}, fingerprint {split.fingerprint}"
            for name, split in splits.items()
        },
        "fingerprint of the vocabulary": lm.vocabulary.fingerprint,
        "matmul precision": lm.facts.matmul_precision,
        **without(options, ["measure", "adaptations", "data", "baseline"]),
        "version of the measurements": VERSION,
        "version of Python": platform.python_version(),
        **{f"version of {name}": importlib.metadata.version(name) for name in _PACKAGES},
    }
