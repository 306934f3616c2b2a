"""Reports on trained runs: the tables and figures of the DCLM paper (Ji et al. 2015), and more.

    python -m launch.report --output=reports/ptb --workdirs='runs/ptb/*'
    python -m launch.report --output=reports/two --workdirs=runs/rnnlm,runs/adclm \\
        --html=reports/two.html

Runs that differ in nothing but training.seed are one row: means and standard deviations over seeds.
All runs are measured on the same corpus: validation and test perplexity (Table 2), with z-tests
against rnnlm; bootstrap coherence (Table 3), with z-tests against rnnlm, drnnlm and hrnnlm;
perplexity with the context exchanged or removed; perplexity by position in the sentence and in the
document. Where a model was trained with several segment lengths L, their learning curves are drawn
as well (Figure 3). Hyper-parameters that differ between rows have columns.

--baseline=RUN or MODEL compares all rows with one run, or with that model trained alike. Intervals
of 95% are by bootstrap over the test documents, paired where two rows are compared: they are about
other documents, and the standard deviations over seeds about other training runs.

Where one of the models distinguishes 75% of the documents or more from those whose first sentence
alone is moved (launch.coherence says why that matters), coherence is measured twice: with all
sentences permuted, and with the first sentence fixed. --fix_first=N fixes N sentences in any case.

--adapt=cache,unigram,dynamic adds test perplexity and coherence with test-time adaptation, in these
ways or some of them, tuned on the validation set; launch.evaluate describes them.

--html=FILE writes an HTML report as well: one file that needs no network, for phones and desktops,
with the configurations side by side, curves, tables with marks of significance, and three test
documents word by word, which buttons and the arrow keys step through.

DIR holds report.md, report.csv (one line per row, all numbers), report.tex (for the package
booktabs), report.json and the figures. Results are saved in RUN/results: the same command measures
only what is new or has changed, so it can be stopped, and results on other --data or with other
options are saved beside them.

Most of the time is for coherence: as long as --permutation_pool test perplexities (with 0, the
paper's, as long as --bootstrap of them), but little for rnnlm and codclm without adaptation;
--bootstrap=0 leaves it out.

--quick computes nothing: it reports the saved results, and cells without one are blank. --output
may then be left out.
"""

import functools
import shlex
import sys
from collections.abc import Sequence

from absl import flags

from dclm_jax import storage
from dclm_jax.errors import InputError
from dclm_jax.experiments.report import MARKDOWN, Options, Request, require_places
from dclm_jax.experiments.results import Store
from launch import _adaptation, _app, _evaluation

_evaluation.define_workdirs()
for _name in ("batch_size", *(flag.name for flag in _adaptation.SETTINGS)):
    flags.declare_key_flag(_name)
_OUTPUT = flags.DEFINE_string("output", None, "Directory to write.")
_QUICK = flags.DEFINE_bool(
    "quick", False, "Report the results that are saved, and compute nothing."
)
_DATA = flags.DEFINE_string(
    "data", None, "Prepared corpus; default: the one the first run was trained on."
)
_BOOTSTRAP = flags.DEFINE_integer(
    "bootstrap", 1000, "Test sets of the coherence test; 0 leaves it out."
)
_POOL = flags.DEFINE_integer(
    "permutation_pool",
    50,
    "Permutations of each document that test sets draw from; 0: each draw has its own.",
)
_FIX_FIRST = flags.DEFINE_integer(
    "fix_first", 0, "Sentences at the start of each document that coherence leaves in place."
)
_SEED = flags.DEFINE_integer("seed", 0, "Random seed for permutations and test sets.")
_BASELINE = flags.DEFINE_string(
    "baseline",
    None,
    "Baseline of all rows: one of the runs, by its workdir, or a model, such as rnnlm, whose run "
    "with the same recipe is taken. Default: rnnlm, in coherence drnnlm and hrnnlm "
    "as well.",
)
_HTML = flags.DEFINE_string(
    "html", None, "HTML report to write as well: one file that needs no network."
)


def main(argv: Sequence[str]) -> None:
    del argv
    options = _options()
    if flags.FLAGS.workdirs is None:
        raise InputError("--workdirs is missing; expected runs, separated by commas, or 'runs/*'")
    if not _OUTPUT.value and not _QUICK.value:
        raise InputError("--output is missing; expected a directory to write, or --quick")
    subjects, page = _evaluation.restore_all(), _HTML.value
    request = Request.of(subjects, options, data=_DATA.value, baseline=_BASELINE.value)
    print(*request.notes, sep="\n", end="\n" if request.notes else "")
    require_places(_OUTPUT.value, page)
    say = functools.partial(print, flush=True)
    store = Store(not _QUICK.value, say=say, warn=say, progress=_evaluation.Progress)
    report = request.measured(store)
    print(report.text())
    if _OUTPUT.value:
        output = storage.locate(_OUTPUT.value)
        print("\n".join([*report.write(output), f"report: {output / MARKDOWN}"]))
    if page is not None:
        command = shlex.join(["python", "-m", "launch.report", *sys.argv[1:]])
        request.write_page(page, report, command, read_examples=not _QUICK.value)
        print(f"page: {page}")


def _options() -> Options:
    """The options that flags set."""
    _adaptation.check_settings()
    return Options(
        _BOOTSTRAP.value,
        _POOL.value,
        _FIX_FIRST.value,
        _SEED.value,
        {kind: _adaptation.settings(kind) for kind in _adaptation.ADAPT.value},
    )


if __name__ == "__main__":
    _app.run(main)
