"""Compares trained runs by perplexity, coherence and context ablation, in tables and figures.

    python -m launch.report --workdirs='runs/ptb/*'
    python -m launch.report --workdirs='runs/ptb/*' --measure --output=reports/ptb
    python -m launch.report --workdirs=runs/rnnlm,runs/adclm --measure --html=reports/two.html

The report has the results that are saved in RUN/results, and names missing results. --measure
measures missing results first, all runs on the same corpus:

    perplexity         validation and test (Ji et al. 2015, Table 2), also by position in the
                       sentence and in the document
    coherence          bootstrap test (Ji et al. 2015, Table 3; launch.coherence --help)
    context ablation   perplexity with the context of other documents, with shuffled or no context
    learning curves    validation log-likelihood by training steps (Ji et al. 2015, Figure 3)

Runs that differ only in training.seed are one row, with means and standard deviations over seeds.
Columns have the hyper-parameters that differ between rows. z-tests over documents compare the
perplexity of each row with rnnlm, and the coherence of each row with rnnlm, drnnlm and hrnnlm.
--baseline replaces the baselines of perplexity and of coherence. 95% intervals are from a bootstrap
over the test documents, paired where two rows are compared.

If a model reaches 75% with only the first sentence moved, coherence is also measured with the first
sentence fixed. --fix_first=N fixes N sentences in all tests. --adapt adds test perplexity and
coherence with test-time adaptation, tuned on the validation set (launch.evaluate --help).

--output is a folder with report.md, report.tex (for booktabs), report.json (all numbers) and the
figures. --html is one file that needs no network; with --measure it has the first three test
documents word by word.

Coherence takes most of the time. It takes --permutation_pool times the time of a test perplexity,
or --bootstrap times if --permutation_pool is 0. For rnnlm and codclm without adaptation it takes
little time. --bootstrap=0 skips coherence.
"""

import contextlib
import dataclasses
import shlex
import sys
import time
from collections.abc import Iterator

from dclm_jax.data.documents import OnDocument
from dclm_jax.evaluation.results import Results
from dclm_jax.language_model import LanguageModel
from dclm_jax.report.report import make
from dclm_jax.report.results import ReportOptions

from . import _app
from ._adaptation import AdaptationOptions
from ._evaluation import BatchOptions, ProgressBar, RunsOptions
from ._options import part


@dataclasses.dataclass(frozen=True)
class Options(AdaptationOptions, BatchOptions, RunsOptions):
    """Options of `report`.

    Attributes:
      output: directory of the report.
      html: HTML file for the report, which needs no network.
    """

    measures: ReportOptions = part(ReportOptions(), omitted=["adaptations"])
    output: str | None = None
    html: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.workdir is None:
            self.required("workdirs", "A,B with the directories of runs, or 'runs/*'")


def report(options: Options) -> None:
    """Makes the report, prints and writes it."""
    models = options.restore_all(LanguageModel, without_source=True)
    result, lines = make(
        [*models.values()],
        dataclasses.replace(options.measures, adaptations=options.settings),
        Results(_timed),
        options.output or None,
        options.html,
        command=f"{_app.COMMANDS}report {shlex.join(sys.argv[1:])}",
    )
    # The tables are printed last, because the reader of a pipe, such as head, may end early.
    print(result.text(), *lines, sep="\n", flush=True)


@contextlib.contextmanager
def _timed(label: str, total: int | None) -> Iterator[OnDocument]:
    """The progress of a measurement, and at its end a line with its time."""
    start = time.monotonic()
    with ProgressBar(label, total) as progress:
        yield progress
    print(f"{label}: measured in {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    _app.run(report, Options, log_on_stdout=True)
