"""The script that tags text by HanTa, with tags of the Penn Treebank."""

import pickle
import sys

import pytest

from configs.larger_context import tag
from dclm_jax.data.corpus import open_corpus
from dclm_jax.errors import InputError
from tests.data.support import make_corpus

TEXT = "The cats sat on the mat .\nShe paid $ N to the <unk> .\n\nBush met 1/2 of them .\n"


@pytest.fixture(scope="module")
def tagger() -> tag.Tagger:
    pytest.importorskip("HanTa")
    return tag.Tagger()


def split(text: str) -> list[str]:
    return text.split()


def test_prepare_reads_the_tagged_text(tmp_path, capsys):
    pytest.importorskip("HanTa")
    text, tagged = tmp_path / "text", tmp_path / "tagged"
    text.write_text(TEXT)
    tag.main(str(text), str(tagged), "en")
    assert capsys.readouterr().out == f"{tagged}: 2 documents\n"
    make_corpus({"train": tagged}, tmp_path / "corpus", "tagged")
    corpus = open_corpus(tmp_path / "corpus", "train")
    assert [corpus.document_tags(index) for index in range(2)] == [
        [split("DT NNS VBD IN DT NN PUN"), split("PRP VBD UNC NNP IN DT UNC PUN")],
        [split("NNP VBD CD IN PRP PUN")],
    ]


def test_german_has_tags_of_its_own(tmp_path):
    pytest.importorskip("HanTa")
    text, tagged = tmp_path / "text", tmp_path / "tagged"
    text.write_text("Die Katze sitzt .\n")
    tag.main(str(text), str(tagged), "de")
    assert tagged.read_text() == "Die/ART Katze/NN sitzt/VV(FIN) ./$.\n"


def test_english_has_the_tags_of_the_treebank(tagger):
    sentences = [
        split("The cats sat on the mat , and they did n't move ."),
        split("She could not see that it works ."),
        ["<unk>"],
    ]
    assert tagger(sentences) == [
        split("DT NNS VBD IN DT NN PUN CC PRP VBD RB VB PUN"),
        split("PRP MD RB VB IN PRP VBZ PUN"),
        ["UNC"],
    ]


def test_every_tag_of_hanta_has_a_name_in_the_treebank(tagger):
    model = tagger._tag_sentence.__self__
    tags = {model.int2tag[-number] for number in model.tag2int.values() if number < 0}
    assert len(tags) > 50
    unmapped = tags - {"UNKNOWN", "NN", "IN"} - set(tag.TREEBANK_TAGS)
    # Punctuation has its class by any name.
    assert unmapped == {"PUL", "PUN", "PUQ", "PUR", "UNC", "ZZ0"}


def test_small_letters_speak_against_names_only_where_there_are_capitals(tagger):
    words = split("we met bush in turkey")
    as_names, as_nouns = ["PRP", "VBD", "NNP", "IN", "NNP"], ["PRP", "VBD", "NN", "IN", "NN"]
    assert tagger([words]) == [as_names]
    # A capital by itself proves nothing: it stands for a number.
    assert tagger([words, ["N", "dogs"]]) == [as_names, ["CD", "NNS"]]
    assert tagger([words, ["Yes"]])[0] == as_nouns


def test_marks_and_signs_are_no_names(tagger):
    (lower,) = tagger([split("it paid $ N to the <unk> of mr. <unk>")])
    assert lower == split("PRP VBD UNC CD IN DT UNC IN NNP UNC")
    assert tagger([split("He saw <UNKNOWN> .")]) == [["PRP", "VBD", "UNC", "PUN"]]


def test_the_ending_of_a_long_word_is_tagged(tagger):
    """The time for whole words would grow with the square of their length."""
    words = ["the", "x" * 10**6, "establish" * 1000 + "ment", "."]
    assert len(tagger([words])[0]) == 4


def test_a_model_in_the_working_directory_is_not_read(tmp_path, monkeypatch):
    """HanTa's model is a pickle, of the installed package."""
    pytest.importorskip("HanTa")
    (tmp_path / tag.MODELS["en"]).write_bytes(pickle.dumps("no model"))
    monkeypatch.chdir(tmp_path)
    assert tag.Tagger()([["the", "cat"]]) == [["DT", "NN"]]


def test_bad_input(tmp_path, monkeypatch):
    text, tagged = tmp_path / "text.jsonl", tmp_path / "tagged"
    text.write_text('{"id": "a", "sentences": ["a b"]}\n{"id": "b", "sentences": []}\n')
    with monkeypatch.context() as context:
        context.setitem(sys.modules, "HanTa", None)
        with pytest.raises(InputError, match="tagging needs HanTa: pip install HanTa"):
            tag.main(str(text), str(tagged), "en")
    pytest.importorskip("HanTa")
    with pytest.raises(InputError, match="text.jsonl: document b has no words, .* remove the doc"):
        tag.main(str(text), str(tagged), "en")
    assert not tagged.exists()
