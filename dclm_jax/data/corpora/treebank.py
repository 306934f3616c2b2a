r"""Licensed corpora of parses: the Penn Treebank and BLLIP's North American News Text.

Only the words of a parse and their tags are read. Words keep the treebank's spelling, with its
signs for brackets (-LRB-) and quotes (`` and ''). Empty elements such as traces (tagged -NONE-) are
omitted, and \/ and \* become / and *.

Both corpora need a licence. These readers follow published descriptions of the files and were
tested on small hand-written files, never on the corpora:

- the Penn Treebank from the README files of its releases (LDC95T7, LDC99T42);
- BLLIP North American News Text (LDC2008T13) from its catalogue entry, the README of the parser
  that wrote it (github.com/BLLIP/bllip-parser, first-stage: n-best lists) and two public programs
  that read it. The release has four disks of data/NUMBER/NUMBER-SOURCE-FIRST-LAST.bz2. A sentence
  is a line with its number of parses and DOCUMENT_..._SENTENCE, then for each parse a line of
  scores and a line of brackets.
"""

import bisect
import itertools
import pathlib
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from dclm_jax.data.corpus import SPLITS
from dclm_jax.data.documents import Document
from dclm_jax.data.text_files import (
    TextLine,
    files_in,
    input_files,
    is_compressed,
    read_lines,
)
from dclm_jax.errors import InputError, brief

_SECTIONS = tuple(f"{number:02}" for number in range(25))
_FOLDERS = ("parsed/mrg/wsj", "combined/wsj")
_PARSED = re.compile(r"wsj_[0-9]{4}\.mrg")

_TOKEN = re.compile(r"[()]|[^\s()]+")
_EMPTY_ELEMENT = "-NONE-"
# Represents a nested bracket; no word is equal to it.
_BRACKET = "("

_HEADER = re.compile(r"([0-9]{1,9})\s(?:.*\s)?([^\s_]+)_\S*")


class Tree(NamedTuple):
    """The words of a parse and their tags."""

    words: list[str]
    tags: list[str]


def read_ptb(root: str | pathlib.Path) -> Iterator[Document]:
    """The Wall Street Journal of the Penn Treebank, one document per file, called 00/wsj_0001."""
    for file in itertools.chain(*ptb_files(root).values()):
        trees = read_trees(read_lines(file, fallbacks=("latin-1",)), str(file))
        yield tagged_document(f"{file.parent.name}/{file.stem}", trees)


def ptb_split(section: str) -> int:
    """The index of the split of a section, as in Ji et al. (2015, section 3): 0-20 are for
    training, 21-22 for validation and 23-24 for testing."""
    return bisect.bisect_right([21, 23], int(section))


def ptb_files(root: str | pathlib.Path) -> dict[str, list[pathlib.Path]]:
    """The files of each split of the Penn Treebank, in order.

    The sections are the folders 00 to 24 in `root` itself, or else in its parsed/mrg/wsj
    (LDC99T42) or combined/wsj (LDC95T7). The first of these folders with sections is read.
    Documents are the files wsj_NNNN.mrg.
    """
    root = pathlib.Path(root)
    for folder in (root, *(root / name for name in _FOLDERS)):
        missing = [section for section in _SECTIONS if not (folder / section).is_dir()]
        if len(missing) < len(_SECTIONS):
            break
    else:
        raise InputError(
            f"{root}: has no sections of the Penn Treebank; expected the folders 00 to 24 in it, "
            f"or in its {' or '.join(_FOLDERS)}"
        )
    if missing:
        raise InputError(
            f"{folder}: has only some sections of the Penn Treebank; expected the folders 00 to "
            f"24, missing {' '.join(missing)}"
        )
    splits: dict[str, list[pathlib.Path]] = {split: [] for split in SPLITS}
    for section in _SECTIONS:
        documents = [file for file in files_in(folder / section) if _PARSED.fullmatch(file.name)]
        if not documents:
            raise InputError(f"{folder / section}: has no files called wsj_NNNN.mrg")
        splits[SPLITS[ptb_split(section)]] += documents
    return splits


def read_nant(root: str | pathlib.Path) -> Iterator[Document]:
    """BLLIP North American News Text: the first parse in the n-best list of each sentence.

    All parses of a sentence have the same words. Consecutive sentences whose names are equal up to
    the first underscore are a document, which may continue in the next file. A sentence without a
    parse is empty.

    Args:
      root: see `nant_files`.
    """
    sentences = itertools.chain.from_iterable(map(_named_sentences, nant_files(root)))
    for name, group in itertools.groupby(sentences, key=lambda sentence: sentence[0]):
        yield tagged_document(name, (tree for _, tree in group))


def nant_files(root: str | pathlib.Path) -> list[pathlib.Path]:
    """The files of parses in a folder, any part of the release, and its subfolders: the compressed
    files (.bz2, .gz) if there are any, else all files."""
    files = input_files(root)
    return [file for file in files if is_compressed(file)] or files


def tagged_document(name: str, trees: Iterable[Tree]) -> Document:
    """A document of trees, with tags."""
    trees = list(trees)
    return Document(name, [tree.words for tree in trees], [tree.tags for tree in trees])


def read_trees(lines: Iterable[TextLine], source: str) -> Iterator[Tree]:
    """Bracketed trees; a tree may span lines, and a line may have several trees.

    Args:
      lines: lines of the file.
      source: name of the file in messages.
    """
    # The contents of open brackets; the words and tags of the tree; the tree's first line.
    stack: list[list[str]] = []
    tree, start = Tree([], []), 0
    for number, text in lines:
        for match in _TOKEN.finditer(text):
            token = match[0]
            if token == "(":
                start = start if stack else number
                stack.append([])
                continue
            if not stack:
                raise InputError(
                    f"{source}:{number}: {brief(token)} is outside of all trees; "
                    "expected trees such as (S (NP (PRP It)) (VP (VBD slept)))"
                )
            if token != ")":
                stack[-1].append(token)
                continue
            _close(stack.pop(), tree, is_root=not stack, where=f"{source}:{number}")
            if stack:
                stack[-1].append(_BRACKET)
            else:
                yield tree
                tree = Tree([], [])
    if stack:
        raise InputError(
            f"{source}:{start}: the tree that begins here does not end; add the missing )"
        )


def _close(content: list[str], tree: Tree, *, is_root: bool, where: str) -> None:
    """Adds the content of a closed bracket to the tree: its word, if it has one."""
    label = content[0] if content and content[0] != _BRACKET else None
    rest = content if label is None else content[1:]
    if label is not None and len(rest) == 1 and rest[0] != _BRACKET:
        if label != _EMPTY_ELEMENT:
            tree.words.append(rest[0].replace(r"\/", "/").replace(r"\*", "*"))
            tree.tags.append(label)
        return
    if set(rest) != {_BRACKET} or (label is None and not is_root):
        parts = " ".join("(...)" if part == _BRACKET else part for part in content[:9])
        raise InputError(
            f"{where}: expected (TAG WORD) or (LABEL (...) (...)), got {brief(f'({parts})')}"
        )


def _named_sentences(file: pathlib.Path) -> Iterator[tuple[str, Tree]]:
    """The sentences of a file, each with the name of its document."""

    def unexpected(line: TextLine, expected: str) -> InputError:
        return InputError(f"{file}:{line.number}: expected {expected}, got {brief(line.text)}")

    lines = read_lines(file, fallbacks=("latin-1",))
    lines = (TextLine(number, text.strip()) for number, text in lines if text.strip())
    for line in lines:
        header = _HEADER.fullmatch(line.text)
        if header is None:
            raise unexpected(line, "the number of parses of a sentence and DOCUMENT_SENTENCE")
        number, best = int(header[1]), Tree([], [])
        for rank in range(1, number + 1):
            scores, parse = next(lines, None), next(lines, None)
            if scores is None or parse is None:
                raise InputError(
                    f"{file}:{line.number}: expected {number} parses, each after a line of scores, "
                    f"but the file ends after {rank - 1}"
                )
            if not parse.text.startswith("("):
                raise unexpected(parse, f"parse {rank} of {number}")
            if rank == 1:
                best, *more = read_trees([parse], str(file))
                if more:
                    raise InputError(f"{file}:{parse.number}: expected one parse, got several")
        yield header[2], best
