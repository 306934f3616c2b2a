"""Text files into documents: lists of tokenised sentences, one document in memory at a time."""

import collections
import dataclasses
import io
import itertools
import json
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from dclm_jax.data import prose, treebank
from dclm_jax.data.documents import (
    Document,
    Line,
    TextOptions,
    decode,
    file_label,
    input_files,
    read_lines,
)
from dclm_jax.data.known_corpora import COLLECTIONS
from dclm_jax.errors import InputError, printable, shown
from dclm_jax.files import parse_json

TEXT_FORMATS = ("auto", "lines", "tagged", "jsonl", "treebank", "prose", "paragraphs")
FORMATS = (*TEXT_FORMATS, *COLLECTIONS)
STDIN = "-"

Read = TypeVar("Read")

_JSON = (".jsonl", ".json")
_RAW = ("prose", "paragraphs")
_BOUNDARY = "="
_TAG = "/"


@dataclasses.dataclass
class ReadStatistics:
    """What has been read so far; `read_documents` counts in it."""

    documents: int = 0
    sentences: int = 0
    tokens: int = 0
    empty_sentences: int = 0
    empty_documents: int = 0


def read_documents(
    path: str | pathlib.Path,
    format: str = "auto",
    *,
    lowercase: bool = False,
    statistics: ReadStatistics | None = None,
    name: str | None = None,
    keep_empty: bool = False,
) -> Iterator[Document]:
    """Reads documents as a stream.

    Formats:
      lines: a tokenised sentence a line; a blank line or one that begins with "=" ends a document
        (several in a row count as one).
      tagged: as lines, of tokens WORD/TAG; a word may hold slashes, a tag may not. A line that
        begins with "=" ends a document only if its first token holds no slash.
      jsonl: an object a line, {"id": ..., "sentences": [...]}; a sentence is a string of words
        separated by spaces or a list of words; the id is optional, and so are "tags", written as
        the sentences are and with one tag a word.
      treebank: bracketed trees of the Penn Treebank, ( (S (NP (PRP It)) (VP (VBD slept))) ); a file
        is a document and is called as such. Words and tags as `treebank` finds them.
      prose: raw text, split into sentences by pysbd and words by sacremoses; a blank line ends a
        paragraph, a line that begins with "=" a document.
      paragraphs: raw text of which every line is a document, split as prose; a line that begins
        with "=" is a heading, and left out.
      sotu, imdb, bbc, ptb, nant: `known_corpora`, of which `path` is the folder.
      auto: lines.

    Files named .jsonl or .json are of the format jsonl, whatever is said.

    Documents without a name of their own are called FILE:LINE, after the line they begin on.
    Empty sentences, and documents with no others, are left out and counted. The latter are an
    object of `jsonl` without words, and a blank line of `paragraphs`.

    Args:
      path: a file, a folder (its files are read recursively in the order of their names, hidden
        ones left out), or "-" for standard input.
      format: one of `FORMATS`.
      lowercase: turn all words to lower case.
      statistics: counts are added to it while documents are read.
      name: what to call a single file in ids and messages, instead of its own name.
      keep_empty: yield documents without words as well.

    Raises:
      InputError: (as the stream is read) the input is missing, empty, not UTF-8, of another format
        than said or without a document; the message names file and line.
    """
    if format not in FORMATS:
        raise InputError(f"unknown format {format!r}; expected one of {', '.join(FORMATS)}")
    statistics = statistics or ReadStatistics()
    blocks = _read_blocks(path, format, name)
    found = False
    for document in _kept(blocks, lowercase, statistics, keep_empty):
        found = True
        yield document
    if not found:
        raise InputError(f"{name or path}: holds no documents")


def parse_documents(text: str, options: TextOptions) -> Iterator[Document]:
    """The documents in a text, named text:LINE; as `read_documents` reads a file.

    Raises:
      InputError: (as they are read) it is not of that format.
    """
    lines = decode(io.BytesIO(text.encode("utf-8")), "text")
    blocks = _PARSERS[_of_text(options.format)](lines, "text", "text")
    return _kept(blocks, options.lowercase, ReadStatistics(), keep_empty=False)


def remembered(format: str, lowercase: bool) -> TextOptions:
    """How text is read like that which was read so: files of words and sentences as lines of them,
    raw text as that."""
    if format in COLLECTIONS:
        format = COLLECTIONS[format].text_format
    return TextOptions(format if format in _RAW else TextOptions.format, lowercase)


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


def read_candidates(path: str) -> Iterator[str]:
    """The lines of a file, or of standard input ("-"), each of which has words.

    Raises:
      InputError: (as the stream is read) the input is missing, empty, not UTF-8, or a line has no
        words; the message names file and line.
    """
    lines = decode(sys.stdin.buffer, STDIN) if path == STDIN else read_lines(pathlib.Path(path))
    for number, text in lines:
        if not text.strip():
            raise InputError(f"{path}:{number}: holds no words; expected a sentence a line")
        yield text


def _read_blocks(path: str | pathlib.Path, format: str, name: str | None) -> Iterator[Document]:
    if format in COLLECTIONS:
        yield from COLLECTIONS[format].read(path)
        return
    if str(path) == STDIN:
        parse = _PARSERS[_of_text(format)]
        yield from parse(decode(sys.stdin.buffer, STDIN), name or STDIN, STDIN)
        return
    for file in input_files(path):
        is_json = file.suffix.lower() in _JSON
        source, parse = name or str(file), _PARSERS["jsonl" if is_json else _of_text(format)]
        called = printable(name) if name else file_label(file, path)
        yield from parse(read_lines(file, source), called, source)


def _of_text(format: str) -> str:
    """The format of text whose name does not say it."""
    return "lines" if format == "auto" else format


def _blocks(lines: Iterable[Line], is_boundary: Callable[[Line], bool]) -> Iterator[list[Line]]:
    """Runs of lines, without the boundaries between them."""
    for at_boundary, block in itertools.groupby(lines, is_boundary):
        if not at_boundary:
            yield list(block)


def _is_blank(line: Line) -> bool:
    return not line.text.strip()


def _parse_lines(lines: Iterable[Line], label: str, source: str) -> Iterator[Document]:
    del source
    for block in _blocks(lines, lambda one: _is_blank(one) or one.text.startswith(_BOUNDARY)):
        yield Document(f"{label}:{block[0].number}", [text.split() for _, text in block])


def _parse_tagged(lines: Iterable[Line], label: str, source: str) -> Iterator[Document]:
    def is_boundary(line: Line) -> bool:
        is_heading = line.text.startswith(_BOUNDARY) and _TAG not in line.text.split()[0]
        return is_heading or _is_blank(line)

    for block in _blocks(lines, is_boundary):
        sentences, tags = [], []
        for number, text in block:
            pairs = [token.rpartition(_TAG)[::2] for token in text.split()]
            for (word, tag), token in zip(pairs, text.split(), strict=True):
                if not word or not tag:
                    raise InputError(
                        f"{source}:{number}: expected a word and its tag as WORD/TAG, got "
                        f"{shown(token)}"
                    )
            sentences.append([word for word, _ in pairs])
            tags.append([tag for _, tag in pairs])
        yield Document(f"{label}:{block[0].number}", sentences, tags)


@dataclasses.dataclass(frozen=True)
class _Record:
    sentences: list[Any]
    tags: list[Any] | None = None
    id: Any = None


def _parse_jsonl(lines: Iterable[Line], label: str, source: str) -> Iterator[Document]:
    for number, text in itertools.filterfalse(_is_blank, lines):
        where = f"{source}:{number}"
        record = parse_json(text, where, _Record)
        sentences = [_json_words(sentence, "word", where) for sentence in record.sentences]
        tags = None
        if record.tags is not None:
            tags = [_json_words(sentence, "tag", where) for sentence in record.tags]
            _check_tags(sentences, tags, where)
        name = f"{label}:{number}" if record.id is None else record.id
        if isinstance(name, bool) or not isinstance(name, str | int):
            raise InputError(f"{where}: expected 'id' to be a string or a whole number")
        if str(name).splitlines() != [str(name)]:
            raise InputError(f"{where}: expected 'id' to be one line of text")
        document = Document(str(name), sentences, tags)
        if "\\u" in text:
            try:
                json.dumps(document, ensure_ascii=False).encode("utf-8")
            except UnicodeEncodeError as error:
                raise InputError(
                    f"{where}: holds half of a surrogate pair, which is no text"
                ) from error
        yield document


def _json_words(sentence: Any, kind: str, where: str) -> list[str]:
    if isinstance(sentence, str):
        return sentence.split()
    if isinstance(sentence, list) and all(isinstance(word, str) for word in sentence):
        for word in sentence:
            if word.split() != [word]:
                raise InputError(f"{where}: a {kind} is empty or holds white space: {shown(word)}")
        return sentence
    of = "" if kind == "word" else f"the {kind}s of "
    raise InputError(f"{where}: expected {of}each sentence to be a string or a list of {kind}s")


def _check_tags(sentences: list[list[str]], tags: list[list[str]], where: str) -> None:
    if len(tags) != len(sentences):
        raise InputError(f"{where}: has {len(sentences)} sentences but tags for {len(tags)}")
    for number, (words, own) in enumerate(zip(sentences, tags, strict=True), start=1):
        if len(words) != len(own):
            raise InputError(
                f"{where}: sentence {number} has {len(words)} words but {len(own)} tags"
            )


def _parse_treebank(lines: Iterable[Line], label: str, source: str) -> Iterator[Document]:
    yield treebank.document(label, treebank.read_trees(lines, source))


def _parse_prose(lines: Iterable[Line], label: str, source: str) -> Iterator[Document]:
    del source

    def documents() -> Iterator[tuple[str, prose.Paragraphs]]:
        for block in _blocks(lines, lambda line: line.text.lstrip().startswith(_BOUNDARY)):
            if paragraphs := list(_blocks(block, _is_blank)):
                texts = [" ".join(text.strip() for _, text in lines) for lines in paragraphs]
                yield f"{label}:{paragraphs[0][0].number}", texts

    return _split(documents())


def _parse_paragraphs(lines: Iterable[Line], label: str, source: str) -> Iterator[Document]:
    del source
    return _split(
        (f"{label}:{number}", [text.strip()])
        for number, text in lines
        if not text.lstrip().startswith(_BOUNDARY)
    )


def _split(documents: Iterable[tuple[str, prose.Paragraphs]]) -> Iterator[Document]:
    """Named documents of raw text, split into sentences and words."""
    # The splitter takes documents in before it hands the first one out.
    names: collections.deque[str] = collections.deque()

    def texts() -> Iterator[prose.Paragraphs]:
        for name, paragraphs in documents:
            names.append(name)
            yield paragraphs

    for sentences in prose.split_documents(texts()):
        yield Document(names.popleft(), sentences)


_PARSERS: dict[str, Callable[[Iterable[Line], str, str], Iterator[Document]]] = {
    "lines": _parse_lines,
    "tagged": _parse_tagged,
    "jsonl": _parse_jsonl,
    "treebank": _parse_treebank,
    "prose": _parse_prose,
    "paragraphs": _parse_paragraphs,
}
