"""Text files into documents: lists of tokenised sentences, one document in memory at a time."""

import collections
import dataclasses
import functools
import io
import itertools
import pathlib
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TypeVar

from dclm_jax.data import corpus, guesses, prose, records, treebank, wikitext
from dclm_jax.data.documents import (
    PLAIN,
    UTF8,
    Document,
    Line,
    TextOptions,
    ahead,
    decode,
    file_label,
    input_files,
    name_suffix,
    read_lines,
)
from dclm_jax.data.known_corpora import COLLECTIONS
from dclm_jax.data.records import Text
from dclm_jax.errors import InputError, printable, shown

STDIN = "-"

Read = TypeVar("Read")

Report = Callable[[str], None]

RAW_JSONL = "raw jsonl"
KEYED = ("csv", "tsv", RAW_JSONL)
"""Formats of records that hold raw text under a key."""
_BY_NAME = {".jsonl": "jsonl", ".json": "jsonl", ".csv": "csv", ".tsv": "tsv"}
_DETAILS = re.compile(r"[(:;,]| with ")
# Formats of files whose names do not say it; where several were read the first one counts.
_REMEMBERED = ("paragraphs", "prose", "tagged", "treebank", "articles", "articles_body")
_BOUNDARY = "="
_ONE_WORD, _LONGEST_WORD = re.compile(r"\S+"), 1_000_000
_TAG = "/"


@dataclasses.dataclass
class ReadStatistics:
    """What has been read so far; `read_documents` counts in it."""

    documents: int = 0
    sentences: int = 0
    tokens: int = 0
    empty_sentences: int = 0
    empty_documents: int = 0
    formats: set[str] = dataclasses.field(default_factory=set, compare=False)
    """How texts were read; RAW_JSONL is one of them."""


def read_documents(
    path: str | pathlib.Path,
    format: str = "auto",
    *,
    lowercase: bool = False,
    normalize: bool = False,
    text_key: str | None = None,
    encoding: str = UTF8,
    statistics: ReadStatistics | None = None,
    name: str | None = None,
    keep_empty: bool = False,
    report: Report = lambda line: None,
) -> Iterator[Document]:
    """Reads documents as a stream.

    Formats:
      lines: a tokenised sentence a line; a blank line or one that begins with "=" ends a document
        (several in a row count as one).
      tagged: as lines, of tokens WORD/TAG; a word may hold slashes, a tag may not. A line that
        begins with "=" ends a document only if its first token holds no slash.
      jsonl: an object a line, {"id": ..., "sentences": [...]}; a sentence is a string of words
        separated by spaces or a list of words; the id is optional, and so are "tags", written as
        the sentences are and with one tag a word. Or an object with raw text, {"id": ..., "text":
        "..."}, split as prose; the first one says which they are.
      treebank: bracketed trees of the Penn Treebank, ( (S (NP (PRP It)) (VP (VBD slept))) ); a file
        is a document and is called as such. Words and tags as `treebank` finds them.
      articles, articles_body: lines of words as those of WikiText, which are paragraphs under
        headings, divided as `wikitext` does; of articles_body without their headings.
      prose: raw text, split into sentences by pysbd and words by sacremoses; a blank line ends a
        paragraph, a line that begins with "=" a document.
      paragraphs: raw text of which every line is a document, split as prose; a line that begins
        with "=" is a heading, and left out.
      csv, tsv: a table with a header, its cells separated by commas or tabulators and quoted where
        they hold such or line breaks. One column is raw text, split as prose; a blank line ends a
        paragraph. Names are in the column "id", if there is one.
      the names of `known_corpora`: their texts, of which `path` is the folder.
      auto: tagged, if nearly all tokens of the first lines are WORD/TAG, otherwise lines.

    Files named .jsonl or .json, .csv and .tsv are of these formats, whatever is said. Any of them
    may be compressed, NAME.gz or NAME.bz2.

    Documents without a name of their own are called FILE:LINE, after the line they begin on; two of
    the same name are refused. Empty sentences, and documents with no others, are left out and
    counted. The latter are records without words, and a blank line of `paragraphs`.

    Args:
      path: a file, a folder (its files are read recursively in the order of their names, hidden
        ones left out), or "-" for standard input.
      format: one of `FORMATS`.
      lowercase: turn all words to lower case.
      normalize: of raw text, first write quotes, dashes and other punctuation as Moses does; words
        that are given as such stay as they are, since their spaces are those of the text.
      text_key: the key or column that holds raw text, by default "text".
      encoding: of text, but for `known_corpora`.
      statistics: counts are added to it while documents are read.
      name: what to call a single file in ids and messages, instead of its own name.
      keep_empty: yield documents without words as well.
      report: called with a line for what is guessed, and for what text seems to be instead.

    Raises:
      InputError: (as the stream is read) the input is missing, empty, not in this encoding (raw
        text is looked through before its sentences are split), of another format than said or
        without a document; the message names file and line.
    """
    if format not in FORMATS:
        raise InputError(f"unknown format {format!r}; expected one of {', '.join(FORMATS)}")
    statistics = statistics or ReadStatistics()
    found = False
    if format in COLLECTIONS:
        blocks = COLLECTIONS[format].read(path)
    else:
        texts = _texts(path, format, name, encoding, text_key)
        tell = _telling_once(report)
        guessed: list[str] = []
        parsed = (_parse(*one, normalize, statistics.formats, tell, guessed) for one in texts)
        blocks = itertools.chain.from_iterable(parsed)
    for document in _kept(blocks, lowercase, statistics, keep_empty):
        found = True
        yield document
    if not found:
        raise InputError(f"{name or path}: holds no documents")


def parse_documents(text: str, options: TextOptions, name: str = "text") -> Iterator[Document]:
    """The documents in a text, named NAME:LINE; as `read_documents` reads a file.

    Raises:
      InputError: (as they are read) it is not of that format.
    """
    if options.format not in TEXT_FORMATS:
        expected = ", ".join(TEXT_FORMATS)
        raise InputError(f"unknown format {options.format!r}; expected one of {expected}")
    try:
        content = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(f"{name} holds half of a surrogate pair, which is no text") from error
    lines = decode(io.BytesIO(content), name)
    statistics = ReadStatistics()
    whole = Text(lines, name, name, options.text_key, {})
    tell = _telling_once(lambda line: None)
    # A string is too short to guess from.
    blocks = _parse(
        options.format, whole, options.normalize, statistics.formats, tell, guessed=["lines"]
    )
    yield from _kept(blocks, options.lowercase, statistics, keep_empty=False)
    if not statistics.documents:
        raise InputError(f"{name}: holds no documents")


def remembered(options: TextOptions, formats: Collection[str] = ()) -> TextOptions:
    """How text is read like that which was read so: raw text as that, tagged words, trees and
    articles as those, other words as lines of them.

    Args:
      options: what was asked for.
      formats: how the text was read, `ReadStatistics.formats`.
    """
    if options.format in COLLECTIONS:
        formats = {COLLECTIONS[options.format].text_format}
    found = {options.format, *formats}
    is_keyed = not found.isdisjoint(KEYED)
    format = next((one for one in _REMEMBERED if one in found), TextOptions.format)
    if is_keyed:
        format = "prose"
    is_raw = format in _RAW
    return dataclasses.replace(
        options,
        format=format,
        normalize=options.normalize and is_raw,
        text_key=options.text_key if is_keyed or is_raw else None,
    )


def finds_words(options: TextOptions) -> bool:
    """Whether these `remembered` options find words in raw text, rather than take them as given."""
    return options.format in _RAW


def read_alike(options: TextOptions, trained: TextOptions) -> bool:
    """Whether text of these options becomes words like that which `remembered` gave the others:
    words are words, whatever is beside them, JSON lines say themselves what they hold, and where
    text lies in a record does not matter."""
    format = remembered(options).format
    if options.format == "jsonl" or _RAW.keys().isdisjoint((format, trained.format)):
        format = trained.format
    return dataclasses.replace(options, format=format, text_key=trained.text_key) == trained


def _kept(
    blocks: Iterable[Document], lowercase: bool, statistics: ReadStatistics, keep_empty: bool
) -> Iterator[Document]:
    """Documents without their empty sentences, all words in lower case if they are to be."""
    for identifier, sentences, tags in blocks:
        kept = [sentence for sentence in sentences if sentence]
        statistics.empty_sentences += len(sentences) - len(kept)
        statistics.empty_documents += not kept
        if not (kept or keep_empty):
            continue
        statistics.documents += 1
        statistics.sentences += len(kept)
        statistics.tokens += sum(map(len, kept))
        if lowercase:
            kept = [[word.lower() for word in sentence] for sentence in kept]
        # A sentence has as many tags as words, so the empty ones are the same.
        yield Document(identifier, kept, tags and [sentence for sentence in tags if sentence])


def corresponding(
    texts: Sequence[Iterable[Read]], paths: Sequence[str | pathlib.Path]
) -> Iterator[tuple[Read, ...]]:
    """What is at the same place in several texts; to be read with `keep_empty`.

    Raises:
      InputError: (at their end) they hold different numbers of documents.
    """
    counts = [0] * len(texts)
    for found in itertools.zip_longest(*texts):
        counts = [count + (one is not None) for count, one in zip(counts, found, strict=True)]
        if None not in found:
            yield found
    if len(set(counts)) > 1:
        of_texts = " and ".join(map("{} holds {:,} documents".format, paths, counts))
        raise InputError(f"{of_texts}; expected as many, in the same order")


def read_candidates(
    path: str, options: TextOptions = PLAIN, encoding: str = UTF8
) -> Iterator[list[str]]:
    """The words of each line of a file, or of standard input ("-"), a sentence each.

    They are found as in text that is read with these options: in raw text as Moses does, in lines
    of words between white space.

    Raises:
      InputError: (as the stream is read) the input is missing, empty, not in this encoding, or a
        line has no words; the message names file and line.
    """
    if path == STDIN:
        lines = decode(sys.stdin.buffer, STDIN, encoding)
    else:
        lines = read_lines(pathlib.Path(path), encoding=encoding)
    words = str.split
    if finds_words(remembered(options)):
        words = prose.word_tokenizer(normalize=options.normalize)
    for number, text in lines:
        if not text.strip():
            raise InputError(f"{path}:{number}: holds no words; expected a sentence a line")
        # As documents are: words are found before they lose their capitals.
        yield [word.lower() if options.lowercase else word for word in words(text)]


def check_characters(path: str | pathlib.Path, encoding: str, name: str | None = None) -> None:
    """Looks through a text before what takes long; pipes, which are read once, are left out.

    Raises:
      InputError: as `read_documents`, for what is not in the encoding.
    """
    for file in [] if str(path) == STDIN else input_files(path):
        if file.is_file():
            collections.deque(read_lines(file, name, encoding=encoding), maxlen=0)


def _texts(
    path: str | pathlib.Path, format: str, name: str | None, encoding: str, text_key: str | None
) -> Iterator[tuple[str, Text]]:
    """Each text of an input and its format."""
    make = functools.partial(Text, text_key=text_key, ids={})
    if str(path) == STDIN:
        lines = decode(sys.stdin.buffer, STDIN, encoding)
        yield format, make(lines, label=name or STDIN, source=STDIN)
        return
    files = input_files(path)
    formats = [_BY_NAME.get(name_suffix(file), format) for file in files]
    if not _RAW.keys().isdisjoint(formats):
        check_characters(path, encoding, name)
    for file, own in zip(files, formats, strict=True):
        source, label = name or str(file), printable(name) if name else file_label(file, path)
        yield own, make(read_lines(file, source, encoding=encoding), label=label, source=source)


def _parse(
    format: str,
    text: Text,
    normalize: bool,
    formats: set[str],
    tell: Callable[[str, str, str], None],
    guessed: list[str],
) -> Iterator[Document]:
    """The documents of a text; its format, when it is known, goes into `formats`, and what is
    guessed of the first text of an input into `guessed`, for the others."""
    head, lines = ahead(text.lines, guesses.FIRST_LINES)
    text = text._replace(lines=lines)
    if format == "auto":
        if not guessed:
            guessed.append("tagged" if guesses.is_tagged(head) else "lines")
        (format,) = guessed
        if format == "tagged":
            tell("note", text.source, "read as tagged text: its words are WORD/TAG")
    is_raw = format in _RAW
    if format in _WORDS and is_raw:
        is_raw = records.holds_raw_text(head, text.text_key)
    own = RAW_JSONL if is_raw and format == "jsonl" else format
    formats.add(own)
    if own in KEYED:
        key = text.text_key or records.DEFAULT_TEXT_KEY
        tell("note", text.source, f"read as {format.upper()}, the raw text of its {shown(key)}")
    for warning in guesses.warnings(head, format):
        tell("warning", text.source, warning)
    if not is_raw:
        return _WORDS[format](text)
    return _split(_RAW[format](text), normalize, text.source)


def _telling_once(report: Report) -> Callable[[str, str, str], None]:
    """Reports a kind of line, the name of a text and what there is to say of it; of several texts
    of which the same is said only the first."""
    told: set[str] = set()

    def tell(kind: str, source: str, message: str) -> None:
        said = _DETAILS.split(message)[0]
        if said not in told:
            told.add(said)
            report(f"{kind}: {source}: {message}")

    return tell


def _blocks(lines: Iterable[Line], is_boundary: Callable[[Line], bool]) -> Iterator[list[Line]]:
    """Runs of lines, without the boundaries between them."""
    for at_boundary, block in itertools.groupby(lines, is_boundary):
        if not at_boundary:
            yield list(block)


def _is_blank(line: Line) -> bool:
    return not line.text.strip()


def _parse_lines(text: Text) -> Iterator[Document]:
    for block in _blocks(text.lines, lambda one: _is_blank(one) or one.text.startswith(_BOUNDARY)):
        yield Document(f"{text.label}:{block[0].number}", [line.split() for _, line in block])


def _parse_tagged(text: Text) -> Iterator[Document]:
    def is_boundary(line: Line) -> bool:
        is_heading = line.text.startswith(_BOUNDARY) and _TAG not in line.text.split()[0]
        return is_heading or _is_blank(line)

    for block in _blocks(text.lines, is_boundary):
        sentences, tags = [], []
        for number, line in block:
            pairs = [token.rpartition(_TAG)[::2] for token in line.split()]
            for (word, tag), token in zip(pairs, line.split(), strict=True):
                if not word or not tag:
                    raise InputError(
                        f"{text.source}:{number}: expected a word and its tag as WORD/TAG, got "
                        f"{shown(token)} (--format=lines reads words without tags)"
                    )
            sentences.append([word for word, _ in pairs])
            tags.append([tag for _, tag in pairs])
        yield Document(f"{text.label}:{block[0].number}", sentences, tags)


def _parse_treebank(text: Text) -> Iterator[Document]:
    yield treebank.document(text.label, treebank.read_trees(text.lines, text.source))


def _parse_articles(text: Text, headings: bool) -> Iterator[Document]:
    for first, sentences in wikitext.articles(text.lines, headings=headings):
        yield Document(f"{text.label}:{first}", sentences)


def _parse_prose(text: Text) -> Iterator[records.RawDocument]:
    for block in _blocks(text.lines, lambda line: line.text.lstrip().startswith(_BOUNDARY)):
        if paragraphs := list(_blocks(block, _is_blank)):
            texts = [" ".join(line.strip() for _, line in lines) for lines in paragraphs]
            yield f"{text.label}:{paragraphs[0][0].number}", texts


def _parse_paragraphs(text: Text) -> Iterator[records.RawDocument]:
    for number, line in text.lines:
        if not line.lstrip().startswith(_BOUNDARY):
            yield f"{text.label}:{number}", [line.strip()]


def _split(
    documents: Iterable[records.RawDocument], normalize: bool, source: str
) -> Iterator[Document]:
    """Named documents of raw text, split into sentences and words."""
    # The splitter takes documents in before it hands the first one out.
    names: collections.deque[str] = collections.deque()

    def texts() -> Iterator[prose.Paragraphs]:
        for name, paragraphs in documents:
            # It would be cut into thousands of sentences.
            if any(map(_has_long_word, paragraphs)):
                raise InputError(
                    f"{source}: the document {shown(name)} holds a word of more than "
                    f"{_LONGEST_WORD:,} characters; expected prose"
                )
            names.append(name)
            yield paragraphs

    for sentences in prose.split_documents(texts(), normalize=normalize):
        yield Document(names.popleft(), sentences)


def _has_long_word(text: str) -> bool:
    if len(text) <= _LONGEST_WORD:
        return False
    words = _ONE_WORD.finditer(text)
    return any(word.end() - word.start() > _LONGEST_WORD for word in words)


_WORDS: dict[str, Callable[[Text], Iterator[Document]]] = {
    "lines": _parse_lines,
    "tagged": _parse_tagged,
    "jsonl": records.read_sentences,
    "treebank": _parse_treebank,
    "articles": functools.partial(_parse_articles, headings=True),
    "articles_body": functools.partial(_parse_articles, headings=False),
}
_RAW: dict[str, Callable[[Text], Iterator[records.RawDocument]]] = {
    "prose": _parse_prose,
    "paragraphs": _parse_paragraphs,
    "jsonl": records.read_objects,
    "csv": functools.partial(records.read_rows, kind="csv"),
    "tsv": functools.partial(records.read_rows, kind="tsv"),
}
TEXT_FORMATS = ("auto", *dict.fromkeys([*_WORDS, *_RAW]))
FORMATS = (*TEXT_FORMATS, *COLLECTIONS)


def training_text(manifest: corpus.Manifest) -> corpus.TrainingText:
    """What a run that is trained on a corpus is to remember of its text. Of an older corpus it
    follows from the options that it was made with."""
    text, made = manifest.text, manifest.options
    if text is None and made.get("format") in FORMATS:
        text = remembered(TextOptions(made["format"], made.get("lowercase") is True))
    rates = {name: one.oov_rate for name, one in manifest.splits.items()}
    return corpus.TrainingText(text, rates)
