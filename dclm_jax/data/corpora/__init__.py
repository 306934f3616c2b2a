"""Named corpora: their files, how they are read, and how they are divided.

launch/text.md describes the corpora, their folders and their splits.

ptb and nant have annotated sentences and words, wikitext has annotated words, and ted has annotated
sentences. `prose` divides all other text except wikitext, at about 2,000 sentences per second on
one core.
"""

import dataclasses
import functools
import itertools
import pathlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dclm_jax.data import corpus
from dclm_jax.data.corpora import prose_folders, sotu, ted, treebank, wikitext
from dclm_jax.data.corpora.prose_folders import Files
from dclm_jax.data.documents import Document, TextFormat

DRAWN = -1
"""The index of the split of a document whose split is drawn at random."""


@dataclasses.dataclass(frozen=True)
class Collection:
    """A named corpus.

    Attributes:
      name: name of the corpus in `COLLECTIONS`.
      title: name of the corpus in messages.
      files: a function from the corpus's folder to its files, by the parts that a manifest counts.
      read: a function from the folder to the documents.
      parts: a function from the names of documents to the indices of their splits, or DRAWN.
      fractions: the shares of the splits that are drawn.
      text_format: the format in which a run reads other text: raw text, or lines of words.
      home: the folder of an embedded corpus, which is converted to lower case.
      facts: a function from the folder to further facts for the manifest.
      unknown_token: spelling of OOV words in the corpus.
    """

    name: str
    title: str
    files: Files
    read: Callable[[str | pathlib.Path], Iterator[Document]]
    parts: Callable[[Sequence[str]], list[int]] = lambda names: [DRAWN] * len(names)
    fractions: tuple[float, ...] = ()
    text_format: TextFormat = "prose"
    home: Callable[[], pathlib.Path] | None = None
    facts: Callable[[str | pathlib.Path], dict[str, Any]] = lambda root: {}
    unknown_token: str | None = None

    def describe(self, root: str | pathlib.Path) -> dict[str, Any]:
        """The corpus's name, checksum and numbers of files, for the manifest."""
        files = self.files(root)
        checksum = corpus.files_sha256(pathlib.Path(root), itertools.chain(*files.values()))
        counts = {part: len(listed) for part, listed in files.items()}
        return {"name": str(root), "sha256": checksum, "files": counts, **self.facts(root)}


def _named_first(names: Sequence[str]) -> list[int]:
    """The index of the split that begins each name."""
    return [corpus.SPLITS.index(name.split("/")[0]) for name in names]


def _title_and_paragraphs(text: str) -> list[str]:
    """The title of an article in its first line, and its paragraphs between blank lines."""
    return re.split(r"\n\s*\n", text.replace("\n", "\n\n", 1))


def _drawn_of_training(names: Sequence[str]) -> list[int]:
    """Training documents are divided at random; other documents are for testing."""
    test = corpus.SPLITS.index("test")
    return [DRAWN if name.startswith("train/") else test for name in names]


_REVIEWS = prose_folders.text_files(
    "the IMDB reviews",
    ("train/pos", "train/neg", "train/unsup", "test/pos", "test/neg"),
    optional=("train/unsup",),
)
_ARTICLES = prose_folders.text_files(
    "the BBC articles", ("business", "entertainment", "politics", "sport", "tech")
)

_COLLECTIONS = (
    Collection(
        name="sotu",
        title="the State of the Union addresses",
        files=sotu.address_files,
        read=prose_folders.reader(sotu.address_files, functools.partial(re.split, "\n")),
        parts=sotu.split_by_year,
        home=sotu.folder,
        facts=lambda root: {"name": sotu.version()},
    ),
    Collection(
        name="imdb",
        title="the IMDB reviews",
        files=_REVIEWS,
        read=prose_folders.reader(_REVIEWS, functools.partial(re.split, r"(?i)<br\s*/?>")),
        parts=_drawn_of_training,
        # As in Table 1 of Wang and Cho (2015).
        fractions=(0.86, 0.14),
    ),
    Collection(
        name="bbc",
        title="the BBC articles",
        files=_ARTICLES,
        # Five bytes are undefined in cp1252; Latin-1 defines every byte.
        read=prose_folders.reader(_ARTICLES, _title_and_paragraphs, ("cp1252", "latin-1")),
        fractions=(0.9, 0.05, 0.05),
    ),
    Collection(
        name="ptb",
        title="the Penn Treebank",
        files=treebank.ptb_files,
        read=treebank.read_ptb,
        parts=lambda names: [treebank.ptb_split(name.split("/")[0]) for name in names],
        text_format="lines",
    ),
    # Table 1 of Ji et al. (2015); the division of its documents is not known.
    Collection(
        name="nant",
        title="BLLIP North American News Text",
        files=lambda root: {"files": treebank.nant_files(root)},
        read=treebank.read_nant,
        fractions=tuple(count / 29_363 for count in (26_462, 148, 2_753)),
        text_format="lines",
    ),
    # Cettolo et al. (2012), with the shares of Lin et al. (2015, section 6.1).
    Collection(
        name="ted",
        title="TED talks of IWSLT",
        files=ted.talk_files,
        read=ted.read_talks,
        parts=_drawn_of_training,
        fractions=(0.9, 0.1),
    ),
    Collection(
        name="wikitext",
        title="WikiText",
        files=wikitext.article_files,
        read=functools.partial(wikitext.read_articles, headings=True),
        parts=_named_first,
        text_format="lines",
        facts=wikitext.count_tokens,
        unknown_token=wikitext.UNKNOWN_TOKEN,
    ),
)
COLLECTIONS = {collection.name: collection for collection in _COLLECTIONS}
