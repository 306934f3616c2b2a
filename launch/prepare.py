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

from collections.abc import Sequence

from absl import flags

from dclm_jax.data.corpora import COLLECTIONS
from dclm_jax.data.corpus import open_corpus, statistics_table
from dclm_jax.data.documents import TextOptions
from dclm_jax.data.prepare import PrepareOptions, TextSource, prepare
from dclm_jax.errors import InputError
from dclm_jax.training.workdir import run_path

from . import _app
from ._flags import define_fields, values_of

_INPUT = "input"
_HELP = {
    "train": "Training text: a file or a folder.",
    "valid": "Validation text: a file or a folder.",
    "test": "Test text: a file or a folder.",
    _INPUT: "Text to divide into train, valid and test, or the folder of --corpus.",
}
_INPUTS = {name: flags.DEFINE_string(name, None, text) for name, text in _HELP.items()}
_CORPUS = flags.DEFINE_enum(
    "corpus",
    None,
    list(COLLECTIONS),
    "Corpus by name: sotu is embedded; all others are read from the folder --input.",
)
_OUTPUT = flags.DEFINE_string("output", None, "Directory of the corpus.")
_TEXT = define_fields(TextOptions, unset="{}")
_OPTIONS = define_fields(PrepareOptions, names={"fractions": "split"})
_SPLIT = _OPTIONS["fractions"]
_OVERWRITE = flags.DEFINE_bool(
    "overwrite", False, "Replace a corpus in --output that was made from other text or options."
)
_SHOW = flags.DEFINE_string(
    "show",
    None,
    "Prepared corpus to print as text, one sentence per line under the heading '= ID', and OOV "
    "words as <UNKNOWN>. --split names the split (default: test).",
)


def main(argv: Sequence[str]) -> None:
    del argv
    if _SHOW.value is not None:
        _show(_SHOW.value)
        return
    output = _app.required("output", "DIR, the directory of the corpus")
    text, options = values_of(_TEXT), values_of(_OPTIONS)
    options["fractions"] = _fractions()
    if vocabulary := options.get("vocabulary"):
        options["vocabulary"] = run_path(vocabulary)
    manifest = prepare(
        _source(),
        output,
        TextOptions(**text),
        PrepareOptions(**options),
        collection=_CORPUS.value,
        overwrite=_OVERWRITE.value,
    )
    print(statistics_table(manifest))
    print(f"prepared corpus: {output}")


def _show(directory: str) -> None:
    """Prints documents as text."""
    others = {"output", "corpus", "overwrite", *_INPUTS, *_TEXT, *_OPTIONS} - {"fractions"}
    _app.refuse_together("show", *sorted(others))
    split = ",".join(_SPLIT.value or ["test"])
    corpus = open_corpus(directory, split)
    for index in range(corpus.num_documents):
        print("\n" * (index > 0) + "\n".join(corpus.document_lines(index)))


def _source() -> TextSource:
    """The source of `prepare`."""
    if not _CORPUS.value:
        return values_of(_INPUTS)
    _app.refuse_together("corpus", *(name for name in _INPUTS if name != _INPUT))
    return _INPUTS[_INPUT].value


def _fractions() -> list[float] | None:
    if _SPLIT.value is None:
        return None
    try:
        return list(map(float, _SPLIT.value))
    except ValueError as error:
        raise InputError(
            f"--split is {','.join(_SPLIT.value)}; write shares separated by commas, such as "
            "0.8,0.1,0.1"
        ) from error


if __name__ == "__main__":
    _app.run(main, log_on_stdout=True)
