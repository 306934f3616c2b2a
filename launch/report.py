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
import shlex
import sys
import time
from collections.abc import Iterator, Sequence

from absl import flags

from dclm_jax.data.documents import OnDocument
from dclm_jax.evaluation.results import Results
from dclm_jax.language_model import LanguageModel
from dclm_jax.report.report import make
from dclm_jax.report.results import Options

from . import _adaptation, _app, _evaluation
from ._flags import define_fields, values_of

_evaluation.define_workdirs()
for _name in ("batch_size", "matmul_precision", *(flag.name for flag in _adaptation.SETTING_FLAGS)):
    flags.declare_key_flag(_name)
_OUTPUT = flags.DEFINE_string("output", None, "Directory of the report.")
_OPTIONS = define_fields(Options, omitted=["adaptations"])
_HTML = flags.DEFINE_string("html", None, "HTML file for the report, which needs no network.")


def main(argv: Sequence[str]) -> None:
    del argv
    options = _options()
    _app.required("workdirs", "A,B with the directories of runs, or 'runs/*'")
    models = [*_evaluation.restore_all(LanguageModel, without_source=True).values()]
    report, lines = make(
        models,
        options,
        Results(_timed),
        _OUTPUT.value or None,
        _HTML.value,
        command=f"{_app.COMMANDS}report {shlex.join(sys.argv[1:])}",
    )
    # The tables are printed last, because the reader of a pipe, such as head, may end early.
    print(report.text(), *lines, sep="\n", flush=True)


@contextlib.contextmanager
def _timed(label: str, total: int | None) -> Iterator[OnDocument]:
    """The progress of a measurement, and at its end a line with its time."""
    start = time.monotonic()
    with _evaluation.ProgressBar(label, total) as progress:
        yield progress
    print(f"{label}: measured in {time.monotonic() - start:.0f} s", flush=True)


def _options() -> Options:
    """The options that flags set."""
    _adaptation.check_settings()
    adaptations = {kind: _adaptation.settings(kind) for kind in _adaptation.ADAPT.value}
    return Options(adaptations=adaptations, **values_of(_OPTIONS))


if __name__ == "__main__":
    _app.run(main, log_on_stdout=True)
