"""Measures perplexity, also by part of speech, for mixtures and with test-time adaptation.

    python -m launch.evaluate --workdir=runs/ccdclm --metrics=perplexity.json
    python -m launch.evaluate --workdirs=runs/rnnlm,runs/ccdclm --input=news.txt
    python -m launch.evaluate --workdirs=runs/rlm,runs/bow_lf_4 --by_pos --plot=pos.png
    python -m launch.evaluate --workdirs=runs/rlm,runs/kn5 --interpolate
    python -m launch.evaluate --workdirs=runs/rnnlm,runs/ccdclm --adapt=cache,unigram,dynamic

Perplexity is exp(sum of -log P in nats / number of targets) over whole documents, whose context is
carried from their first sentence to their last. Targets are words and END; with a vocabulary of
subwords the nats of a word are the sum over its pieces. OOV words count as UNKNOWN. Perplexities
are comparable if the target counts are equal, and the vocabularies are equal or no word is OOV. The
command prints the target count, the size of the vocabulary and the OOV rate. Bits per word include
the nats of END, so they are not log2(perplexity).

Several runs must have one vocabulary. --plot shows their perplexity against n, the number of
context sentences of larger-context models (model.context_sentences).

--by_pos measures the perplexity of each part of speech (Wang and Cho 2015, section 6.2): exp(sum of
-log P / number of words). Tags come from the text: the formats tagged and jsonl, and corpora made
of such text. configs/larger_context/tag.py tags other text. Noun is NN and NNS, Verb is VB and VBZ.
The table has the classes of the most frequent tags, all other tags together, punctuation and END,
which add up to the whole text. --plot then shows the perplexity of each class relative to the first
run, with 95% intervals from a bootstrap over documents.

--interpolate mixes two runs, p = w p_A + (1 - w) p_B for every target. The weight w is tuned on the
validation split, and used on --split or --input.

--adapt measures perplexity without and with test-time adaptation to each document. Every document
starts from the trained run, which does not change.

    cache    neural cache (Grave et al. 2017): p = (1 - l) p_LM + l p_cache. p_cache(w) is
             (s p_LM(w) + n sum_i softmax_i(theta h_t . h_i) [w_i = w]) / (s + n) over the last n
             targets of the document, at most --cache_window; h is the input of the output layer.
             Grave et al. have s = 0; with s > 0 a cache with few entries gets little weight. With
             a vocabulary of subwords its targets are pieces.
    unigram  unigram cache: p_cache(w) = (s p_LM(w) + c_w) / (s + n), where w occurs c_w times among
             the n earlier targets. N-gram models support only this adaptation.
    dynamic  dynamic evaluation (Krause et al. 2018): after every sentence, a gradient step on this
             sentence updates the parameters. The gradient is divided by its root mean square in
             training text, and parameters decay towards the trained values. Parameters that affect
             only the context get no gradient, such as the parameters of bags of words in rlm_*,
             hrnnlm and hrnnlm_two_step. 100,000 targets take some minutes on a CPU.

Settings without a flag are tuned on the validation split (of dynamic evaluation on its first
documents, with 10,000 targets), over the grids of dclm_jax/evaluation/adaptation.py. Dynamic
evaluation diverges if a sentence has more than 50 nats per target.

--metrics has one object for a single run, and {"runs": [...]} for several. --by_pos adds "by_pos".
--interpolate adds "mixture" and "tuning". --adapt adds "adapted", with one object per adaptation;
the "tuning" of this object has all tried settings, the best first.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping

from dclm_jax import files
from dclm_jax.data.datasets import Dataset
from dclm_jax.errors import InputError
from dclm_jax.evaluation.adaptation import Tuning, adapted
from dclm_jax.evaluation.results import Results
from dclm_jax.language_model import LanguageModel
from dclm_jax.report import figures
from dclm_jax.report.perplexities import context_figure, measure_perplexities
from dclm_jax.scoring import interpolation

from . import _app
from ._adaptation import AdaptationOptions
from ._cluster import JobOptions
from ._evaluation import BatchOptions, DataOptions, ProgressBar, RunsOptions, notify_of_saved
from ._options import MetricsOptions

_TUNED_ON = "valid"
"""The split that tunes settings of --adapt, and the weight of --interpolate."""


@dataclasses.dataclass(frozen=True)
class Options(
    JobOptions, MetricsOptions, BatchOptions, DataOptions, AdaptationOptions, RunsOptions
):
    """Options of `evaluate`.

    Attributes:
      plot: figure (PNG, PDF or SVG) of perplexity against n, or by part of speech with --by_pos.
      by_pos: measure the perplexity of each part of speech, too.
      interpolate: mix the two runs of --workdirs, and measure the mixture, too.
    """

    plot: str | None = None
    by_pos: bool = False
    interpolate: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse_together("adapt", "interpolate")
        # The setting would be fitted to the measured split.
        if (self.interpolate or self.tunes) and self.input is None and self.split == _TUNED_ON:
            setting = "the weight" if self.interpolate else f"--adapt={','.join(self.settings)}"
            raise InputError(
                f"{setting} would be tuned on the measured split, {_TUNED_ON}; choose another "
                "--split"
            )
        if self.plot:
            figures.check_target(self.plot)

    @property
    def reads_split(self) -> bool:
        """Whether a split is read for tuning, or as the training text of dynamic evaluation."""
        return self.interpolate or self.tunes or "dynamic" in self.settings

    def tuning(self, models: Iterable[LanguageModel]) -> Dataset:
        """The documents to tune on."""
        return self.of_split(models, _TUNED_ON)


def evaluate(options: Options) -> None:
    """Measures perplexities, and prints and writes them."""
    options.join()
    without_source = bool(options.interpolate or options.adapt)
    runs = options.restore_all(LanguageModel, without_source=without_source)
    if options.interpolate and len(runs) != 2:
        raise InputError(
            f"--interpolate mixes two runs; found {len(runs)}; choose two as --workdirs=A,B"
        )
    if options.plot and not options.by_pos:
        # Refuse a figure that cannot be drawn before the perplexities are measured.
        context_figure(runs, [math.nan] * len(runs))
    results = Results(ProgressBar)
    dataset = options.dataset(runs.values())
    perplexities = measure_perplexities(
        runs,
        dataset,
        results,
        mixture=_mixture(runs.values(), options) if options.interpolate else None,
        adapted=_adapted(runs, options, results),
        tags=options.by_pos,
    )
    notify_of_saved(results)
    to_stdout = options.metrics == files.STDOUT
    if not to_stdout:
        print(perplexities)
    if options.metrics:
        files.write_json(options.metrics, perplexities.to_json())
    if options.plot:
        # The figure is last: if it cannot be drawn, the measurements are saved.
        perplexities.plot(options.plot)
        if not to_stdout:
            print(f"Plot: {options.plot}")


def _adapted(
    runs: Mapping[str, LanguageModel], options: Options, results: Results
) -> dict[str, LanguageModel]:
    """All runs with each kind of adaptation, by label; missing numbers are tuned."""
    models = {}
    tunings = [
        (label, lm, Tuning.of(lm, kind, setting, options.data))
        for kind, setting in options.settings.items()
        for label, lm in runs.items()
    ]
    for label, lm, tuning in tunings:
        adaptation = tuning.given
        if adaptation is None:
            adaptation = results.measured(lm, options.tuning(runs.values()), tuning)
        models[f"{label} + {tuning.kind}"] = adapted(lm, adaptation, options.data)
    return models


def _mixture(models: Iterable[LanguageModel], options: Options) -> interpolation.Mixture:
    scorers, tuning = [lm.scorer for lm in models], options.tuning(models)
    with ProgressBar("tuning", tuning.num_documents) as progress:
        return interpolation.tune(scorers, tuning, on_document=progress)


if __name__ == "__main__":
    _app.run(evaluate, Options)
