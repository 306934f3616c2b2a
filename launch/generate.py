"""Goes on with documents, or begins one, as a model of documents thinks likely.

    python -m launch.generate --workdir=runs/tour --context=story.txt --sentences=5
    printf 'the state of the union is strong .\\n' |
        python -m launch.generate --workdir=runs/tour --context=- --method=beam
    python -m launch.generate --workdir=runs/tour --method=sample --temperature=0.8 --seed=1
    python -m launch.generate --workdir=runs/tour --context=test.jsonl --output=more.jsonl \\
        --method=sample --top_p=0.9 --samples=10

Without --context a document is begun. The context is text as launch.score reads it, of one or more
documents; each is gone on with by itself, from its last sentence. Words are chosen

    --method=greedy   each the likeliest after those before it (the default)
    --method=beam     so that the text is likely as a whole: of all texts so far the --beam best are
                      kept after every word; --length_normalization compares texts by their length
    --method=sample   by chance, from all or from likely words (--temperature, --top_k, --top_p);
                      the same --seed draws the same words for document n, whatever the others

<UNKNOWN> is left out unless --allow_unknown is given, and so are sentences without words. A
sentence of --sentence_words words is ended there.

Without --output the text is printed, a sentence a line, a blank line between documents; that of one
document word by word as it is chosen (by a beam, when all are chosen). --output is a file of JSON
lines ('-' is standard output), one for each document and sample:
    {"id": "story.txt:1", "sample": 0, "continuation": ["it was late .", ...], "unit": "nats",
        "log_prob": -31.4, "log_probs": [[-2.1, -0.8, -4.0, -0.3, -0.1], ...], "has_ended": false}
log_probs has log P of every word, and of <END> after the last one, under the model as it is:
launch.score gives the same text the same numbers. has_ended says that the model has ended the
document itself, which only some models do. The file appears once it is complete.
"""

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence

from absl import flags

from dclm_jax.data import readers
from dclm_jax.data.vocabulary import END_TOKEN
from dclm_jax.decoding.choices import Decoding
from dclm_jax.errors import InputError
from dclm_jax.files import json_text, open_output
from dclm_jax.language_model import (
    DEFAULT_SENTENCE_WORDS,
    DEFAULT_SENTENCES,
    GeneratedText,
    LanguageModel,
)
from launch import _app, _decoding, _evaluation

_evaluation.declare_run_flags()
flags.adopt_module_key_flags(_decoding)
_CONTEXT = flags.DEFINE_string(
    "context", None, "Documents to go on with; '-' is standard input. Without it one is begun."
)
_SENTENCES = flags.DEFINE_integer("sentences", DEFAULT_SENTENCES, "Sentences to generate.")
_SENTENCE_WORDS = flags.DEFINE_integer(
    "sentence_words", DEFAULT_SENTENCE_WORDS, "Words of a sentence, at most."
)
_SAMPLES = flags.DEFINE_integer("samples", 1, "With --method=sample: texts for each document.")
_OUTPUT = flags.DEFINE_string("output", None, "JSON lines to write, instead of text to print.")


def main(argv: Sequence[str]) -> None:
    del argv
    if flags.FLAGS["batch_size"].present:
        raise InputError("--batch_size has no effect; documents of like length go together anyway")
    decoding = _decoding.decoding(_SAMPLES)
    lm = _evaluation.restore().lm
    documents = _documents(lm)
    if _OUTPUT.value:
        with open_output(_OUTPUT.value) as file, _evaluation.Progress("generating") as progress:
            for number, (document, texts) in enumerate(_generated(lm, documents, decoding), 1):
                file.writelines(_record(document, *one) for one in enumerate(texts))
                progress(number, None)
        return
    first = list(itertools.islice(documents, 2))
    if len(first) == _SAMPLES.value == 1:
        _print_words(lm, first[0], decoding)
        return
    printed = False
    for _, texts in _generated(lm, itertools.chain(first, documents), decoding):
        for text in texts:
            print("\n" * printed + "\n".join(one.text for one in text.sentences), flush=True)
            printed = True


def _documents(lm: LanguageModel) -> Iterator[readers.Document]:
    """Those of --context, or one of which nothing has been read."""
    path = _CONTEXT.value
    if not path or (os.path.isfile(path) and not os.path.getsize(path)):
        return iter([readers.Document("new", [])])
    return _evaluation.read_text([lm], path)


def _generated(
    lm: LanguageModel, documents: Iterable[readers.Document], decoding: Decoding
) -> Iterator[tuple[readers.Document, list[GeneratedText]]]:
    return lm.generate(
        documents,
        _SENTENCES.value,
        decoding,
        sentence_words=_SENTENCE_WORDS.value,
        seed=_decoding.SEED.value,
        samples=_SAMPLES.value,
    )


def _record(document: readers.Document, sample: int, text: GeneratedText) -> str:
    record = {
        "id": document.id,
        "sample": sample,
        "continuation": [one.text for one in text.sentences],
        "unit": "nats",
        "log_prob": text.log_prob,
        "log_probs": [one.log_probs for one in text.sentences],
        "has_ended": text.has_ended,
    }
    return json_text(record) + "\n"


def _print_words(lm: LanguageModel, document: readers.Document, decoding: Decoding) -> None:
    """The text word by word."""
    words = lm.read(document).stream(
        _SENTENCES.value,
        decoding,
        sentence_words=_SENTENCE_WORDS.value,
        seed=_decoding.SEED.value,
    )
    space = ""
    for word, _ in words:
        is_end = word == END_TOKEN
        print("\n" if is_end else space + word, end="", flush=True)
        space = "" if is_end else " "


if __name__ == "__main__":
    _app.run(main)
