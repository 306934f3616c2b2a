"""Text files into documents: lists of tokenised sentences, one document in memory at a time."""

import collections
import dataclasses
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dclm_jax.data import layouts, prose, sotu, ted, treebank
from dclm_jax.data.documents import Document, Line, decode, input_files, read_lines
from dclm_jax.errors import InputError, printable, shown
from dclm_jax.files import parse_json

TEXT_FORMATS = ("auto", "lines", "tagged", "jsonl", "treebank", "prose")
_FOLDERS: dict[str, Callable[[str | pathlib.Path], Iterator[Document]]] = {
    "ptb": treebank.read_ptb,
    "nant": treebank.read_nant,
    "ted": ted.read_talks,
}
FORMATS = (*TEXT_FORMATS, "sotu", *layouts.LAYOUTS, *_FOLDERS)
STDIN = "-"

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
      sotu: the addresses in the `sotu` package; `path` is ignored.
      imdb, bbc: public corpora, of which `path` is the folder (see `layouts`).
      ptb, nant: licensed ones, likewise (see `treebank`).
      ted: the talks of IWSLT, likewise (see `ted`).
      auto: jsonl for files named .jsonl or .json, otherwise lines.

    Documents without a name of their own are called FILE:LINE, after the line they begin on.
    Empty sentences, and documents with no others, are left out and counted.

    Args:
      path: a file, a folder (its files are read recursively in the order of their names, hidden
        ones left out), or "-" for standard input.
      format: one of `FORMATS`.
      lowercase: turn all words to lower case.
      statistics: counts are added to it while documents are read.
      name: what to call a single file in ids and messages, instead of its own name.

    Raises:
      InputError: (as the stream is read) the input is missing, empty, not UTF-8, of another format
        than said or without a document; the message names file and line.
    """
    if format not in FORMATS:
        raise InputError(f"unknown format {format!r}; expected one of {', '.join(FORMATS)}")
    statistics = ReadStatistics() if statistics is None else statistics
    source = name or ("sotu" if format == "sotu" else str(path))
    found = False
    for block in _read_blocks(path, format, name):
        document = _clean(block, lowercase, statistics)
        if document is not None:
            found = True
            yield document
    if not found:
        raise InputError(f"{source}: holds no documents")


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
    if format == "sotu":
        yield from sotu.read_addresses()
        return
    if format in layouts.LAYOUTS:
        yield from layouts.read_texts(format, path)
        return
    if format in _FOLDERS:
        yield from _FOLDERS[format](path)
        return
    if str(path) == STDIN:
        parse = _PARSERS["lines" if format == "auto" else format]
        yield from parse(decode(sys.stdin.buffer, STDIN), name or STDIN, STDIN)
        return
    files = input_files(path)
    path = pathlib.Path(path)
    for file in files:
        label = name or (file.relative_to(path).as_posix() if path.is_dir() else file.name)
        # A file may be called anything, but the name of a document is a line of text.
        label, source, chosen = printable(label), name or str(file), format
        if format == "auto":
            chosen = "jsonl" if file.suffix.lower() in (".jsonl", ".json") else "lines"
        yield from _PARSERS[chosen](read_lines(file, source), label, source)


def _clean(block: Document, lowercase: bool, statistics: ReadStatistics) -> Document | None:
    kept = [sentence for sentence in block.sentences if sentence]
    # A sentence has as many tags as words, so the empty ones are the same.
    tags = None if block.tags is None else [sentence for sentence in block.tags if sentence]
    statistics.empty_sentences += len(block.sentences) - len(kept)
    if not kept:
        statistics.empty_documents += 1
        return None
    if lowercase:
        kept = [[word.lower() for word in sentence] for sentence in kept]
    statistics.documents += 1
    statistics.sentences += len(kept)
    statistics.tokens += sum(map(len, kept))
    return Document(block.id, kept, tags)


def _parse_lines(lines: Iterable[Line], label: str, source: str) -> Iterator[Document]:
    del source
    start, sentences = 0, []
    for number, text in lines:
        words = text.split()
        if words and not text.startswith(_BOUNDARY):
            start = start or number
            sentences.append(words)
        elif sentences:
            yield Document(f"{label}:{start}", sentences)
            start, sentences = 0, []
    if sentences:
        yield Document(f"{label}:{start}", sentences)


def _parse_tagged(lines: Iterable[Line], label: str, source: str) -> Iterator[Document]:
    start, sentences, tags = 0, [], []
    for number, text in lines:
        tokens = text.split()
        if tokens and not (text.startswith(_BOUNDARY) and _TAG not in tokens[0]):
            start = start or number
            pairs = [_tagged_word(token, f"{source}:{number}") for token in tokens]
            sentences.append([word for word, _ in pairs])
            tags.append([tag for _, tag in pairs])
        elif sentences:
            yield Document(f"{label}:{start}", sentences, tags)
            start, sentences, tags = 0, [], []
    if sentences:
        yield Document(f"{label}:{start}", sentences, tags)


def _tagged_word(token: str, where: str) -> tuple[str, str]:
    word, _, tag = token.rpartition(_TAG)
    if not word or not tag:
        raise InputError(f"{where}: expected a word and its tag as WORD/TAG, got {shown(token)}")
    return word, tag


@dataclasses.dataclass(frozen=True)
class _Record:
    sentences: list[Any]
    tags: list[Any] | None = None
    id: Any = None


def _parse_jsonl(lines: Iterable[Line], label: str, source: str) -> Iterator[Document]:
    for number, text in lines:
        if not text.strip():
            continue
        where = f"{source}:{number}"
        record = parse_json(text, where, _Record)
        sentences = [_json_words(sentence, "word", where) for sentence in record.sentences]
        tags = _json_tags(record.tags, sentences, where)
        identifier = _json_id(record.id, f"{label}:{number}", where)
        if "\\u" in text:
            _refuse_surrogates([[identifier], *sentences, *(tags or [])], where)
        yield Document(identifier, sentences, tags)


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


def _json_tags(
    record: list[Any] | None, sentences: list[list[str]], where: str
) -> list[list[str]] | None:
    if record is None:
        return None
    tags = [_json_words(sentence, "tag", where) for sentence in record]
    if len(tags) != len(sentences):
        raise InputError(f"{where}: has {len(sentences)} sentences but tags for {len(tags)}")
    for number, (words, own) in enumerate(zip(sentences, tags, strict=True), start=1):
        if len(words) != len(own):
            raise InputError(
                f"{where}: sentence {number} has {len(words)} words but {len(own)} tags"
            )
    return tags


def _json_id(identifier: Any, default: str, where: str) -> str:
    if identifier is None:
        return default
    if isinstance(identifier, bool) or not isinstance(identifier, str | int):
        raise InputError(f"{where}: expected 'id' to be a string or a whole number")
    if str(identifier).splitlines() != [str(identifier)]:
        raise InputError(f"{where}: expected 'id' to be one line of text")
    return str(identifier)


def _refuse_surrogates(sentences: list[list[str]], where: str) -> None:
    try:
        "".join(word for sentence in sentences for word in sentence).encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(f"{where}: holds half of a surrogate pair, which is no text") from error


def _parse_treebank(lines: Iterable[Line], label: str, source: str) -> Iterator[Document]:
    yield treebank.tree_document(lines, label, source)


def _parse_prose(lines: Iterable[Line], label: str, source: str) -> Iterator[Document]:
    del source
    # The splitter takes documents in before it hands the first one out.
    names: collections.deque[str] = collections.deque()

    def documents() -> Iterator[prose.Paragraphs]:
        for number, paragraphs in _prose_documents(lines):
            names.append(f"{label}:{number}")
            yield paragraphs

    for sentences in prose.split_documents(documents()):
        yield Document(names.popleft(), sentences)


def _prose_documents(lines: Iterable[Line]) -> Iterator[tuple[int, prose.Paragraphs]]:
    start, paragraphs, open_lines = 0, [], []
    for number, text in lines:
        text = text.strip()
        boundary = text.startswith(_BOUNDARY)
        if text and not boundary:
            start = start or number
            open_lines.append(text)
            continue
        if open_lines:
            paragraphs.append(" ".join(open_lines))
            open_lines = []
        if boundary and paragraphs:
            yield start, paragraphs
            start, paragraphs = 0, []
    if open_lines:
        paragraphs.append(" ".join(open_lines))
    if paragraphs:
        yield start, paragraphs


_PARSERS: dict[str, Callable[[Iterable[Line], str, str], Iterator[Document]]] = {
    "lines": _parse_lines,
    "tagged": _parse_tagged,
    "jsonl": _parse_jsonl,
    "treebank": _parse_treebank,
    "prose": _parse_prose,
}
