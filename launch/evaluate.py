"""Measures the perplexity of trained runs: overall, by part of speech, of mixtures, and adapted.

On the test split of the corpus that the run was trained on, with the result saved as JSON:

    python -m launch.evaluate --workdir=runs/ccdclm --output=runs/ccdclm/perplexity.json

On another prepared corpus with the same vocabulary, or on any text (words outside the model's
vocabulary count as UNKNOWN):

    python -m launch.evaluate --workdir=runs/ccdclm --data=data/ptb --split=valid
    python -m launch.evaluate --workdir=runs/ccdclm --input=news.txt

Documents are scored whole: context is carried from their first sentence to their last. Perplexity =
exp(sum of -log P in nats / number of targets); END is predicted and counted, START never is.
Perplexities compare only between equal vocabularies and target counts, which are printed. Bits per
word count the nats of END too, so that they are not log2(perplexity).

Results on a split are saved in RUN/results, which launch.coherence and launch.report also use. A
saved result of the same model, documents and options is read and not measured again; a note names
it. Mixtures and parts of speech are always measured, and so is the text of --input.

Several runs of one vocabulary are scored on the same documents, side by side. Where some of them
are larger-context models (model.context_sentences is n), --plot shows perplexity against n:

    python -m launch.evaluate --workdirs=runs/rlm,runs/bow_lf_1,runs/bow_lf_4 --plot=context.png

By part of speech (Wang and Cho 2015, 6.2): perplexity of the words of each class, exp(sum of their
-log P / their number). Tags are those of the text (`tagged`, `treebank`, "tags" in `jsonl`), else
those that HanTa gives the words (pip install 'dclm_jax[tags]'), under the names of the Penn
Treebank; UNC is what has none, such as the unknown words of a prepared corpus. Noun is NN and NNS,
Verb is VB and VBZ.
Listed are the classes of the --pos_tags most frequent tags; then all other tags together,
punctuation and END, so that the classes add up to the whole text. --plot shows for each class how
far the perplexity of every run is above or below the perplexity of the first run, with intervals of
95% by bootstrap over documents; for a single run it shows the perplexities:

    python -m launch.evaluate --workdirs=runs/rlm,runs/bow_lf_4 --by_pos --plot=pos.png
    python -m launch.evaluate --workdir=runs/rlm --by_pos --input=brown.txt --format=tagged

Two runs mixed, such as a neural model A and an n-gram model B: p = w p_A + (1 - w) p_B for every
token. The weight w is tuned on one split (or text), and applied to another one:

    python -m launch.evaluate --workdirs=runs/rlm,runs/kn5 --interpolate
    python -m launch.evaluate --workdirs=runs/rlm,runs/kn5 --interpolate --tune_on=test \\
        --split=valid
    python -m launch.evaluate --workdirs=runs/rlm,runs/kn5 --interpolate --tune_input=old.txt \\
        --input=new.txt --by_pos

Test-time adaptation to each document as it is read, from the trained run at every document:
perplexity without and with adaptation, on the same targets.

    python -m launch.evaluate --workdirs=runs/rnnlm,runs/ccdclm --adapt=cache
    python -m launch.evaluate --workdir=runs/ccdclm --adapt=cache,unigram,dynamic
    python -m launch.evaluate --workdir=runs/kn5 --adapt=unigram --input=news.txt
    python -m launch.evaluate --workdir=runs/ccdclm --adapt=dynamic --dynamic_rate=1e-3 \\
        --dynamic_decay=0.01

  cache    the neural cache: p = (1 - l) p_LM + l p_cache, where p_cache(w) is
           (s p_LM(w) + n sum_i softmax_i(theta h_t . h_i) [w_i = w]) / (s + n) over the last
           --cache_window targets of the document, n in number so far; h enters the output
           layer. --cache_weight is l, --cache_theta theta, --cache_strength s; s = 0 is the cache
           of Grave et al. (2017), and with s > 0 it has less weight while it has few entries.
  unigram  the same mixture with p_cache(w) = (s p_LM(w) + c_w) / (s + n), where w occurs
           c_w times among the n targets before. N-gram models take this one alone.
  dynamic  dynamic evaluation (Krause et al. 2018): after every --dynamic_sentences sentences the
           parameters move by the gradient of what was just scored, scaled by its usual size in
           training text (--dynamic_rate), and back towards the trained ones (--dynamic_decay). The
           saved run does not change. In steps of one sentence, parameters that only make
           contexts, such as those of the bags of rlm_*, hrnnlm and hrnnlm_two_step, do not move. It
           reads one document at a time, some minutes for 100,000 targets on a CPU.

Numbers without a flag are tuned on --tune_on=valid of --data, or else of the corpus that the run
was trained on (or on --tune_input), never on the measured text: theta in 0.05, 0.1, 0.2, 0.4, 0.8,
1.6 with s in 0, 30, 100, 300 (cache), or s in 1, 10, 30, 100, 300, 1000 (unigram), each at its best
l; of `dynamic` first the rate in 1e-4, 3e-4, 1e-3, 2e-3, 4e-3 without decay, then the decay in 0,
1e-3, 1e-2, on the first documents with 10,000 targets. A rate at which a step has more than 50 nats
per target ends in an error, or, if it is tuned, has no perplexity.

The JSON result of a single run is one object, with --by_pos the classes under "by_pos". Several
runs have {"runs": [...]} with such an object each; --interpolate adds "mixture" and "tuning".
--adapt adds "adapted" to each object, a list with one object per adaptation: the same measures of
the adapted run, its setting, and under "tuning" all tried settings, the best first.
"""

from collections.abc import Sequence

from absl import flags

from dclm_jax import files
from dclm_jax.errors import InputError, require_at_least
from dclm_jax.evaluation import interpolation, parts_of_speech
from dclm_jax.experiments import figures
from dclm_jax.experiments.evaluation import context_point, evaluate
from dclm_jax.experiments.results import Split
from launch import _adaptation, _app, _cluster, _evaluation

_evaluation.define_data_flags()
_evaluation.define_workdirs()
flags.adopt_module_key_flags(_evaluation)
flags.adopt_module_key_flags(_adaptation)
flags.adopt_module_key_flags(_cluster)
_OUTPUT = flags.DEFINE_string("output", None, "JSON file for the result; '-' is standard output.")
_PLOT = flags.DEFINE_string(
    "plot",
    None,
    "Picture to draw (PNG, PDF, SVG): with --by_pos the classes of each run relative to the first "
    "run, without it perplexity against n.",
)
_BY_POS = flags.DEFINE_bool("by_pos", False, "Measure each part of speech as well.")
_POS_TAGS = flags.DEFINE_integer(
    "pos_tags", 10, "The most frequent tags, whose classes --by_pos lists; the rest is `other`."
)
_INTERPOLATE = flags.DEFINE_bool("interpolate", False, "Mix the two runs of --workdirs.")


def main(argv: Sequence[str]) -> None:
    del argv
    _cluster.join()
    _check_flags()
    runs = _evaluation.restore_all()
    if _INTERPOLATE.value and len(runs) != 2:
        raise InputError(f"--interpolate mixes two runs; there are {len(runs)}")
    if _PLOT.value and not _BY_POS.value:
        # Before the work, which only adds the perplexities.
        figures.context_figure(list(map(context_point, runs)))
    tagger = parts_of_speech.Tagger() if _BY_POS.value else None
    documents, store = _evaluation.open_input(runs, tagger), _evaluation.store()
    mixture = _tuned(runs) if _INTERPOLATE.value else None
    adapted = _adaptation.adapt(runs, store)
    evaluation = evaluate(
        runs,
        documents,
        store=store,
        adapted=adapted,
        mixture=mixture,
        tagger=tagger,
        num_tags=_POS_TAGS.value,
    )
    _evaluation.tell_of(store)
    to_stdout = _OUTPUT.value == files.STDOUT
    if not to_stdout:
        print(evaluation)
    elif warning := evaluation.perplexities[0].warning:
        _evaluation.tell(warning)
    if _OUTPUT.value:
        files.write_json(_OUTPUT.value, evaluation.to_json())
    if _PLOT.value:
        # Last, so that a picture that cannot be drawn loses nothing that was measured.
        evaluation.plot(_PLOT.value)
        if not to_stdout:
            print(f"Plot: {_PLOT.value}")


def _check_flags() -> None:
    if _POS_TAGS.present and not _BY_POS.value:
        raise InputError("--pos_tags belongs to --by_pos, which is missing")
    require_at_least("--pos_tags", _POS_TAGS.value, 1)
    if _INTERPOLATE.value and _adaptation.ADAPT.value:
        raise InputError("--interpolate mixes runs as they are; expected it without --adapt")
    _adaptation.check_flags(mixes=_INTERPOLATE.value)
    _evaluation.check_data_flags(
        other_split=_adaptation.reads_split(mixes=_INTERPOLATE.value),
        other_text=_adaptation.TUNE_INPUT.value is not None,
    )
    if _PLOT.value:
        figures.check_target(_PLOT.value)


def _tuned(runs: Sequence[_evaluation.Subject]) -> interpolation.Mixture:
    documents = _adaptation.open_tuning(runs)
    tuning = documents.open() if isinstance(documents, Split) else documents
    with _evaluation.Progress("tuning", tuning.num_documents) as progress:
        scorers = [run.lm.scorer for run in runs]
        return interpolation.tune(scorers, tuning, on_document=progress)


if __name__ == "__main__":
    _app.run(main)
