"""Continues documents, or begins a new document, with text that a model generates.

    python -m launch.generate --workdir=runs/tour --context=story.txt --num_sentences=5
    printf 'the state of the union is strong .\\n' |
        python -m launch.generate --workdir=runs/tour --context=- --method=beam
    python -m launch.generate --workdir=runs/tour --method=sample --temperature=0.8 --seed=1
    python -m launch.generate --workdir=runs/tour --context=test.jsonl --output=more.jsonl \\
        --method=sample --top_p=0.9 --samples=10

Every document of --context is continued after its last sentence. Without --context a new document
is begun. --prefix gives the first words of the first sentence. Random words of document n depend on
--seed, not on the other documents; sample 2 of --seed=0 is sample 0 of --seed=2. Sentences without
words are never generated. Without --output the text is printed, one sentence per line and a blank
line between documents, with --detokenize as running text. A line of --output is a document and
sample:
    {"id": "story.txt:1", "sample": 0, "continuation": ["it was late .", ...], "unit": "nats",
        "log_prob": -31.4, "log_probs": [[-2.1, -0.8, -4.0, -0.3, -0.1], ...], "has_ended": false}
With a vocabulary of subwords temperature, top-k and top-p act on the next piece; a word has at most
16 pieces, and bytes and <UNKNOWN> are never generated.
log_probs has log P of every word and of <END>, under the model without temperature, top-k or top-p.
launch.score gives the same values. has_ended is true if an autoencoder ended the document.
"""

import itertools
import os
from collections.abc import Sequence

from absl import flags

from dclm_jax.data import prose, readers
from dclm_jax.errors import InputError
from dclm_jax.files import json_text, open_output
from dclm_jax.neural_language_model import NeuralLanguageModel
from dclm_jax.neural_model import DEFAULT_MAX_SENTENCE_WORDS, DEFAULT_NUM_SENTENCES
from dclm_jax.scoring.score_types import GeneratedText, SentenceScore

from . import _app, _decoding, _evaluation

_evaluation.declare_flags(without=["batch_size"])
flags.adopt_module_key_flags(_decoding)
_CONTEXT = flags.DEFINE_string(
    "context", None, "Documents to continue; '-' is standard input. Default: begin a document."
)
_PREFIX = flags.DEFINE_string("prefix", "", "First words of the first sentence of each text.")
_NUM_SENTENCES = flags.DEFINE_integer(
    "num_sentences", DEFAULT_NUM_SENTENCES, "Maximum number of sentences per text."
)
_MAX_SENTENCE_WORDS = flags.DEFINE_integer(
    "max_sentence_words", DEFAULT_MAX_SENTENCE_WORDS, "Maximum number of words per sentence."
)
_SAMPLES = flags.DEFINE_integer("samples", 1, "Number of texts per document for --method=sample.")
_DETOKENIZE = flags.DEFINE_bool(
    "detokenize", False, "Print sentences as running text; in --output add them as 'text'."
)
_OUTPUT = flags.DEFINE_string(
    "output", None, "JSON lines file for the texts; '-' is standard output."
)


def main(argv: Sequence[str]) -> None:
    del argv
    _app.check_ending("output", ".jsonl")
    decoding = _decoding.decoding(_SAMPLES)
    lm, path = _evaluation.restore(NeuralLanguageModel), _CONTEXT.value
    if not path or (os.path.isfile(path) and not os.path.getsize(path)):
        documents = iter([readers.Document("new", [])])
    else:
        documents = _evaluation.counted(_evaluation.text_reader([lm]), path)
    generated = lm.generate(
        documents,
        _NUM_SENTENCES.value,
        decoding,
        prefix=_prefix(lm),
        samples=_SAMPLES.value,
        max_sentence_words=_MAX_SENTENCE_WORDS.value,
        seed=_decoding.SEED.value,
    )
    if not _OUTPUT.value:
        texts = itertools.chain.from_iterable(texts for _, texts in generated)
        for number, text in enumerate(texts):
            sentences = (_text(lm, sentence) for sentence in text.sentences)
            print("\n" * bool(number) + "\n".join(sentences), flush=True)
        return
    with open_output(_OUTPUT.value) as file, _evaluation.ProgressBar("generating") as progress:
        for document, texts in progress.counting(generated):
            records = (_record(lm, document, *numbered) for numbered in enumerate(texts))
            file.writelines(records)


def _prefix(lm: NeuralLanguageModel) -> list[str]:
    """The words of --prefix, read with the text options of the run."""
    if not _PREFIX.value:
        return []
    documents = lm.documents(_PREFIX.value)
    sentences = [sentence for document in documents for sentence in document.sentences]
    if len(sentences) != 1:
        raise InputError(
            f"--prefix is {_PREFIX.value!r}, {len(sentences)} sentences; write the beginning of "
            "one sentence"
        )
    return sentences[0]


def _text(lm: NeuralLanguageModel, sentence: SentenceScore) -> str:
    """A sentence as words, or as running text if --detokenize says so."""
    if not _DETOKENIZE.value:
        return sentence.text
    return prose.detokenized(sentence.tokens[:-1], lm.string_options().language)


def _record(
    lm: NeuralLanguageModel, document: readers.Document, sample: int, text: GeneratedText
) -> str:
    running = [_text(lm, sentence) for sentence in text.sentences]
    record = {
        "id": document.id,
        "sample": sample,
        "continuation": [sentence.text for sentence in text.sentences],
        **({"text": running} if _DETOKENIZE.value else {}),
        "unit": "nats",
        "log_prob": text.log_prob,
        "log_probs": [sentence.log_probs for sentence in text.sentences],
        "has_ended": text.has_ended,
    }
    return json_text(record) + "\n"


if __name__ == "__main__":
    _app.run(main)
