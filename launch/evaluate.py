"""Measures the perplexity of trained runs: by itself, by part of speech, mixed, and adapted.

The test split of the corpus the run was trained on, with the result kept as JSON:

    python -m launch.evaluate --workdir=runs/ccdclm --output=runs/ccdclm/perplexity.json

Another prepared corpus with the same vocabulary, or any text (words outside the model's vocabulary
count as UNKNOWN):

    python -m launch.evaluate --workdir=runs/ccdclm --data=data/ptb --split=valid
    python -m launch.evaluate --workdir=runs/ccdclm --input=news.txt

Documents are scored whole: context is carried from their first sentence to their last.
Perplexity = exp(sum of -log P in nats / number of targets); END is predicted and counted, START
never is. Perplexities compare only between equal vocabularies and token counts, printed beside.

Several runs of one vocabulary are scored on the same documents, side by side. Where some of them
are larger-context models (model.context_sentences is n), the picture shows perplexity against n:

    python -m launch.evaluate --workdirs=runs/rlm,runs/bow_lf_1,runs/bow_lf_4 --plot=context.png

By part of speech (Wang and Cho 2015, 6.2): perplexity of the words of each class, exp(sum of their
-log P / their number). Tags are those of the text (`tagged`, `treebank`, "tags" in `jsonl`), else
those that HanTa gives the words (pip install 'dclm_jax[tags]'), under the names of the Penn
Treebank; UNC is what has none, such as the unknown words of a prepared corpus. Noun is NN and NNS,
Verb is VB and VBZ.
Listed are the classes of the --pos_tags most frequent tags; then all other tags together,
punctuation and END, so that the classes add up to the whole text. The picture shows for each class
how far the perplexity of every run is above or below that of the first one, with intervals of 95%
by bootstrap over documents; of a single run it shows the perplexities:

    python -m launch.evaluate --workdirs=runs/rlm,runs/bow_lf_4 --by_pos --plot=pos.png
    python -m launch.evaluate --workdir=runs/rlm --by_pos --input=brown.txt --format=tagged

Two runs mixed, such as a neural model A and an n-gram model B: p = w p_A + (1 - w) p_B for every
token. The weight w is tuned on one split (or text), and applied to another one:

    python -m launch.evaluate --workdirs=runs/rlm,runs/kn5 --interpolate
    python -m launch.evaluate --workdirs=runs/rlm,runs/kn5 --interpolate --tune_on=test \\
        --split=valid
    python -m launch.evaluate --workdirs=runs/rlm,runs/kn5 --interpolate --tune_input=old.txt \\
        --input=new.txt --by_pos

Each run adapted to every document as it is read, and forgotten at its end: perplexity before and
after, on the same targets.

    python -m launch.evaluate --workdirs=runs/rnnlm,runs/ccdclm --adapt=cache
    python -m launch.evaluate --workdir=runs/ccdclm --adapt=cache,unigram,dynamic
    python -m launch.evaluate --workdir=runs/kn5 --adapt=unigram --input=news.txt
    python -m launch.evaluate --workdir=runs/ccdclm --adapt=dynamic --dynamic_rate=1e-3 \\
        --dynamic_decay=0.01

  cache    the neural cache: p = (1 - l) p_LM + l p_cache, where p_cache(w) is
           (s p_LM(w) + n sum_i softmax_i(theta h_t . h_i) [w_i = w]) / (s + n) over the last
           --cache_window targets of the document, of which there are n so far; h enters the output
           layer. --cache_weight is l, --cache_theta theta, --cache_strength s; s = 0 is the cache
           of Grave et al. (2017), and with s > 0 it is trusted the more the more it holds.
  unigram  the same mixture with p_cache(w) = (s p_LM(w) + c_w) / (s + n): of n targets before, c_w
           are w. It is the one for n-gram models.
  dynamic  dynamic evaluation (Krause et al. 2018): after every --dynamic_sentences sentences the
           parameters move by the gradient of what was just scored, scaled by its usual size in
           training text (--dynamic_rate), and back towards the trained ones (--dynamic_decay); the
           run itself stays as it is. It reads one document at a time, some minutes for 100,000
           targets on a CPU.

What is not given is tuned on --tune_on=valid of --data, or else of the corpus that the run was
trained on (or on --tune_input), never on what is measured: theta in 0.05, 0.1, 0.2, 0.4, 0.8, 1.6
with s in 0, 30, 100, 300 (cache), or s in 1, 10, 30, 100, 300, 1000 (unigram), each at its best l;
of `dynamic` first the rate in 1e-4, 3e-4, 1e-3, 2e-3, 4e-3 without decay, then the decay in 0,
1e-3, 1e-2, on the first documents with 10,000 targets. A rate at which a step has more than 50 nats
a target ends in an error, or, tried among others, has no perplexity.

The JSON of a single run is one object, with --by_pos the classes under "by_pos". That of several is
{"runs": [...]} with such an object for each; --interpolate adds "mixture" and "tuning". --adapt
adds "adapted" to each object, a list with an object for each way: the same measures of the adapted
run, its setting, and under "tuning" all that was tried, the best first.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from absl import flags

from dclm_jax import files
from dclm_jax.errors import InputError, require_at_least
from dclm_jax.evaluation import interpolation, parts_of_speech, significance
from dclm_jax.evaluation.perplexity import Perplexity
from dclm_jax.experiments import plots
from dclm_jax.tables import aligned
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
_BY_POS = flags.DEFINE_bool("by_pos", False, "Measure every part of speech by itself as well.")
_POS_TAGS = flags.DEFINE_integer(
    "pos_tags", 10, "The most frequent tags, whose classes --by_pos lists; the rest is `other`."
)
_INTERPOLATE = flags.DEFINE_bool("interpolate", False, "Mix the two runs of --workdirs.")
_MIXTURE = "mixture"


class _Measured(NamedTuple):
    """What was measured: `perplexities` of the runs, then of each of them adapted, or of their
    mixture, if that was asked for."""

    runs: list[_evaluation.Run]
    adapted: list[_adaptation.Adapted]
    source: dict[str, Any]
    perplexities: list[Perplexity]
    mixture: interpolation.Mixture | None
    tuned_on: dict[str, Any]
    classes: list[parts_of_speech.ClassSums]
    by_document: list[significance.Sums]
    tagger: str

    @property
    def labels(self) -> list[str]:
        labels = [one.label for one in (*self.runs, *self.adapted)]
        return labels if self.mixture is None else [*labels, _MIXTURE]


def main(argv: Sequence[str]) -> None:
    del argv
    _cluster.join()
    _check_flags()
    runs = _evaluation.restore_all()
    if _INTERPOLATE.value and len(runs) != 2:
        raise InputError(f"--interpolate mixes two runs; there are {len(runs)}")
    if _adaptation.ADAPT.value:
        _adaptation.require_adaptable(runs)
    if _PLOT.value and not _BY_POS.value:
        # Before the work, which only adds the perplexities.
        plots.require_context([_point(run, math.nan) for run in runs])
    measured = _measure(runs)
    if _OUTPUT.value != files.STDOUT:
        print(_text(measured))
    elif warning := measured.perplexities[0].warning:
        _evaluation.tell(warning)
    if _OUTPUT.value:
        files.write_json(_OUTPUT.value, _json(measured))
    if _PLOT.value:
        # Last, so that a picture that cannot be drawn loses nothing that was measured.
        _plot(measured, _PLOT.value)
        if _OUTPUT.value != files.STDOUT:
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
        plots.check_target(_PLOT.value)


def _measure(runs: list[_evaluation.Run]) -> _Measured:
    tagger = parts_of_speech.Tagger() if _BY_POS.value else None
    opened = _evaluation.open_input(runs, tagger)
    scorers = [run.lm.scorer for run in runs]
    mixture, adapted, tuned_on = None, [], {}
    if _INTERPOLATE.value:
        tuning = _adaptation.open_tuning(runs)
        tuned_on = tuning.source
        with _evaluation.Progress("tuning") as shown:
            mixture = interpolation.tune(
                scorers,
                tuning.documents,
                on_document=lambda sums: shown(sums.documents, tuning.num_documents),
            )
    elif _adaptation.ADAPT.value:
        adapted = _adaptation.adapt(runs)
        scorers += [one.scorer for one in adapted]
    by_tag = parts_of_speech.TagSums(len(scorers) + (mixture is not None)) if tagger else None
    with _evaluation.Progress("perplexity") as progress:
        perplexities = interpolation.measure(
            scorers,
            opened.documents,
            weight=None if mixture is None else mixture.weight,
            by_tag=by_tag,
            on_document=lambda sums: progress(sums.documents, opened.num_documents),
        )
    perplexities = [dataclasses.replace(one, **opened.counts) for one in perplexities]
    # The mixture's is the first run's.
    models = [*(run.lm for run in runs), *(one.run.lm for one in adapted), runs[0].lm]
    perplexities = [lm.beside_own(one) for lm, one in zip(models, perplexities, strict=False)]
    classes = by_tag.classes(_POS_TAGS.value) if by_tag else []
    by_document = by_tag.by_document(classes) if by_tag else []
    by = tagger.source if tagger else ""
    return _Measured(
        runs, adapted, opened.source, perplexities, mixture, tuned_on, classes, by_document, by
    )


def _text(measured: _Measured) -> str:
    first = measured.perplexities[0]
    if len(measured.perplexities) == 1:
        lines = [measured.runs[0].lm.summary, str(first)]
    else:
        # What was counted is the same for all.
        lines = [*_table(measured), first.description]
    if measured.mixture is not None:
        weight, (tuned, *_) = measured.mixture
        where = measured.tuned_on
        a, b = (run.label for run in measured.runs)
        lines.append(
            f"{_MIXTURE}: {weight:.4f} {a} + {1 - weight:.4f} {b}, tuned on "
            f"{where.get('input') or where['split']} ({tuned.tokens:,} targets)"
        )
    lines += [str(one) for one in measured.adapted]
    if measured.classes:
        lines += ["", parts_of_speech.table(measured.classes, measured.labels)]
        lines.append(f"parts of speech: {measured.tagger}")
    return "\n".join(lines)


def _table(measured: _Measured) -> list[str]:
    parameters = [run.lm.num_parameters for run in measured.runs]
    parameters += [one.run.lm.num_parameters for one in measured.adapted]
    if measured.mixture is not None:
        parameters.append(sum(parameters))
    columns = [
        ("run", *measured.labels),
        ("parameters", *(f"{number:,}" for number in parameters)),
        ("targets", *(f"{one.tokens:,}" for one in measured.perplexities)),
        ("perplexity", *(f"{one.perplexity:.4f}" for one in measured.perplexities)),
        ("of known", *map(_known, measured.perplexities)),
        ("bits/word", *(f"{one.bits_per_word:.4f}" for one in measured.perplexities)),
    ]
    if measured.mixture is not None:
        tuned = measured.mixture.perplexities
        columns.append(("when tuning", *(f"{one.perplexity:.4f}" for one in tuned)))
    return aligned(list(zip(*columns, strict=True)))


def _known(perplexity: Perplexity) -> str:
    known = perplexity.known_perplexity
    return "" if known is None else f"{known:.4f}"


def _json(measured: _Measured) -> dict[str, Any]:
    results = []
    for index, perplexity in enumerate(measured.perplexities):
        result = {**perplexity.to_json()}
        if index < len(measured.runs):
            run = measured.runs[index]
            result |= _evaluation.describe_run(run.lm, run.workdir)
        result |= measured.source
        if measured.classes:
            classes = parts_of_speech.to_json(measured.classes, index)
            result["by_pos"] = {"tagger": measured.tagger, "classes": classes}
        results.append(result)
    for number, one in enumerate(measured.adapted):
        adapted = results[number % len(measured.runs)].setdefault("adapted", [])
        adapted.append({**one.to_json(), **results[len(measured.runs) + number]})
    if len(measured.runs) == 1:
        return results[0]
    value: dict[str, Any] = {"runs": results[: len(measured.runs)]}
    if measured.mixture is not None:
        weight, tuned = measured.mixture
        *of_runs, of_mixture = (perplexity.to_json() for perplexity in tuned)
        value[_MIXTURE] = {"weight": weight, **results[-1]}
        value["tuning"] = {**measured.tuned_on, "runs": of_runs, _MIXTURE: of_mixture}
    return value


def _plot(measured: _Measured, path: str) -> None:
    if measured.classes:
        plots.plot(_classes_picture(measured), path)
        return
    values = [one.perplexity for one in measured.perplexities]
    points = list(map(_point, measured.runs, values))
    points += [
        _point(one.run, value)._replace(label=one.label, model=one.label)
        for one, value in zip(measured.adapted, values[len(points) :], strict=False)
    ]
    if measured.mixture is not None:
        points.append(plots.Result(_MIXTURE, _MIXTURE, None, values[-1]))
    plots.plot_context(points, path)


def _classes_picture(measured: _Measured) -> plots.Intervals:
    """Perplexities of a single run; of several, their ratios to those of the first."""
    first, *others = measured.by_document
    label, *labels = measured.labels
    series = [
        plots.Series(
            name, sums.perplexities / first.perplexities, *significance.of_ratio(sums, first)
        )
        for name, sums in zip(labels, others, strict=True)
    ]
    alone = plots.Series(label, first.perplexities, *significance.interval(first.resampled()))
    return plots.Intervals(
        "Perplexity by part of speech",
        parts_of_speech.explained(measured.classes),
        [one.name for one in measured.classes],
        series or [alone],
        baseline=label if others else "",
    )


def _point(run: _evaluation.Run, perplexity: float) -> plots.Result:
    number = run.lm.config["model"].get("context_sentences")
    return plots.Result(run.label, run.lm.name, number, perplexity)


if __name__ == "__main__":
    _app.run(main)
