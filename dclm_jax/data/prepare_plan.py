"""The inputs, splits and options of a corpus to prepare, checked and with their defaults."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from dclm_jax.data import corpus, formats
from dclm_jax.data.corpora import COLLECTIONS, Collection
from dclm_jax.data.documents import PLAIN, TEXT_FORMATS, TextOptions
from dclm_jax.data.notes import lowered
from dclm_jax.data.records import RECORDS
from dclm_jax.data.subwords import load_vocabulary
from dclm_jax.data.text_files import UTF8, checked_encoding
from dclm_jax.data.vocabulary import Vocabulary
from dclm_jax.errors import InputError, brief, require_at_least

TextPath = str | pathlib.Path
TextSource = TextPath | Mapping[str, TextPath] | None

DEFAULT_VOCAB_SIZE = 10_000
_DEFAULT_FRACTIONS = (0.8, 0.1, 0.1)
INPUT = "input"
"""The name of an input that is divided into splits."""
LIMITED = (INPUT, "train")
"""The names of inputs that `PrepareOptions.max_documents` limits."""
_FORMATS_OF: dict[str, Sequence[str]] = {
    "normalize": (*formats.RAW, "jsonl"),
    "language": (*formats.RAW, "jsonl"),
    "strip_html": [format for format in TEXT_FORMATS if format != "tagged"],
    "text_key": RECORDS,
    # All formats of text need these options, and no named corpus does.
    **dict.fromkeys(("format", "unicode", "encoding", "unknown_token"), TEXT_FORMATS),
}
"""The formats in which an option has an effect."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrepareOptions:
    """Options by which documents become a prepared corpus: splits, vocabulary and filters.

    Attributes:
      fractions: shares of train, valid and test for text to divide; 0 skips a split. Default:
        0.8,0.1,0.1.
      seed: random seed for the division into splits.
      max_documents: maximum number of documents of the text to divide, or of the training text; the
        first documents are read. Validation and test text is read whole.
      vocab_size: maximum number of words in the vocabulary, which has the most frequent training
        words. Default: 10,000; with `min_count` no maximum.
      min_count: minimum number of occurrences in the training text of a word that is not in
        `vocabulary`.
      subwords: number of pieces in a vocabulary of subwords, such as 8000, including 256 bytes. The
        pieces are learned from the training text, and no word is out of vocabulary.
      vocabulary: the vocabulary of a prepared corpus, a run or a saved model: its folder, or its
        file vocabulary.tsv. Training words are added only to a vocabulary of words, with
        `vocab_size` or `min_count`.
      encoding: encoding of text, such as cp1252 or utf-16.
      deduplicate: omit documents with the words of an earlier document, in all splits; train comes
        before valid and test.
      split_documents_at: maximum number of words per document; longer documents are cut between
        sentences.
      min_words: minimum number of words per document; shorter documents are omitted.
      max_words: maximum number of words per document; longer documents are omitted.
      max_unknown: maximum share of OOV words per document, from 0 to 1; documents with a larger
        share are omitted.
    """

    fractions: Sequence[float] | None = None
    seed: int = 0
    max_documents: int | None = None
    vocab_size: int | None = None
    min_count: int | None = None
    subwords: int | None = None
    vocabulary: TextPath | None = None
    encoding: str = UTF8
    deduplicate: bool = False
    split_documents_at: int | None = None
    min_words: int | None = None
    max_words: int | None = None
    max_unknown: float | None = None

    def __post_init__(self):
        require_at_least("seed", self.seed, 0)
        require_at_least("max_documents", self.max_documents, 1)
        require_at_least("vocab_size", self.vocab_size, 1)
        require_at_least("min_count", self.min_count, 1)
        require_at_least("subwords", self.subwords, 1)
        require_at_least("split_documents_at", self.split_documents_at, 1)
        require_at_least("min_words", self.min_words, 1)
        require_at_least("max_words", self.max_words, self.min_words or 1)
        if self.max_unknown is not None and not 0 <= self.max_unknown <= 1:
            raise InputError(f"max_unknown is {self.max_unknown:g}; expected a share from 0 to 1")


DEFAULT_OPTIONS = PrepareOptions()


@dataclasses.dataclass(frozen=True)
class CorpusPlan:
    """Inputs, splits and options with all defaults filled in.

    Attributes:
      inputs: paths by the name of their split, by "input" if divided, or by the name of a named
        corpus.
      splits: the splits to write.
      text: how text becomes words.
      options: how documents become a corpus.
      collection: the named corpus, if any.
      vocabulary: the vocabulary that the options name, if any.
    """

    inputs: dict[str, TextPath]
    splits: list[str]
    text: TextOptions
    options: PrepareOptions
    collection: Collection | None
    vocabulary: Vocabulary | None

    @property
    def recorded(self) -> dict[str, Any]:
        """The options for the manifest."""
        options = {**dataclasses.asdict(self.text), **dataclasses.asdict(self.options)}
        options["vocabulary"] = self.vocabulary and self.vocabulary.fingerprint
        return options | {"collection": self.collection and self.collection.name}

    @property
    def counts_words(self) -> bool:
        """Whether words of the training text are added to the vocabulary."""
        return bool(self.options.vocab_size or self.options.min_count)


def complete_plan(
    source: TextSource, text: TextOptions, options: PrepareOptions, name: str | None
) -> CorpusPlan:
    """The plan, with defaults filled in and contradictions refused; `name` is the name of a named
    corpus, if any."""
    collection = _collection(name) if name else None
    if collection:
        inputs = {collection.name: _folder(source, collection)}
        fractions = collection.fractions
    else:
        inputs = _named(source)
        fractions = _DEFAULT_FRACTIONS if INPUT in inputs else ()
    if collection:
        require_effect(text, options, {collection.name})
    has_split = options.fractions is not None and INPUT not in inputs
    for flag, is_refused in {"split": has_split, "seed": options.seed and not fractions}.items():
        if is_refused:
            what = f"{collection.name} takes" if collection else "inputs of given splits take"
            raise InputError(f"{what} no {flag}; remove --{flag}")
    if options.max_documents is not None and inputs.keys().isdisjoint(LIMITED):
        raise InputError(
            "max_documents limits the documents of --train, or of --input without --corpus; "
            "remove --max_documents"
        )
    if options.fractions is not None:
        fractions = _checked(options.fractions)
    shares = dict(zip(corpus.SPLITS, fractions, strict=False))
    splits = [split for split in corpus.SPLITS if split in inputs]
    splits = splits or [split for split in corpus.SPLITS if shares.get(split) != 0]
    if "train" not in splits:
        if options.vocabulary is None:
            raise InputError(
                "there is no train split to count a vocabulary; name a vocabulary file by "
                "--vocabulary"
            )
        for name in ("vocab_size", "min_count", "subwords"):
            if getattr(options, name) is not None:
                raise InputError(f"there is no train split to count words; remove --{name}")
    if options.subwords is not None:
        for name in ("vocab_size", "min_count", "vocabulary"):
            if getattr(options, name) is not None:
                raise InputError(
                    f"--subwords and --{name} cannot be combined; remove --{name}, or remove "
                    "--subwords for a vocabulary of words"
                )
    # The embedded corpus is converted to lower case.
    lowercase = text.lowercase or bool(collection and collection.home)
    unknown_token = text.unknown_token or (collection.unknown_token if collection else None)
    if unknown_token and lowercase:
        unknown_token = lowered(unknown_token, text.language)
    vocabulary, vocab_size = None, options.vocab_size
    if options.vocabulary is not None:
        vocabulary = load_vocabulary(options.vocabulary)
        for name in ("vocab_size", "min_count") if vocabulary.has_pieces else ():
            if getattr(options, name) is not None:
                raise InputError(
                    f"{options.vocabulary} is a vocabulary of subwords, which needs no words added "
                    f"to it; remove --{name}"
                )
        unknown_token = unknown_token or vocabulary.unknown_token
        if unknown_token in vocabulary.entries and not vocabulary.has_pieces:
            raise InputError(
                f"unknown_token is {brief(unknown_token)}, which is also a word of "
                f"{options.vocabulary}; remove the word from this file"
            )
        vocabulary = dataclasses.replace(vocabulary, unknown_token=unknown_token)
    elif vocab_size is options.min_count is options.subwords is None:
        vocab_size = DEFAULT_VOCAB_SIZE
    options = dataclasses.replace(
        options,
        fractions=list(fractions),
        vocab_size=vocab_size,
        encoding=checked_encoding(options.encoding),
    )
    text = dataclasses.replace(text, lowercase=lowercase, unknown_token=unknown_token)
    return CorpusPlan(inputs, splits, text, options, collection, vocabulary)


def require_effect(text: TextOptions, options: PrepareOptions, read_as: set[str]) -> None:
    """Refuses options that have no effect on text in these formats."""
    values, defaults = vars(text) | vars(options), vars(PLAIN) | vars(DEFAULT_OPTIONS)
    if text.lowercase:
        # Lower case follows the language.
        values["language"] = PLAIN.language
    for name, needed in _FORMATS_OF.items():
        if values[name] != defaults[name] and read_as.isdisjoint(needed):
            raise InputError(
                f"{name} has no effect on text that is read as {', '.join(sorted(read_as))}; "
                f"remove --{name}"
            )


def _collection(name: str) -> Collection:
    if name not in COLLECTIONS:
        raise InputError(f"unknown corpus {brief(name)}; expected one of {', '.join(COLLECTIONS)}")
    return COLLECTIONS[name]


def _folder(source: TextSource, collection: Collection) -> TextPath:
    """The folder of a named corpus."""
    name = collection.name
    if isinstance(source, Mapping):
        raise InputError(f"{name} has its own splits; name only its folder")
    if source is not None and collection.home:
        raise InputError(f"{name} is embedded and takes no input; remove --input")
    if source is None and not collection.home:
        raise InputError(f"{name} has no input; set --input to the folder of {collection.title}")
    return source or (collection.home() if collection.home else "")


def _named(source: TextSource) -> dict[str, TextPath]:
    """The inputs by the names of `Plan.inputs`."""
    if not isinstance(source, Mapping):
        return {INPUT: source or ""}
    splits = "--train, --valid and --test"
    if not source:
        raise InputError(f"no text is named; add --{INPUT}, or any of {splits}, or --corpus")
    names = [name for name in (INPUT, *corpus.SPLITS) if name in source]
    if len(names) < len(source) or (INPUT in names and len(names) > 1):
        raise InputError(
            f"the inputs are {' and '.join(f'--{name}' for name in source)}; choose --{INPUT} "
            f"alone, or any of {splits}"
        )
    return {name: source[name] for name in names}


def _checked(fractions: Sequence[float]) -> Sequence[float]:
    """The shares of the splits."""
    if (
        len(fractions) != len(corpus.SPLITS)
        or not all(0 <= share <= 1 for share in fractions)
        or abs(sum(fractions) - 1) > 1e-6
    ):
        raise InputError(
            f"split is {','.join(f'{share:g}' for share in fractions)}; expected three shares of "
            "train, valid and test that add up to 1"
        )
    return fractions
