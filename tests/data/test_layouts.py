import pytest

from dclm_jax.data.documents import Document, TextOptions
from dclm_jax.data.prepare import prepare
from dclm_jax.data.readers import read_documents
from dclm_jax.errors import InputError
from tests.data.support import contents, ids_of, make_corpus, read, write

TOPICS = ("business", "entertainment", "politics", "sport", "tech")


def write_imdb(root, train=20, test=4, unsup=6):
    """The folder of the corpus, with the files in it that are no reviews."""
    for folder, number in (("train", train), ("test", test)):
        for label in ("pos", "neg"):
            write(root / folder / f"urls_{label}.txt", "http://example.com/usercomments\n")
            for i in range(number // 2):
                text = f"Film{i} was {label}.<br /><br />I saw it twice."
                write(root / folder / label / f"{i}_{7 if label == 'pos' else 2}.txt", text)
        write(root / folder / "labeledBow.feat", "9 0:9 1:1\n")
    for i in range(unsup):
        write(root / "train" / "unsup" / f"{i}_0.txt", f"Unrated {i}.")
    write(root / "train" / "unsupBow.feat", "0 0:8\n")
    write(root / "imdb.vocab", "the\nand\n")
    write(root / "imdbEr.txt", "0.049\n")
    write(root / "README", "Large Movie Review Dataset v1.0\n")
    return root


def write_bbc(root, articles=8):
    for topic in TOPICS:
        for i in range(1, articles + 1):
            write(root / topic / f"{i:03}.txt", f"Title {i} of {topic}\n\nIt was said.\n")
    write(root / "README.TXT", "Consists of 2225 documents from the BBC news website.\n")
    return root


def test_imdb_reviews_and_nothing_else_in_a_fixed_order(tmp_path):
    root = write_imdb(tmp_path / "aclImdb", train=4, test=2, unsup=11)
    assert [document.id for document in read(root, "imdb")] == [
        *("train/pos/0_7", "train/pos/1_7", "train/neg/0_2", "train/neg/1_2"),
        # In the order of names: 10 comes before 2.
        *("train/unsup/0_0", "train/unsup/10_0"),
        *(f"train/unsup/{i}_0" for i in (1, 2, 3, 4, 5, 6, 7, 8, 9)),
        *("test/pos/0_7", "test/neg/0_2"),
    ]


def test_line_breaks_of_a_review_end_paragraphs(tmp_path):
    root = write_imdb(tmp_path, train=2, test=2, unsup=0)
    review = (
        "A <b>great</b> film, isn't\nit<br /><br />no full stop<br>Next.\u0085Third<BR/>"
        "fourth<br/ >= not a boundary<br \n/>\n"
    )
    write(root / "train" / "pos" / "0_7.txt", b"\xef\xbb\xbf" + review.encode())
    sentences = [
        ["A", "<", "b", ">", "great", "<", "/", "b", ">", "film", ",", "isn", "'t", "it"],
        ["no", "full", "stop"],
        ["Next", "."],
        ["Third"],
        ["fourth", "<", "br", "/", ">", "=", "not", "a", "boundary"],
    ]
    assert read(root, "imdb")[0] == Document("train/pos/0_7", sentences)


def test_imdb_division(tmp_path, caplog):
    root = write_imdb(tmp_path / "aclImdb")
    manifest = prepare(root, tmp_path / "out", collection="imdb")
    ids = ids_of(tmp_path / "out")
    # 0.86 of 26 is 22.4.
    assert [len(ids[split]) for split in ("train", "valid", "test")] == [22, 4, 4]
    assert ids["test"] == ["test/pos/0_7", "test/pos/1_7", "test/neg/0_2", "test/neg/1_2"]
    assert sorted(ids["train"] + ids["valid"]) == sorted(
        [f"train/pos/{i}_7" for i in range(10)]
        + [f"train/neg/{i}_2" for i in range(10)]
        + [f"train/unsup/{i}_0" for i in range(6)]
    )
    assert contents(tmp_path / "out", "test")["test/pos/1_7"] == [
        ["Film1", "was", "pos", "."],
        ["I", "saw", "it", "twice", "."],
    ]
    counts = {"train/pos": 10, "train/neg": 10, "train/unsup": 6, "test/pos": 2, "test/neg": 2}
    assert manifest.sources["imdb"]["files"] == counts
    assert "train/unsup: 6; test/pos: 2" in caplog.messages[0]
    assert caplog.messages[1].startswith("first sentences of train")


def test_bbc_title_paragraphs_and_lines_that_are_not_utf8(tmp_path):
    root = write_bbc(tmp_path / "bbc", articles=1)
    article = (
        b"Chelsea sack Mutu\r\nHe cost \xa315.8m\nand caf\xc3\xa9s. He left\r\n\r\n"
        b"= not a boundary\n \n\n\x80\n\na \x81\n"
    )
    write(root / "sport" / "001.txt", article)
    documents = {document.id: document.sentences for document in read(root, "bbc")}
    # Each line is decoded on its own; 0x81 is no character of cp1252, but a control in Latin-1.
    assert documents["sport/001"] == [
        ["Chelsea", "sack", "Mutu"],
        ["He", "cost", "£", "15.8m", "and", "cafés", "."],
        ["He", "left"],
        ["=", "not", "a", "boundary"],
        ["€"],
        ["a", "\x81"],
    ]
    assert len(documents) == 5


@pytest.mark.parametrize("folder", ["train/pos", "test/neg"])
def test_missing_folder_of_reviews_is_named(tmp_path, folder):
    root = write_imdb(tmp_path / "aclImdb", train=2, test=2, unsup=1)
    (root / folder).rename(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=rf"aclImdb/{folder}: no such folder; expected the folder"):
        read(root, "imdb")
    (root / folder).mkdir()
    with pytest.raises(InputError, match=rf"aclImdb/{folder}: has no \.txt files"):
        read(root, "imdb")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("bbc", dict(source=None), "bbc has no input; set --input to the folder of the BBC"),
        ("sotu", {}, "sotu is embedded and takes no input"),
        ("sotu", dict(source=None, seed=1), "sotu takes no seed"),
        ("imdb", dict(fractions=(0.8, 0.1, 0.1)), "imdb takes no split; remove --split"),
    ],
)
def test_bad_options_of_collections(tmp_path, name, options, message):
    root = write_imdb(tmp_path / "in", train=2, test=2, unsup=0)
    with pytest.raises(InputError, match=message):
        make_corpus(**{"source": root, "directory": tmp_path / "out", "format": name, **options})
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_bbc_articles_and_nothing_else(tmp_path):
    root = write_bbc(tmp_path / "bbc", articles=2)
    write(root / "sport" / "._001.txt", b"\xff")
    write(root / "tech" / "notes.md", "none of them")
    names = [f"{topic}/{number}" for topic in TOPICS for number in ("001", "002")]
    assert [document.id for document in read(root, "bbc")] == names


@pytest.mark.parametrize("normalize", [False, True])
def test_a_control_character_stays_in_its_word_and_region(tmp_path, normalize):
    pytest.importorskip("sacremoses")
    path = write(tmp_path / "t.csv", "id,r,text\n1,x,He left\x03\n1,y,; so it ended\x7f.\n")
    options = TextOptions("csv", normalize=normalize)
    (document,) = read_documents(path, options, joined_by=["id"])
    assert document.sentences == [["He", "left\x03", ";", "so", "it", "ended\x7f", "."]]
    assert document.row_of_word == [[0, 0, 1, 1, 1, 1, 1]]
