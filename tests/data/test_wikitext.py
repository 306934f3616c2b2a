"""Articles in the format of WikiText, written by hand."""

import pytest

from dclm_jax.data import open_corpus, prepare, read_documents
from dclm_jax.data.documents import TextOptions
from dclm_jax.data.prepare import PrepareOptions
from dclm_jax.data.readers import parse_documents
from dclm_jax.errors import InputError

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
CORPORA = [("wikitext", "articles"), ("wikitext_body", "articles_body")]
# Words of every line and one end for each.
TOKENS = {"train": 66, "valid": 4, "test": 15}


@pytest.fixture
def folder(tmp_path):
    texts = {"train": TRAIN, "valid": "No title .\n", "test": TEST}
    root = tmp_path / "wikitext"
    root.mkdir()
    for split, text in texts.items():
        (root / f"wiki.{split}.tokens").write_text(text)
    return root


@pytest.mark.parametrize("format", [corpus for corpus, _ in CORPORA])
def test_articles_headings_and_sentences(folder, format):
    read = {
        one.id: [" ".join(s) for s in one.sentences]
        for one in read_documents(folder, TextOptions(format))
    }
    headings = {"= First <unk> =", "= = Section = =", "= Second =", "= Third ="}
    if format == "wikitext_body":
        assert read == {
            name: [one for one in sentences if one not in headings]
            for name, sentences in READ.items()
        }
    else:
        assert read == READ


def test_the_original_tokens_are_counted_and_unknown_words_are_the_texts(folder, tmp_path):
    def original(name="wikitext", lowercase=False, **options):
        """The original tokens of each split of a corpus, and its manifest."""
        text, options = TextOptions(name, lowercase), PrepareOptions(**options)
        manifest = prepare(folder, tmp_path / "out", text, options, overwrite=True)
        return {split: manifest.original_tokens(split) for split in TOKENS}, manifest

    # Words of the other splits are unknown to us, but not in the text.
    assert original(min_count=1)[0] == {"train": 66, "valid": 0, "test": 0}
    with open(folder / "wiki.train.tokens", "a") as file:
        file.write(f"{TEST_WORDS}\n")
    tokens, manifest = original(min_count=1)
    assert tokens == TOKENS | {"train": TOKENS["train"] + len(TEST_WORDS.split()) + 1}
    assert manifest.vocabulary.unknown_token == "<unk>"
    assert manifest.splits["train"].oov_tokens == 1
    assert open_corpus(tmp_path / "out", "test").num_documents == 2
    # Of another text than the original one the number would say nothing.
    assert original(min_count=1, max_words=20)[0]["train"] == 0
    assert original("wikitext_body", min_count=1)[0]["test"] == 0
    # Words that are unknown to us alone are predicted too easily, and so is a text in lower case.
    assert original(vocab_size=9)[0]["train"] == 0
    tokens, manifest = original(lowercase=True, min_count=1)
    assert manifest.splits["train"].oov_tokens == 1 and tokens["train"] == 0


@pytest.mark.parametrize(("corpus", "format"), CORPORA)
def test_other_text_is_read_like_that_of_the_corpus(folder, tmp_path, corpus, format):
    whole = {one.id: one.sentences for one in read_documents(folder, TextOptions(corpus))}
    manifest = prepare(
        folder, tmp_path / "out", TextOptions(format=corpus), PrepareOptions(min_count=1)
    )
    remembered = TextOptions(format)
    assert manifest.training_text.options == remembered
    for split, text in (("train", TRAIN), ("test", TEST)):
        expected = {name: one for name, one in whole.items() if name.startswith(split)}
        alike = list(parse_documents(text, remembered))
        assert [one.sentences for one in alike] == list(expected.values())
        assert [one.id.replace("text:", f"{split}/") for one in alike] == list(expected)
    read = read_documents(folder / "wiki.train.tokens", TextOptions(format))
    assert [one.id for one in read] == ["wiki.train.tokens:2", "wiki.train.tokens:12"]


def test_articles_that_are_read_as_lines_are_told(folder):
    told = []
    list(read_documents(folder / "wiki.train.tokens", report=told.append))
    (line,) = told
    assert line.endswith(
        "looks like articles under headings, as in WikiText; --format=articles reads them"
    )


def test_the_other_names_of_the_files_and_a_folder_without_one(folder):
    (folder / "wiki.test.tokens").rename(folder / "test.txt")
    assert [one.id for one in read_documents(folder, TextOptions("wikitext"))] == list(READ)
    (folder / "test.txt").unlink()
    with pytest.raises(InputError, match="which holds wiki.test.tokens"):
        list(read_documents(folder, TextOptions("wikitext")))
