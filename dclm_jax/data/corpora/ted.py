"""TED talks as distributed by the evaluation campaign IWSLT (WIT3, Cettolo et al. 2012).

The folder of a pair of languages has talks for training, as lines of text between lines of tags
(not XML), and test sets as XML:

  train.tags.zh-en.en               <url>...</url>, <talkid>1</talkid>, <title>...</title> and so
                                    on, each on a line, then the talk, one sentence per line
  IWSLT14.TED.tst2010.zh-en.en.xml  <mteval><refset ...><doc docid="767"><seg id="1">...</seg>

The English side of the training talks is read, and those test sets of Lin et al. (2015, section
6.1) that are present; other files are ignored. Sentence boundaries are annotated; the tokenizer of
raw text splits sentences into words.
"""

import fnmatch
import html
import pathlib
import re
from collections.abc import Iterator
from xml.etree import ElementTree
from xml.parsers import expat

from dclm_jax.data import prose
from dclm_jax.data.documents import Document
from dclm_jax.data.text_files import files_in, read_lines
from dclm_jax.errors import InputError, brief, printable

TRAINING = "train"
TEST_SETS = ("tst2010", "tst2011", "tst2012")

_PATTERNS = {
    TRAINING: "train.tags.*-*.en",
    **{name: f"IWSLT*.TED.{name}.*-*.en.xml" for name in TEST_SETS},
}
_CREDITS = "reviewer translator".split()
_TAGS = ["url", "keywords", "speaker", "talkid", "title", "description", *_CREDITS]
_TAG_LINE = re.compile(rf"<({'|'.join(_TAGS)})(?:\s[^>]*)?>(.*)</\1>")
_MARK_LINE = re.compile(r"</?doc(?:\s[^>]*)?>")
_ENTITY = re.compile(r"&(?:amp|lt|gt|quot|apos|#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6});")

Talk = tuple[str, list[str]]
"""The number of a talk, and its sentences before tokenizing."""


def talk_files(root: str | pathlib.Path) -> dict[str, list[pathlib.Path]]:
    """Lists of one file: the training talks and each test set that is present."""
    folder = pathlib.Path(root)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; expected the folder of a pair of languages")
    names = [file.name for file in files_in(folder)]
    parts = {part: fnmatch.filter(names, pattern) for part, pattern in _PATTERNS.items()}
    for part, files in parts.items():
        if len(files) > 1 or (part == TRAINING and not files):
            raise InputError(
                f"{folder}: has {len(files) or 'no'} files {_PATTERNS[part]}; expected one"
            )
    if not any(parts[name] for name in TEST_SETS):
        raise InputError(
            f"{folder}: has no test set; expected files {_PATTERNS[TEST_SETS[0]]}, or of "
            + " or ".join(TEST_SETS[1:])
        )
    return {part: [folder / name for name in files] for part, files in parts.items() if files}


def read_talks(root: str | pathlib.Path) -> Iterator[Document]:
    """All talks as a stream, called train/NUMBER, then tst2010/NUMBER and so on."""
    words = prose.Tokenizer().words
    for part, files in talk_files(root).items():
        for file in files:
            number = None
            for number, sentences in (_tagged if part == TRAINING else _xml)(file):
                yield Document(printable(f"{part}/{number}"), [words(text) for text in sentences])
            if number is None:
                raise InputError(f"{file}: has no talks; expected at least one")


def _tagged(file: pathlib.Path) -> Iterator[Talk]:
    """The talks of a file of tags and text. A talk begins with a tag after text or a repeated
    tag."""
    start, header, sentences = 0, {}, []

    def talk() -> Talk:
        if not header.get("talkid"):
            raise InputError(f"{file}:{start}: the talk has no <talkid>; add the tag")
        return header["talkid"], sentences

    for line, text in read_lines(file):
        text = text.strip()
        if not text or _MARK_LINE.fullmatch(text):
            continue
        if text[0] != "<":
            if not header:
                raise InputError(f"{file}:{line}: expected tags before the text of a talk")
            sentences.append(_ENTITY.sub(lambda entity: html.unescape(entity[0]), text))
            continue
        match = _TAG_LINE.fullmatch(text)
        if match is None:
            raise InputError(
                f"{file}:{line}: expected text, or one of the tags {', '.join(_TAGS)} from its "
                f"beginning to its end; got {brief(text)}"
            )
        tag, value = match.groups()
        # Credits are before or after the text, one per person.
        if tag in _CREDITS:
            continue
        if sentences or tag in header:
            yield talk()
            header, sentences = {}, []
        start = start if header else line
        header[tag] = value.strip()
    if header:
        yield talk()


def _xml(file: pathlib.Path) -> list[Talk]:
    """The talks of a test set, whose files are small."""

    parser = ElementTree.XMLParser()
    try:
        # Text is decoded before parsing, so that a declared encoding has no effect.
        for _, text in read_lines(file):
            parser.feed(text)
        root = parser.close()
    except ElementTree.ParseError as error:
        reason = expat.ErrorString(error.code)
        raise InputError(f"{file}:{error.position[0]}: not well-formed XML: {reason}") from error
    return [
        (doc.get("docid", ""), ["".join(segment.itertext()) for segment in doc.iter("seg")])
        for doc in root.iter("doc")
    ]
