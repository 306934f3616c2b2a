"""Prepares text for training and evaluation: a vocabulary, word ids on disk, statistics.

From the three splits of a corpus, one tokenised sentence a line and a blank line (or one that
begins with "=") between documents:

  python -m launch.prepare --train=train.txt --valid=valid.txt --test=test.txt --output=corpus

From one input, its documents divided at random, here raw prose of which all becomes lower case:

  python -m launch.prepare --input=books/ --format=prose --lowercase --split=0.8,0.1,0.1 \\
      --output=corpus

From a corpus that has a name; sotu is embedded, the others lie in a folder as they are unpacked:

  python -m launch.prepare --corpus=sotu --output=corpus
  python -m launch.prepare --corpus=imdb --input=aclImdb --vocab_size=30000 --output=data/imdb
  python -m launch.prepare --corpus=ptb --input=treebank_3 --output=data/ptb
  python -m launch.prepare --corpus=wikitext --input=wikitext-2 --min_count=1 --output=data/wikitext

From paired documents, such as articles and their summaries, in as many documents of one order:

  python -m launch.prepare --source=articles.txt --target=summaries.txt --output=corpus
  python -m launch.prepare --train=summaries.txt --train_source=articles.txt --output=corpus

From longer documents, cut between sentences into paragraphs of 50 to 250 words:

  python -m launch.prepare --corpus=sotu --document_words=250 --min_words=50 --max_words=250 \\
      --output=paragraphs

From a table, compressed; raw text in it is split as prose, its curly quotes written plainly:

  python -m launch.prepare --input=reviews.csv.gz --text_key=review --normalize --output=reviews

From new text, with the vocabulary of a corpus that is already there:

  python -m launch.prepare --test=new.txt --vocabulary=corpus/vocabulary.tsv --output=new

In the end three sentences are shown as they are encoded, and the most frequent unknown words. The
documents of a corpus come back as text, which --format=lines reads again:

  python -m launch.prepare --show=corpus --split=test --documents=2

An input is a file, a folder of files or - for standard input. Run again, the command finds that the
output came from the same text and options, and leaves it as it is. launch/README.md says more of
formats and corpora.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from absl import flags

from dclm_jax import data
from dclm_jax.data.corpus import SPLITS, open_corpus, source_split
from dclm_jax.data.documents import UTF8, TextOptions
from dclm_jax.data.known_corpora import COLLECTIONS
from dclm_jax.data.prepare import DEFAULT_VOCAB_SIZE
from dclm_jax.errors import InputError, printable, require_at_least
from launch import _app, _text
from launch._text import given_options

_TRAIN = flags.DEFINE_string("train", None, "Training text: a file, a folder or - (stdin).")
_VALID = flags.DEFINE_string("valid", None, "Development text.")
_TEST = flags.DEFINE_string("test", None, "Test text.")
_SOURCES = {
    split: flags.DEFINE_string(
        source_split(split), None, f"What the documents of --{split} are made of, as many."
    )
    for split in SPLITS
}
_INPUT = flags.DEFINE_string(
    "input", None, "Text to divide into train, valid and test, or the folder of --corpus."
)
_SOURCE = flags.DEFINE_string("source", None, "With --target: what its documents are made of.")
_TARGET = flags.DEFINE_string("target", None, "Text to divide as --input; paired with --source.")
_SPLIT = flags.DEFINE_list(
    "split",
    None,
    "With --input or --source: shares of train, valid and test, 0 for none (--corpus=imdb, ted: of "
    "train and valid). Default: 0.8,0.1,0.1; of --corpus=imdb 0.86,0.14; of ted 0.9,0.1; of bbc "
    "0.9,0.05,0.05; of nant in the proportions 26462:148:2753.",
)
_CORPUS = flags.DEFINE_enum(
    "corpus",
    None,
    list(COLLECTIONS),
    "sotu: the embedded corpus. All others: the corpus in the folder --input.",
)
_OUTPUT = flags.DEFINE_string("output", None, "Directory to make.")
_TEXT = _text.define_text_flags()
_OPTIONS: tuple["flags.FlagHolder[Any]", ...] = (
    flags.DEFINE_integer("seed", 0, "With --input or --source: which documents go where."),
    flags.DEFINE_integer(
        "vocab_size",
        None,
        "How many of the most frequent training words to keep, at most. Default: "
        f"{DEFAULT_VOCAB_SIZE:,}; with --min_count all that occur so often.",
    ),
    flags.DEFINE_integer(
        "min_count", None, "How often a training word occurs that is kept, at least."
    ),
    flags.DEFINE_string(
        "vocabulary", None, "Vocabulary file to use instead: word<TAB>count lines or a word list."
    ),
    flags.DEFINE_string(
        "unknown_token", None, "How the text itself spells an unknown word, such as <unk>."
    ),
    flags.DEFINE_string("encoding", UTF8, "Encoding of text, such as cp1252 or utf-16."),
    flags.DEFINE_integer(
        "document_words",
        None,
        "Maximum number of words per document; longer documents are cut between sentences.",
    ),
    flags.DEFINE_integer("min_words", None, "Leave out documents of fewer words."),
    flags.DEFINE_integer("max_words", None, "Leave out documents of more words."),
    flags.DEFINE_float(
        "max_unknown",
        None,
        "Leave out documents of a larger share of words outside the vocabulary.",
    ),
)
_OVERWRITE = flags.DEFINE_bool(
    "overwrite", False, "Replace a corpus in --output that came from other text or options."
)
_SHOW = flags.DEFINE_string(
    "show",
    None,
    "Print documents of this prepared corpus instead: those of --split, by default test, a "
    "sentence a line under the heading '= ID', as --format=lines reads them.",
)
_DOCUMENTS = flags.DEFINE_integer("documents", None, "With --show: how many; default: all.")
_FLAG_OF = {"source": "input", "fractions": "split"}
_OF_TEXT = {*_TEXT, "encoding", "unknown_token"}
_DIVIDED = {"split", "seed", *_OF_TEXT}
_TAKES = {
    "--train/--valid/--test": _OF_TEXT,
    "--input": {"input", *_DIVIDED},
    "--source/--target": _DIVIDED,
    **{
        f"--corpus={name}": {_FLAG_OF.get(option, option) for option in collection.options}
        for name, collection in COLLECTIONS.items()
    },
}


def main(argv: Sequence[str]) -> None:
    del argv
    if _SHOW.value is not None:
        _show(_SHOW.value)
        return
    if _DOCUMENTS.present:
        raise InputError("--documents belongs to --show, which is missing")
    if not _OUTPUT.value:
        raise InputError("--output is needed: the directory to make")
    given = {"train": _TRAIN.value, "valid": _VALID.value, "test": _TEST.value}
    of_splits = {split: path for split, path in given.items() if path is not None}
    paired = {split: flag.value for split, flag in _SOURCES.items() if flag.value is not None}
    _check_flags(of_splits, paired)
    manifest = data.prepare(
        of_splits or (_INPUT.value if _TARGET.value is None else _TARGET.value),
        _OUTPUT.value,
        _text_options(),
        data.PrepareOptions(fractions=_fractions(), **{flag.name: flag.value for flag in _OPTIONS}),
        paired_source=paired or _SOURCE.value,
        overwrite=_OVERWRITE.value,
        report=lambda line: print(line, flush=True),
    )
    print(data.statistics_table(manifest))
    print(f"prepared corpus: {_OUTPUT.value}")


def _show(directory: str) -> None:
    """Prints documents as text."""
    module = str(flags.FLAGS.find_module_defining_flag("show"))
    for flag in flags.FLAGS.flags_by_module_dict()[module]:
        if flag.present and flag.name not in ("show", "split", "documents"):
            raise InputError(f"--show takes no --{flag.name}; only --split and --documents")
    split = ",".join(_SPLIT.value or ["test"])
    corpus = open_corpus(directory, split)
    number = corpus.num_documents if _DOCUMENTS.value is None else _DOCUMENTS.value
    require_at_least("--documents", number, 1)
    for index in range(min(number, corpus.num_documents)):
        print("\n" * (index > 0) + f"= {printable(corpus.document_ids[index])}")
        for sentence in corpus.document(index):
            text = " ".join(corpus.vocabulary.decode(sentence))
            # A line that begins with this sign would be a heading.
            print(" " * text.startswith("=") + text)


def _check_flags(of_splits: dict[str, str], paired: dict[str, str]) -> None:
    """Refuses flags that contradict each other or would have no effect."""
    for split in paired:
        if split not in of_splits:
            raise InputError(f"--{source_split(split)} needs --{split}: what is made of it")
    if (_SOURCE.value is None) != (_TARGET.value is None):
        raise InputError("--source and --target belong together; one of them is missing")
    ways = {
        "--train/--valid/--test": bool(of_splits),
        "--source/--target": _SOURCE.value is not None,
        "--input": _INPUT.value is not None and not _CORPUS.value,
        f"--corpus={_CORPUS.value}": bool(_CORPUS.value),
    }
    given = [way for way, here in ways.items() if here]
    if len(given) != 1:
        raise InputError(
            "one of --train/--valid/--test, --input, --source/--target, --corpus says what to "
            "prepare; got " + (" and ".join(given) or "none")
        )
    way = given[0]
    for flag in sorted({"input", *_DIVIDED}):
        if flags.FLAGS[flag].present and flag not in _TAKES[way]:
            raise InputError(f"{way} takes no --{flag}")
    if "input" in _TAKES[way] and _INPUT.value is None:
        raise InputError(f"{way} needs --input: the folder of the corpus")


def _text_options() -> TextOptions:
    options = TextOptions(**given_options(_TEXT))
    return dataclasses.replace(options, format=_CORPUS.value) if _CORPUS.value else options


def _fractions() -> list[float] | None:
    if _SPLIT.value is None:
        return None
    try:
        return [float(share) for share in _SPLIT.value]
    except ValueError as error:
        raise InputError(
            f"--split is {','.join(_SPLIT.value)}; expected shares with commas between them, for "
            "example 0.8,0.1,0.1"
        ) from error


if __name__ == "__main__":
    _app.run(main)
