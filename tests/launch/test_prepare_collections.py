"""`launch.prepare` on the folders of public corpora: results, and refused combinations of flags."""

import bz2
import json

import pytest

from tests.launch import support

TOPICS = ("business", "entertainment", "politics", "sport", "tech")


def launch(*arguments, code=0):
    """Runs the launcher to its end and returns what it prints: stderr if it must fail."""
    if code:
        return support.refuse("prepare", *arguments, code=code)
    return support.launch("prepare", *arguments).stdout


def document_ids(directory, split):
    return (directory / f"{split}.document_ids.txt").read_text("utf-8").split()


@pytest.fixture
def bbc(tmp_path):
    for topic in TOPICS:
        (tmp_path / "bbc" / topic).mkdir(parents=True)
        for i in range(1, 5):
            article = f"Title of {topic}\n\nThe Story costs £{i}m. It ends.\n"
            (tmp_path / "bbc" / topic / f"{i:03}.txt").write_bytes(article.encode("latin-1"))
    (tmp_path / "bbc" / "README.TXT").write_text("no article")
    return tmp_path / "bbc"


@pytest.fixture
def imdb(tmp_path):
    for folder in ("train/pos", "train/neg", "test/pos", "test/neg"):
        (tmp_path / "aclImdb" / folder).mkdir(parents=True)
        for i in range(5):
            review = f"Review {i} of {folder.split('/')[0]}.<br /><br />It ends."
            (tmp_path / "aclImdb" / folder / f"{i}_9.txt").write_text(review)
    (tmp_path / "aclImdb" / "train" / "labeledBow.feat").write_text("9 0:9\n")
    return tmp_path / "aclImdb"


def test_bbc_by_default_and_with_all_its_flags(bbc, tmp_path):
    first = tmp_path / "first"
    arguments = ("--corpus=bbc", f"--input={bbc}", "--vocab_size=9")
    output = launch(*arguments, f"--output={first}")
    assert output.splitlines()[0].startswith("reading the BBC articles; business: ")
    assert f"prepared corpus: {first}" in output
    sizes = {split: len(document_ids(first, split)) for split in ("train", "valid", "test")}
    assert sizes == {"train": 18, "valid": 1, "test": 1}
    splits = json.loads((first / "manifest.json").read_text("utf-8"))["splits"]
    # A title of 3 words, sentences of 6 (£ is one of them) and 3.
    assert (splits["train"]["sentences"], splits["train"]["tokens"]) == (18 * 3, 18 * 12)
    assert splits["train"]["longest_sentence"] == 6

    second = tmp_path / "second"
    more = ("--split=0.5,0.25,0.25", "--seed=7", "--lowercase")
    launch(*arguments, *more, f"--output={second}")
    sizes = {split: len(document_ids(second, split)) for split in ("train", "valid", "test")}
    assert sizes == {"train": 10, "valid": 5, "test": 5}
    vocabulary = (second / "vocabulary.tsv").read_text("utf-8")
    assert "\nstory\t10\n" in vocabulary and "Story" not in vocabulary
    assert launch(*arguments, *more, f"--output={second}").startswith("reusing")


def test_imdb_by_default_and_with_another_share(imdb, tmp_path):
    for name, split, sizes in (("a", (), [9, 1]), ("b", ("--split=0.6,0.4",), [6, 4])):
        output = tmp_path / name
        launch("--corpus=imdb", f"--input={imdb}", *split, f"--output={output}")
        assert [len(document_ids(output, split)) for split in ("train", "valid")] == sizes
        assert document_ids(output, "test") == [
            f"test/{label}/{i}_9" for label in ("pos", "neg") for i in range(5)
        ]
    manifest = json.loads((tmp_path / "a" / "manifest.json").read_text("utf-8"))
    assert manifest["splits"]["test"]["sentences"] == 20
    assert manifest["splits"]["test"]["tokens"] == 10 * (5 + 3)


def test_treebank_parsed_and_raw(tmp_path):
    tree = "( (S (NP (DT The) (NN dog)) (VP (VBD ran) (NP (-NONE- *))) (. .)))\n"
    raw = ".START\n\nThe dog ran.\n\nIt didn't stop.\n"
    places = {"parsed/mrg/wsj": (".mrg", tree * 3), "raw/wsj": ("", raw)}
    for place, (suffix, content) in places.items():
        for section in range(25):
            folder = tmp_path / "treebank_3" / place / f"{section:02}"
            folder.mkdir(parents=True)
            (folder / f"wsj_{section:02}01{suffix}").write_text(content)
    root, out = tmp_path / "treebank_3", tmp_path / "out"
    output = launch("--corpus=ptb", f"--input={root}", f"--output={out}")
    assert output.startswith("reading the Penn Treebank; ")
    assert document_ids(out, "valid") == ["21/wsj_2101", "22/wsj_2201"]
    assert document_ids(out, "test") == ["23/wsj_2301", "24/wsj_2401"]
    splits = json.loads((out / "manifest.json").read_text("utf-8"))["splits"]
    assert (splits["train"]["sentences"], splits["train"]["tokens"]) == (21 * 3, 21 * 12)
    assert (out / "vocabulary.tsv").read_text().split("\n")[3] == ".\t63"
    out = tmp_path / "raw"
    launch("--corpus=ptb", f"--input={root / 'raw' / 'wsj'}", "--lowercase", f"--output={out}")
    splits = json.loads((out / "manifest.json").read_text("utf-8"))["splits"]
    assert (splits["train"]["sentences"], splits["train"]["tokens"]) == (21 * 2, 21 * (4 + 5))
    assert "\nthe\t21\n" in (out / "vocabulary.tsv").read_text()


def test_news_parses_by_default_and_with_another_share(tmp_path):
    folder = tmp_path / "disk1of4" / "data" / "000"
    folder.mkdir(parents=True)
    lists = [f"2 lw{i}.{i}_0\n-1\n(S1 (NN Dogs))\n-2\n(S1 (VB Dogs))\n" for i in range(200)]
    for number in (0, 100):
        content = "".join(lists[number : number + 100]).encode()
        (folder / f"{number:05}-lw-{number}-{number + 99}.bz2").write_bytes(bz2.compress(content))
    for name, more, sizes in (
        ("a", ("--vocab_size=15000",), [180, 1, 19]),
        ("b", ("--split=0.5,0.5,0", "--seed=3", "--lowercase"), [100, 100]),
    ):
        out = tmp_path / name
        launch("--corpus=nant", f"--input={tmp_path / 'disk1of4'}", *more, f"--output={out}")
        splits = json.loads((out / "manifest.json").read_text("utf-8"))["splits"]
        assert [split["documents"] for split in splits.values()] == sizes
    assert (tmp_path / "b" / "vocabulary.tsv").read_text().endswith("\ndogs\t100\n")


def test_talks_by_default_and_with_another_share(tmp_path):
    talks = "".join(f"<url>u</url>\n<talkid>{i}</talkid>\nTalk {i}.\nIt Ends.\n" for i in range(10))
    (tmp_path / "train.tags.de-en.en").write_text(talks)
    (tmp_path / "IWSLT14.TED.tst2011.de-en.en.xml").write_text(
        "<mteval><refset><doc docid='7'><seg id='1'>It isn't &amp;.</seg></doc></refset></mteval>"
    )
    for name, more, sizes in (
        ("a", (), [9, 1, 1]),
        ("b", ("--split=0.5,0.5", "--seed=3", "--lowercase"), [5, 5, 1]),
    ):
        out = tmp_path / name
        output = launch("--corpus=ted", f"--input={tmp_path}", *more, f"--output={out}")
        assert output.startswith("reading TED talks of IWSLT; ")
        splits = json.loads((out / "manifest.json").read_text("utf-8"))["splits"]
        assert [split["documents"] for split in splits.values()] == sizes
        assert document_ids(out, "test") == ["tst2011/7"]
        assert (splits["test"]["sentences"], splits["test"]["tokens"]) == (1, 5)
    assert "\nends\t5\n" in (tmp_path / "b" / "vocabulary.tsv").read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--corpus=imdb"], "imdb needs an input: the folder of the IMDB"),
        (["--corpus=bbc", "--seed=1"], "bbc needs an input"),
        (["--corpus=sotu", "--input=BBC"], "sotu is embedded and takes no input"),
        (["--corpus=sotu", "--split=0.8,0.1,0.1"], "sotu takes no split"),
        (["--corpus=bbc", "--input=BBC", "--format=prose"], "--corpus=bbc takes no --format"),
        (
            ["--corpus=imdb", "--input=BBC", "--unknown_token=<unk>"],
            "imdb takes no unknown_token",
        ),
        (
            ["--corpus=bbc", "--input=BBC", "--train=BBC"],
            "got --train/--valid/--test and --corpus=bbc",
        ),
        (["--train=BBC", "--split=1,0,0"], "inputs of given splits take no split"),
        (["--train=BBC", "--seed=1"], "inputs of given splits take no seed"),
        (["--corpus=wsj", "--input=BBC"], "--corpus=wsj"),
        (["--corpus=ptb"], "ptb needs an input"),
        (["--corpus=ted"], "ted needs an input"),
        (["--corpus=ted", "--input=BBC"], "BBC: holds no files train.tags.*-*.en; expected one"),
        (
            ["--corpus=ted", "--input=BBC", "--split=1,0,0"],
            "expected two shares of train and valid",
        ),
        (["--corpus=nant"], "nant needs an input"),
        (["--corpus=ptb", "--input=BBC", "--split=0.8,0.1,0.1"], "ptb takes no split"),
        (["--corpus=ptb", "--input=BBC", "--seed=1"], "ptb takes no seed"),
        (["--corpus=ptb", "--input=BBC"], "BBC: holds no sections of the Penn Treebank; expected"),
        (["--corpus=nant", "--input=BBC"], "BBC/README.TXT:1: expected the number of parses"),
        (["--corpus=imdb", "--input=BBC"], "BBC/train/pos: no such folder"),
        (["--corpus=bbc", "--input=BBC/none"], "BBC/none/business: no such folder"),
        (["--corpus=bbc", "--input=-"], "-/business: no such folder"),
        (["--corpus=bbc", "--input=BBC", "--split=0.9,0.1"], "expected three shares"),
        (["--corpus=imdb", "--input=BBC", "--split=x,y"], "--split is x,y; expected shares"),
        (["--corpus=imdb", "--input=BBC", "--split=0.8,0.1,0.1"], "expected two shares"),
    ],
)
def test_refused_combinations_of_flags(bbc, tmp_path, arguments, expected):
    arguments = [argument.replace("BBC", str(bbc)) for argument in arguments]
    error = launch(*arguments, f"--output={tmp_path / 'out'}", code=2)
    assert expected.replace("BBC", str(bbc)) in error
    assert [path.name for path in tmp_path.iterdir()] == ["bbc"]


def test_tagged_text(tmp_path):
    text = tmp_path / "text"
    text.write_text("The/AT 1/2/CD\n\n=/SYM\n")
    out = tmp_path / "out"
    launch(f"--train={text}", "--format=tagged", f"--output={out}")
    words = [line.split("\t")[0] for line in (out / "vocabulary.tsv").read_text().splitlines()]
    assert words[3:] == ["1/2", "=", "The"]
    text.write_text("The/AT jury\n")
    error = launch(
        f"--test={text}",
        f"--vocabulary={out / 'vocabulary.tsv'}",
        "--format=tagged",
        f"--output={tmp_path / 'bad'}",
        code=2,
    )
    assert f"{text}:1: " in error and "'jury'" in error
    assert not (tmp_path / "bad").exists()
