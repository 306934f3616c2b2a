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

import dataclasses
import itertools
import os
from typing import ClassVar

from dclm_jax.data import prose, readers
from dclm_jax.errors import InputError
from dclm_jax.files import json_text, open_output
from dclm_jax.neural_language_model import NeuralLanguageModel
from dclm_jax.neural_model import DEFAULT_MAX_SENTENCE_WORDS, DEFAULT_NUM_SENTENCES
from dclm_jax.scoring.score_types import GeneratedText, SentenceScore

from . import _app
from ._decoding import FLAGS_BY_METHOD, GenerationOptions
from ._evaluation import ProgressBar, ReadingOptions, RunOptions, with_size_note


@dataclasses.dataclass(frozen=True)
class Options(GenerationOptions, ReadingOptions, RunOptions):
    """Options of `generate`.

    Attributes:
      context: documents to continue; '-' is standard input. Default: begin a document.
      prefix: first words of the first sentence of each text.
      num_sentences: maximum number of sentences per text.
      max_sentence_words: maximum number of words per sentence.
      samples: number of texts per document for --method=sample.
      detokenize: print sentences as running text; in --output add them as 'text'.
      output: JSON lines file for the texts; '-' is standard output.
    """

    context: str | None = None
    prefix: str = ""
    num_sentences: int = DEFAULT_NUM_SENTENCES
    max_sentence_words: int = DEFAULT_MAX_SENTENCE_WORDS
    samples: int = 1
    detokenize: bool = False
    output: str | None = None

    flags_by_method: ClassVar = {
        **FLAGS_BY_METHOD,
        "sample": (*FLAGS_BY_METHOD["sample"], "samples"),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_ending("output", ".jsonl")


def generate(options: Options) -> None:
    """Continues documents, and prints or writes the texts."""
    lm, path = options.restore(NeuralLanguageModel), options.context
    if not path or (os.path.isfile(path) and not os.path.getsize(path)):
        documents = iter([readers.Document("new", [])])
    else:
        documents = with_size_note(options.reader([lm]), path)
    generated = lm.generate(
        documents,
        options.num_sentences,
        options.decoding,
        prefix=_prefix_words(lm, options.prefix),
        samples=options.samples,
        max_sentence_words=options.max_sentence_words,
        seed=options.seed,
    )
    language = lm.string_options().language if options.detokenize else None
    if not options.output:
        texts = itertools.chain.from_iterable(texts for _, texts in generated)
        for number, text in enumerate(texts):
            sentences = (_text(sentence, language) for sentence in text.sentences)
            print("\n" * bool(number) + "\n".join(sentences), flush=True)
        return
    with open_output(options.output) as file, ProgressBar("generating") as progress:
        for document, texts in progress.counting(generated):
            file.writelines(
                _record(document.id, sample, text, language) for sample, text in enumerate(texts)
            )


def _prefix_words(lm: NeuralLanguageModel, prefix: str) -> list[str]:
    """The words of --prefix, read with the text options of the run."""
    if not prefix:
        return []
    sentences = [sentence for document in lm.documents(prefix) for sentence in document.sentences]
    if len(sentences) != 1:
        raise InputError(
            f"--prefix is {prefix!r}, {len(sentences)} sentences; write the beginning of one "
            "sentence"
        )
    return sentences[0]


def _text(sentence: SentenceScore, language: str | None) -> str:
    """A sentence as words, or as running text of a language."""
    return prose.detokenized(sentence.tokens[:-1], language) if language else sentence.text


def _record(name: str, sample: int, text: GeneratedText, language: str | None) -> str:
    running = [_text(sentence, language) for sentence in text.sentences]
    record = {
        "id": name,
        "sample": sample,
        "continuation": [sentence.text for sentence in text.sentences],
        **({"text": running} if language else {}),
        "unit": "nats",
        "log_prob": text.log_prob,
        "log_probs": [sentence.log_probs for sentence in text.sentences],
        "has_ended": text.has_ended,
    }
    return json_text(record) + "\n"


if __name__ == "__main__":
    _app.run(generate, Options)
