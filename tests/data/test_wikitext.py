"""Articles in the format of WikiText, written by hand."""

import shutil

import pytest

from dclm_jax.data.corpora.wikitext import read_articles
from dclm_jax.data.documents import TextOptions
from dclm_jax.errors import InputError
from tests.data.support import ids_of, make_corpus, read, write

TRAIN = """\
 
 = First <unk> = 
 
 It begins . " Why ? " she asked ; he ( no ! ) left ... 
 = 1 m = 
 2 m , that is . 
 
 = = Section = = 
 
 " Yes . " " No . " 
 
 = Second = 
 
 A line without an end 
"""
TEST_WORDS = "No title . Before It Third The end ?!"
TEST = "Before . It .\n\n = Third = \n\n The end ?! \n"
READ = {
    "train/2": [
        "= First <unk> =",
        "It begins .",
        '" Why ? "',
        "she asked ; he ( no ! )",
        "left ...",
        "= 1 m =",
        "2 m , that is .",
        "= = Section = =",
        '" Yes . "',
        '" No . "',
    ],
    "train/12": ["= Second =", "A line without an end"],
    "valid/1": ["No title ."],
    "test/1": ["Before .", "It ."],
    "test/3": ["= Third =", "The end ?!"],
}
# Words of every line and one end for each.
TOKENS = {"train": 66, "valid": 4, "test": 15}


@pytest.fixture
def folder(tmp_path):
    for split, text in {"train": TRAIN, "valid": "No title .\n", "test": TEST}.items():
        write(tmp_path / "wikitext" / f"wiki.{split}.tokens", text)
    return tmp_path / "wikitext"


@pytest.mark.parametrize(
    ("headings", "omitted"),
    [
        (True, ()),
        (False, ("= First <unk> =", "= = Section = =", "= Second =", "= Third =")),
    ],
)
def test_articles_headings_and_sentences(folder, headings, omitted):
    documents = list(read_articles(folder, headings=headings))
    assert [document.id for document in documents] == list(READ)
    for document, sentences in zip(documents, READ.values(), strict=True):
        expected = [sentence.split() for sentence in sentences if sentence not in omitted]
        assert document.sentences == expected


def test_the_original_tokens_are_counted_and_unknown_words_are_the_texts(folder, tmp_path):
    def original(**options):
        """The original tokens of each split of a corpus, and its manifest."""
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        manifest = make_corpus(folder, tmp_path / "out", "wikitext", **options)
        return {split: manifest.original_tokens(split) for split in TOKENS}, manifest

    # Words of the other splits are unknown to us, but not in the text.
    assert original(min_count=1)[0] == {"train": 66, "valid": 0, "test": 0}
    with open(folder / "wiki.train.tokens", "a") as file:
        file.write(f"{TEST_WORDS}\n")
    tokens, manifest = original(min_count=1)
    assert tokens == TOKENS | {"train": TOKENS["train"] + len(TEST_WORDS.split()) + 1}
    assert manifest.options["unknown_token"] == "<unk>"
    # A run reads other text as lines of words, and <unk> in raw text as a word.
    assert manifest.text == TextOptions(unknown_token="<unk>")
    assert manifest.splits["train"].oov_tokens == 1
    assert len(ids_of(tmp_path / "out")["test"]) == 2
    # Of another text than the original one the number would say nothing.
    assert original(min_count=1, max_words=20)[0]["train"] == 0
    # Words that are unknown to us alone are predicted too easily, and so is a text in lower case.
    assert original(vocab_size=9)[0]["train"] == 0
    tokens, manifest = original(lowercase=True, min_count=1)
    assert manifest.splits["train"].oov_tokens == 1 and tokens["train"] == 0


def test_the_other_names_of_the_files_and_a_folder_without_one(folder):
    (folder / "wiki.test.tokens").rename(folder / "test.txt")
    assert [document.id for document in read(folder, "wikitext")] == list(READ)
    (folder / "test.txt").unlink()
    with pytest.raises(InputError, match="contains neither wiki.test.tokens nor test.txt; choose"):
        read(folder, "wikitext")
