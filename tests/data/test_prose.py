"""Raw prose, divided into sentences and words, and the embedded addresses."""

from collections.abc import Generator

import pytest

from dclm_jax.data import prose, sotu
from dclm_jax.data.readers import Document, ReadStatistics, read_documents
from dclm_jax.errors import InputError
from tests.data.test_readers import write

CURLY = "“Don’t (ever) go…” he said — twice – and «left»\u00a0; ‘it’ was the dog’s"


def test_wrong_characters_are_found_before_sentences_are_split(tmp_path, monkeypatch):
    write(tmp_path / "a.txt", "Good text.\n")
    write(tmp_path / "b.txt", b"Good.\n\x93Bad\x94.\n")
    monkeypatch.setattr(prose, "split_documents", None)
    with pytest.raises(InputError, match=r"b\.txt:2: not valid UTF-8: the byte 0x93 .*=cp1252\)$"):
        list(read_documents(tmp_path, "prose"))


def test_punctuation_is_written_as_moses_does(tmp_path, monkeypatch):
    path = write(tmp_path / "t.txt", CURLY)
    sacremoses = pytest.importorskip("sacremoses")
    plain = sacremoses.MosesPunctNormalizer("en").normalize(CURLY)
    assert plain == "\"Don't (ever) go...\" he said - twice - and \"left\"; 'it' was the dog's"
    expected = list(read_documents(write(tmp_path / "u.txt", plain), "prose"))
    words = expected[0].sentences
    found = list(read_documents(path, "prose", normalize=True))
    assert found == [Document("t.txt:1", words)]
    assert list(read_documents(path, "prose"))[0].sentences != words
    # By worker processes as well.
    monkeypatch.setattr(prose, "_BATCH_CHARACTERS", 10)
    write(path, f"{CURLY}\n{CURLY}\n")
    found = list(read_documents(path, "paragraphs", normalize=True))
    assert [one.sentences for one in found] == [words, words]
    # Words that are given as such stay as they are.
    [document] = read_documents(path, "lines", normalize=True)
    assert document.sentences == [CURLY.split()] * 2


def test_prose_is_split_into_sentences_and_words(tmp_path):
    text = (
        'Dr. Smith didn\'t\nlaugh. He left!\n\nA new "paragraph" & more\n'
        "= next =\n\nSecond document.\n"
    )
    path = write(tmp_path / "t.txt", text)
    assert list(read_documents(path, "prose", lowercase=True)) == [
        Document(
            "t.txt:1",
            [
                ["dr.", "smith", "didn", "'t", "laugh", "."],
                ["he", "left", "!"],
                ["a", "new", '"', "paragraph", '"', "&", "more"],
            ],
        ),
        Document("t.txt:7", [["second", "document", "."]]),
    ]


def test_every_line_of_paragraphs_is_a_document(tmp_path):
    path = write(tmp_path / "t", "It rained. We left!\n\n = 2 =\nMr. B slept.\n")
    statistics = ReadStatistics()
    documents = [
        Document("t:1", [["It", "rained", "."], ["We", "left", "!"]]),
        Document("t:4", [["Mr.", "B", "slept", "."]]),
    ]
    assert list(read_documents(path, "paragraphs", statistics=statistics)) == documents
    # The blank line; headings are no documents.
    assert statistics == ReadStatistics(2, 3, 10, empty_documents=1)
    kept = list(read_documents(path, "paragraphs", keep_empty=True))
    assert kept == [documents[0], Document("t:2", []), documents[1]]


def test_documents_without_words_are_kept_if_asked(tmp_path):
    path = write(
        tmp_path / "t.jsonl", '{"sentences": ["", []]}\n{"id": 1, "sentences": ["a", ""]}\n'
    )
    statistics = ReadStatistics()
    kept = list(read_documents(path, statistics=statistics, keep_empty=True))
    assert kept == [Document("t.jsonl:1", []), Document("1", [["a"]])]
    assert (statistics.empty_documents, statistics.empty_sentences) == (1, 3)
    assert list(read_documents(path)) == kept[1:]


def test_prose_in_worker_processes_equals_one_process(monkeypatch):
    documents = [[f"Sentence one of {i}. And another ({i})?", "New paragraph"] for i in range(9)]
    alone = list(prose.split_documents(documents))
    monkeypatch.setattr(prose, "_BATCH_CHARACTERS", 100)
    assert list(prose.split_documents(iter(documents))) == alone
    assert len(alone) == 9 and len(alone[0]) == 3


def test_failing_worker_process_is_reported(monkeypatch, tmp_path):
    (tmp_path / "broken.py").write_text("import sys\nsys.stdin.readline()\nsys.exit('it broke')\n")
    monkeypatch.setattr(prose, "__file__", str(tmp_path / "broken.py"))
    monkeypatch.setattr(prose, "_BATCH_CHARACTERS", 100)
    with pytest.raises(RuntimeError, match="splitting sentences failed: it broke"):
        list(prose.split_documents([["Sentence. " * 20]] * 5))


def test_worker_processes_end_when_reading_stops_early(monkeypatch):
    started = []
    popen = prose.subprocess.Popen

    def start(*arguments, **options):
        started.append(popen(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(prose.subprocess, "Popen", start)
    monkeypatch.setattr(prose, "_BATCH_CHARACTERS", 100)
    stream = prose.split_documents([f"Sentence {i}. " * 10] for i in range(100))
    assert isinstance(stream, Generator)
    assert next(stream)[0] == ["Sentence", "0", "."]
    stream.close()
    assert started and all(process.returncode == 0 for process in started)


def test_overlong_paragraph_loses_no_words():
    sentence = "It went on and on without an end . "
    for text in (sentence * 500, "word " * 3000, "x" * 9000):
        [sentences] = prose.split_documents([[text]])
        assert "".join("".join(words) for words in sentences) == "".join(text.split())


def test_very_long_sentence_and_document(tmp_path):
    path = write(tmp_path / "t", "w " * 50_000 + "\n" + "v\n" * 10_000)
    [document] = read_documents(path)
    assert len(document.sentences) == 10_001
    assert len(document.sentences[0]) == 50_000


def test_missing_text_packages_are_named(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "pysbd", None)
    with pytest.raises(InputError, match=r"pip install 'dclm_jax\[text\]'"):
        list(read_documents(write(tmp_path / "t", "Text."), "prose"))


def test_years_are_never_divided_and_never_go_back():
    years = [1, 1, 2, 3, 3, 3, 4, 5, 6, 6]
    parts = sotu.split_by_year(years, (0.8, 0.1, 0.1))
    # Year 6 begins within the validation share, so nothing is left for the last part.
    assert parts == [0, 0, 0, 0, 0, 0, 0, 0, 1, 1]
    assert sotu.split_by_year(list(range(10)), (0.8, 0.1, 0.1)) == [0] * 8 + [1, 2]
    assert sotu.split_by_year([3, 1, 2], (0.5, 0.5)) == [1, 0, 0]


def test_embedded_addresses_are_in_order():
    years = [sotu.address_year(file.stem) for file in sotu.address_files()]
    assert years == sorted(years)
    assert years[0] == 1790
    assert len(years) > 230


def test_long_paragraphs_are_cut_where_they_can_be(tmp_path):
    """Every piece has 4,000 characters at most, and words stay whole where there are spaces."""
    path = tmp_path / "text"
    path.write_text("word " * 3000 + "\n\n" + "x" * 9000)
    ((_, sentences, _),) = read_documents(path, "prose")
    assert sorted({word for words in sentences for word in words}) == [
        "word",
        "x" * 1000,
        "x" * 4000,
    ]
    assert sum(map(len, sentences)) == 3003
    assert [len(" ".join(words)) for words in sentences[-3:]] == [4000, 4000, 1000]
