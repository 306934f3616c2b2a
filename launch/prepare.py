"""Prepares text for training and evaluation: a vocabulary, word ids on disk and statistics.

    # The embedded corpus
    python -m launch.prepare --corpus=sotu --output=data/sotu

    # The embedded corpus with 8,000 pieces of words, so that no word is out of vocabulary (OOV)
    python -m launch.prepare --corpus=sotu --subwords=8000 --output=data/pieces

    # Three splits of tokenized text, one sentence per line, a blank line between documents
    python -m launch.prepare --train=train.txt --valid=valid.txt --test=test.txt --output=data/mine

    # Raw text from a table, divided at random into three splits
    python -m launch.prepare --input=reviews.csv.gz --text_key=review --lowercase \\
        --split=0.8,0.1,0.1 --output=data/reviews

    # New test text with the vocabulary of another corpus
    python -m launch.prepare --test=new.txt --vocabulary=data/sotu --output=data/new

A corpus by name, other than sotu, is read from the folder --input. launch/text.md describes these
corpora, all text formats and the order in which options act; launch/files.md describes the files of
--output. A repeated command with the same text and options changes nothing.

The command prints three encoded sentences, the most frequent OOV words, and a table with the
numbers of documents, sentences and words, and the OOV rate or the number of pieces per word. --show
prints documents of a prepared corpus as text:

    python -m launch.prepare --show=data/sotu --split=test | head
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from dclm_jax.data.corpus import open_corpus, statistics_table
from dclm_jax.data.documents import PLAIN, TextOptions
from dclm_jax.data.prepare import PrepareOptions, TextSource, prepare
from dclm_jax.errors import InputError
from dclm_jax.training.workdir import run_path

from . import _app, _options
from ._options import part

_SPLITS = ("train", "valid", "test")


@dataclasses.dataclass(frozen=True)
class Options(_options.CommandOptions):
    """Options of `prepare`.

    Attributes:
      train: training text: a file or a folder.
      valid: validation text: a file or a folder.
      test: test text: a file or a folder.
      input: text to divide into train, valid and test, or the folder of --corpus.
      corpus: corpus by name: sotu, which is embedded, or imdb, bbc, ptb, nant, ted or wikitext,
        which are read from the folder --input.
      output: directory of the corpus.
      split: shares of train, valid and test for text to divide; 0 skips a split. Default:
        0.8,0.1,0.1.
      overwrite: replace a corpus in --output that was made from other text or options.
      show: prepared corpus to print as text, one sentence per line under the heading '= ID', and
        OOV words as <UNKNOWN>. --split names the split (default: test).
    """

    train: str | None = None
    valid: str | None = None
    test: str | None = None
    input: str | None = None
    corpus: str | None = None
    output: str | None = None
    text: Mapping[str, Any] = part(PLAIN, unset="{}")
    preparation: PrepareOptions = part(PrepareOptions(), omitted=["fractions"])
    split: Sequence[str] | None = None
    overwrite: bool = False
    show: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        making = [*_SPLITS, "input", "corpus", "output", "overwrite"]
        options = [*self.flags_of_part("text"), *self.flags_of_part("preparation")]
        self.refuse_together("show", *sorted([*making, *options]))
        self.refuse_together("corpus", *_SPLITS)

    @property
    def source(self) -> TextSource:
        """The source of `prepare`."""
        if self.corpus is not None:
            return self.input
        paths = {name: getattr(self, name) for name in (*_SPLITS, "input")}
        return {name: path for name, path in paths.items() if path is not None}

    @property
    def fractions(self) -> list[float] | None:
        """The shares of the splits."""
        if self.split is None:
            return None
        try:
            return list(map(float, self.split))
        except ValueError as error:
            raise InputError(
                f"--split is {','.join(self.split)}; write shares separated by commas, such as "
                "0.8,0.1,0.1"
            ) from error


def make(options: Options) -> None:
    """Makes a prepared corpus, or prints one."""
    if options.show is not None:
        _show(options.show, ",".join(options.split or ["test"]))
        return
    output = options.required("output", "DIR, the directory of the corpus")
    preparation = dataclasses.replace(options.preparation, fractions=options.fractions)
    if preparation.vocabulary:
        vocabulary = run_path(preparation.vocabulary)
        preparation = dataclasses.replace(preparation, vocabulary=vocabulary)
    manifest = prepare(
        options.source,
        output,
        TextOptions(**options.text),
        preparation,
        collection=options.corpus,
        overwrite=options.overwrite,
    )
    print(statistics_table(manifest))
    print(f"prepared corpus: {output}")


def _show(directory: str, split: str) -> None:
    """Prints documents as text."""
    corpus = open_corpus(directory, split)
    for index in range(corpus.num_documents):
        print("\n" * (index > 0) + "\n".join(corpus.document_lines(index)))


if __name__ == "__main__":
    _app.run(make, Options, log_on_stdout=True)
