"""Measures the perplexity of a trained run from its best checkpoint.

The test split of the corpus the run was trained on, with the result kept as JSON:

    python -m launch.evaluate --workdir=runs/ccdclm --output=runs/ccdclm/perplexity.json

Another prepared corpus with the same vocabulary, or any text (words outside the model's vocabulary
count as UNKNOWN):

    python -m launch.evaluate --workdir=runs/ccdclm --data=data/ptb --split=valid
    python -m launch.evaluate --workdir=runs/ccdclm --input=news.txt

Documents are scored whole: context is carried from their first sentence to their last.
Perplexity = exp(sum of -log P in nats / number of targets); END is predicted and counted, START
never is. Perplexities compare only between equal vocabularies and token counts, printed beside.
"""

from collections.abc import Sequence

from absl import flags

from dclm_jax.evaluation import outputs, perplexity
from launch import _app, _evaluation

_evaluation.define_data_flags()
flags.adopt_module_key_flags(_evaluation)
_OUTPUT = flags.DEFINE_string("output", None, "JSON file for the result; '-' is standard output.")


def main(argv: Sequence[str]) -> None:
    del argv
    lm = _evaluation.restore()
    documents, num_documents, source = _evaluation.open_documents(lm)
    with _evaluation.Progress("perplexity") as progress:
        result = perplexity.measure(
            lm.scorer, documents, on_document=lambda sums: progress(sums.documents, num_documents)
        )
    if _OUTPUT.value != outputs.STDOUT:
        print(f"{lm.model.name}, {lm.num_parameters:,} parameters, step {lm.step:,}\n{result}")
    if _OUTPUT.value:
        run = _evaluation.describe_run(lm)
        outputs.write_json(_OUTPUT.value, {**result.to_json(), **run, **source})


if __name__ == "__main__":
    _app.run(main)
