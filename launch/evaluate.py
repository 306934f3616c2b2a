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

import math
from collections.abc import Iterable, Sequence

from absl import flags

from dclm_jax import files
from dclm_jax.errors import InputError
from dclm_jax.evaluation.results import Results
from dclm_jax.language_model import LanguageModel
from dclm_jax.report import figures
from dclm_jax.report.perplexities import context_figure, measure_perplexities
from dclm_jax.scoring import interpolation

from . import _adaptation, _app, _cluster, _evaluation
from ._flags import define_metrics

_evaluation.define_data_flags()
_evaluation.define_workdirs()
flags.adopt_module_key_flags(_evaluation)
flags.adopt_module_key_flags(_adaptation)
flags.adopt_module_key_flags(_cluster)
_METRICS = define_metrics()
_PLOT = flags.DEFINE_string(
    "plot",
    None,
    "Figure (PNG, PDF or SVG) of perplexity against n, or by part of speech with --by_pos.",
)
_BY_POS = flags.DEFINE_bool("by_pos", False, "Measure the perplexity of each part of speech, too.")
_INTERPOLATE = flags.DEFINE_bool(
    "interpolate", False, "Mix the two runs of --workdirs, and measure the mixture, too."
)


def main(argv: Sequence[str]) -> None:
    del argv
    _cluster.join()
    _check_flags()
    without_source = bool(_INTERPOLATE.value or _adaptation.ADAPT.value)
    runs = _evaluation.restore_all(LanguageModel, without_source=without_source)
    if _INTERPOLATE.value and len(runs) != 2:
        raise InputError(
            f"--interpolate mixes two runs; found {len(runs)}; choose two as --workdirs=A,B"
        )
    if _PLOT.value and not _BY_POS.value:
        # Refuse a figure that cannot be drawn before the perplexities are measured.
        context_figure(runs, [math.nan] * len(runs))
    values, results = flags.FLAGS, Results(_evaluation.ProgressBar)
    dataset = _evaluation.open_split(runs.values(), values.split, values.input)
    perplexities = measure_perplexities(
        runs,
        dataset,
        results,
        mixture=_tuned(runs.values()) if _INTERPOLATE.value else None,
        adapted=_adaptation.adapt(runs, results),
        tags=_BY_POS.value,
    )
    _evaluation.notify_of_saved(results)
    to_stdout = _METRICS.value == files.STDOUT
    if not to_stdout:
        print(perplexities)
    if _METRICS.value:
        files.write_json(_METRICS.value, perplexities.to_json())
    if _PLOT.value:
        # The figure is last: if it cannot be drawn, the measurements are saved.
        perplexities.plot(_PLOT.value)
        if not to_stdout:
            print(f"Plot: {_PLOT.value}")


def _check_flags() -> None:
    _app.refuse_together("adapt", "interpolate")
    _adaptation.check_flags(mixes=_INTERPOLATE.value)
    _evaluation.check_data_flags(other_split=_INTERPOLATE.value or _adaptation.reads_split())
    if _PLOT.value:
        figures.check_target(_PLOT.value)


def _tuned(models: Iterable[LanguageModel]) -> interpolation.Mixture:
    scorers, tuning = [lm.scorer for lm in models], _adaptation.open_tuning(models)
    with _evaluation.ProgressBar("tuning", tuning.num_documents) as progress:
        return interpolation.tune(scorers, tuning, on_document=progress)


if __name__ == "__main__":
    _app.run(main)
