"""Measures how close documents are to those they were made of (Li et al. 2015, Table 3).

    python -m launch.reconstruct --outputs=outputs.jsonl --input=reviews.txt --metrics=metrics.json

Both are texts of as many documents in the same order. Files named .jsonl or .json are JSON lines,
{"id": ..., "sentences": [...]}, others are what --format says. An output may have no sentences.
Several outputs of one input, separated by commas, give a row each.

BLEU is sacrebleu's of words as they are, of the whole corpus, a document being a segment. ROUGE-1,
ROUGE-2 and ROUGE-W are percentages of the input (recall, Eq. 16), with F1 beside them, and means
over documents. L is the coherence penalty (Eq. 18), how many positions apart sentences are moved,
and better where it is small: output sentences are aligned with input sentences by their verbs and
nouns, which HanTa finds (pip install 'dclm_jax[metrics,tags]'). An output of one sentence has no L.
A sentence without a verb or noun of the input is aligned with the nearest position, so that L says
nothing of it; `unaligned` is the share of such sentences.
"""

from collections.abc import Sequence

from absl import flags

from dclm_jax import files
from dclm_jax.data.readers import STDIN
from dclm_jax.errors import InputError
from dclm_jax.evaluation import reconstruction
from launch import _app, _evaluation

flags.declare_key_flag("format")
flags.declare_key_flag("lowercase")
_OUTPUTS = flags.DEFINE_list("outputs", None, "Texts to measure, separated by commas.")
_INPUT = flags.DEFINE_string("input", None, "What they were made of; '-' is standard input.")
_METRICS = flags.DEFINE_string(
    "metrics", None, "JSON file for the measures; '-' is standard output."
)


def main(argv: Sequence[str]) -> None:
    del argv
    _measure()


def _measure() -> None:
    """Measures --outputs against --input."""
    outputs, inputs = _OUTPUTS.value or [], _INPUT.value or ""
    if not outputs:
        raise InputError("--outputs is missing; expected texts to measure")
    if not inputs:
        raise InputError("--input is missing; expected what --outputs were made of")
    for name in ("workdir", "batch_size"):
        if flags.FLAGS[name].present:
            raise InputError(f"--{name} has no meaning for documents that are there")
    if STDIN in outputs or (inputs == STDIN and len(outputs) > 1):
        raise InputError("standard input is read once: it can be --input with one of --outputs")
    summaries = {}
    for path in outputs:
        with _evaluation.Progress(path) as progress:
            measures = reconstruction.evaluate_files(
                path,
                inputs,
                format=_evaluation.FORMAT.value,
                lowercase=_evaluation.LOWERCASE.value,
                on_document=lambda done: progress(done, None),
            )
        summaries[path] = reconstruction.summarize(measures)
    if _METRICS.value != files.STDOUT:
        print(reconstruction.table(summaries))
    if _METRICS.value:
        rows = {path: summary.to_json() for path, summary in summaries.items()}
        files.write_json(_METRICS.value, {"input": inputs, "outputs": rows})


if __name__ == "__main__":
    _app.run(main)
