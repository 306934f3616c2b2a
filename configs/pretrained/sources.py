"""Raw text of the sources of the pretrained models, as JSON lines.

    python -m configs.pretrained.sources --wikitext=WIKITEXT --film_reviews=REVIEWS --brown=BROWN \\
        --output=sources

WIKITEXT is the folder of WikiText-2 (launch/text.md), and REVIEWS has tokenized film reviews in
train.txt, valid.txt and test.txt, with one sentence per line and a blank line between reviews. The
State of the Union addresses are embedded. BROWN is a file of the Brown corpus, with one sentence of
word/tag tokens per line. It is only for testing, and no source. The output has SPLIT.jsonl with the
documents of all sources, SPLIT-SOURCE.jsonl with the documents of one source, and test-brown.jsonl.

Tokenization is undone, so that `launch.prepare`, which reads these files as raw text, makes the
same words of them as of the text of a user: spaces before punctuation are removed, @-@, @,@ and @.@
become a hyphen, a comma and a point, and headings are omitted.
"""

import itertools
import pathlib
from collections.abc import Callable, Iterator, Sequence

import sacremoses
from absl import app, flags

from dclm_jax import files
from dclm_jax.data.corpora import sotu
from dclm_jax.data.corpora.wikitext import read_articles
from dclm_jax.data.corpus import SPLITS
from dclm_jax.data.documents import TextOptions
from dclm_jax.data.readers import read_documents

_WIKITEXT = flags.DEFINE_string("wikitext", None, "Folder of WikiText-2.", required=True)
_REVIEWS = flags.DEFINE_string("film_reviews", None, "Folder of film reviews.", required=True)
_BROWN = flags.DEFINE_string("brown", None, "Tagged text of the Brown corpus.", required=True)
_OUTPUT = flags.DEFINE_string("output", None, "Folder of the JSON lines.", required=True)

Texts = Iterator[tuple[str, list[str]]]
"""The names and the paragraphs of documents."""


def _detokenizer() -> Callable[[Sequence[str]], str]:
    """A function from tokenized words to raw text."""
    detokenize = sacremoses.MosesDetokenizer("en").detokenize

    def raw(words: Sequence[str]) -> str:
        text = " ".join(words)
        for mark in "-,.":
            text = text.replace(f" @{mark}@ ", mark)
        return detokenize(text.split())

    return raw


def _addresses(split: str) -> Texts:
    (paths,) = sotu.address_files(sotu.folder()).values()
    parts = sotu.split_by_year([path.stem for path in paths])
    for path, part in zip(paths, parts, strict=True):
        if SPLITS[part] == split:
            lines = files.read_bytes(path).decode().splitlines()
            yield path.stem, [line for line in lines if line.strip()]


def _articles(split: str) -> Texts:
    raw = _detokenizer()
    for document in read_articles(_WIKITEXT.value, headings=False):
        part, number = document.id.split("/")
        if part == split:
            # A sentence becomes a paragraph, so that sentence boundaries remain.
            yield number, list(map(raw, document.sentences))


def _reviews(split: str) -> Texts:
    raw = _detokenizer()
    for document in read_documents(pathlib.Path(_REVIEWS.value, f"{split}.txt")):
        yield document.id.rpartition(":")[2], list(map(raw, document.sentences))


def _brown() -> Texts:
    raw, options = _detokenizer(), TextOptions(format="tagged")
    for document in read_documents(_BROWN.value, options):
        sentences = (" ".join(sentence).replace("``", '"') for sentence in document.sentences)
        texts = [raw(sentence.replace("''", '"').split()) for sentence in sentences]
        yield document.id.rpartition(":")[2], texts


_SOURCES = {"sotu": _addresses, "wikitext": _articles, "film_reviews": _reviews}


def main(argv: Sequence[str]) -> None:
    del argv
    folder = pathlib.Path(_OUTPUT.value)
    folder.mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        lines = {source: list(_lines(source, texts(split))) for source, texts in _SOURCES.items()}
        (folder / f"{split}.jsonl").write_text("".join(itertools.chain(*lines.values())))
        for source, source_lines in lines.items():
            (folder / f"{split}-{source}.jsonl").write_text("".join(source_lines))
    (folder / "test-brown.jsonl").write_text("".join(_lines("brown", _brown())))


def _lines(source: str, texts: Texts) -> Iterator[str]:
    for name, paragraphs in texts:
        record = {"id": f"{source}/{name}", "text": "\n\n".join(paragraphs)}
        yield files.json_text(record) + "\n"


if __name__ == "__main__":
    app.run(main)
