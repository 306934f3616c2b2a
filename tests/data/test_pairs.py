"""Paired documents: what a document is made of lies beside it, in the same order."""

import pytest

from dclm_jax.data import open_corpus, prepare, read_documents
from dclm_jax.data.corpus import source_split
from dclm_jax.data.prepare import PrepareOptions
from dclm_jax.errors import InputError
from tests.data.support import contents
from tests.data.test_filters import SPLITS, write
from tests.launch.support import launch, refuse


def pair_of(number):
    """A document of a few words and its source, which name each other."""
    return [[f"t{number}", "x"]], [[f"s{number}", "y"] * (1 + number % 3), ["z"]]


def write_pairs(tmp_path, numbers, name=""):
    targets, sources = zip(*map(pair_of, numbers), strict=True)
    return write(tmp_path / f"{name}targets", targets), write(tmp_path / f"{name}sources", sources)


def numbers_of(documents):
    return [int(document[0][0][1:]) for document in documents.values()]


def test_both_are_divided_alike_over_one_vocabulary(tmp_path):
    targets, sources = write_pairs(tmp_path, range(40))
    out = tmp_path / "out"
    pair = {"input": targets, "input_source": sources}
    options = PrepareOptions(seed=2, vocab_size=1000)
    manifest = prepare(pair, out, options=options)
    assert list(manifest.splits) == [*SPLITS, *map(source_split, SPLITS)]
    assert source_split("train") == "train_source"
    corpus = open_corpus(out, "train_source")
    assert len(corpus.vocabulary) == 3 + 3 + 2 * 32
    words = dict(zip(corpus.vocabulary.words, corpus.vocabulary.counts, strict=True))
    assert words["x"] == 32 and words["z"] == 32 and words["<START>"] == 3 * 32
    of_targets = {d.id: d.sentences for d in read_documents(targets)}
    of_sources = {d.id: d.sentences for d in read_documents(sources)}
    for split, size in zip(SPLITS, (32, 4, 4), strict=True):
        corpora = [open_corpus(out, name) for name in (split, source_split(split))]
        ids, source_ids = (corpus.document_ids for corpus in corpora)
        assert len(ids) == len(source_ids) == size
        numbers = [int(of_targets[name][0][0][1:]) for name in ids]
        assert [int(of_sources[name][0][0][1:]) for name in source_ids] == numbers
    assert contents(out, "train_source") == {
        name: of_sources[name] for name in contents(out, "train_source")
    }
    # As without sources, and in the order of the text.
    prepare(targets, tmp_path / "alone", options=options)
    assert list(contents(tmp_path / "alone", "valid")) == list(contents(out, "valid"))
    assert prepare(pair, out, options=options) == manifest
    with pytest.raises(InputError, match="sources differ"):
        prepare(targets, out, options=options)


def test_a_pair_is_dropped_for_either_side(tmp_path):
    targets = write(tmp_path / "t", [[["a"] * n] for n in (1, 5, 5, 5, 5, 20)])
    sources = write(tmp_path / "s", [[["b"] * n] for n in (5, 5, 30, 1, 4, 1)])
    manifest = prepare(
        {"train": targets, "train_source": sources},
        tmp_path / "out",
        options=PrepareOptions(min_words=2, max_words=10),
    )
    for split in ("train", "train_source"):
        entry = manifest.splits[split]
        assert entry.documents == 2
        # Of the last pair the document is too long, which comes before its source.
        assert entry.dropped_documents == {"min_words": 2, "max_words": 2, "max_unknown": 0}
    assert [*contents(tmp_path / "out", "train")] == ["t:3", "t:9"]
    assert [*contents(tmp_path / "out", "train_source").values()] == [[["b"] * 5], [["b"] * 4]]
    vocabulary = open_corpus(tmp_path / "out", "train").vocabulary
    assert vocabulary.counts[3:] == (10, 9)


def test_unknown_words_of_a_source_drop_the_pair(tmp_path):
    targets = write(tmp_path / "t", [[["a", "a"]], [["a", "a"]]])
    sources = write(tmp_path / "s", [[["a", "b"]], [["a", "a"]]])
    manifest = prepare(
        {"train": targets, "train_source": sources},
        tmp_path / "o",
        options=PrepareOptions(vocab_size=1, max_unknown=0.1),
    )
    assert manifest.splits["train"].dropped_documents["max_unknown"] == 1
    assert [*contents(tmp_path / "o", "train")] == ["t:3"]


def test_the_command_takes_both_ways(tmp_path):
    targets, sources = write_pairs(tmp_path, range(20))
    out = tmp_path / "out"
    done = launch("prepare", f"--source={sources}", f"--target={targets}", f"--output={out}")
    table = done.stdout[done.stdout.index("split ") :]
    assert [line.split()[0] for line in table.splitlines()[1:7]] == [
        *SPLITS,
        *map(source_split, SPLITS),
    ]
    for split in SPLITS:
        numbers = numbers_of(read_words(targets, out, split))
        assert numbers == numbers_of(read_words(sources, out, source_split(split)))
    given = [f"--train={targets}", f"--train_source={sources}"]
    launch("prepare", *given, f"--output={tmp_path / 'given'}")
    assert len(contents(tmp_path / "given", "train_source")) == 20


def read_words(path, directory, split):
    """The text of the documents of a split, also of words that are unknown."""
    texts = {document.id: document.sentences for document in read_documents(path)}
    return {name: texts[name] for name in open_corpus(directory, split).document_ids}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--source=S"], "--source and --target belong together"),
        (["--train_source=S"], "inputs are train_source; expected any of train, valid, test, or"),
        (["--train=T", "--valid=T", "--train_source=S"], "and of each or of none a source, such"),
        (["--source=S", "--target=T", "--input=T"], "--source/--target and --input"),
        (["--source=S", "--target=T", "--corpus=sotu"], "--source/--target and --corpus=sotu"),
        (
            ["--source=S", "--target=T", "--split_documents_at=9"],
            "split_documents_at cuts single documents",
        ),
        (["--source=-", "--target=-"], "only one text can be read from standard input"),
        (["--train=-", "--train_source=-"], "only one text can be read from standard input"),
        (["--source=SHORT", "--target=T"], "T holds 3 documents and SHORT holds 1 documents"),
        (["--source=S", "--target=SHORT"], "SHORT holds 1 documents and S holds 3 documents"),
    ],
)
def test_bad_pairs(tmp_path, flags, message):
    targets, sources = write_pairs(tmp_path, range(3))
    short, _ = write_pairs(tmp_path, range(1), "short")
    names = {"SHORT": str(short), "=S": f"={sources}", "=T": f"={targets}"}
    for placeholder, path in names.items():
        flags = [flag.replace(placeholder, path) for flag in flags]
    for placeholder, path in {"SHORT": short, "S ": f"{sources} ", "T ": f"{targets} "}.items():
        message = message.replace(placeholder, str(path))
    assert message in refuse("prepare", *flags, f"--output={tmp_path / 'out'}")
    assert not (tmp_path / "out").exists()


def test_an_empty_document_is_named_since_it_would_shift_the_pairs(tmp_path):
    targets = tmp_path / "t.jsonl"
    targets.write_text('{"sentences": ["a"]}\n{"id": "none", "sentences": ["", []]}\n')
    sources = write(tmp_path / "s", [[["a"]], [["b"]]])
    with pytest.raises(InputError, match="t.jsonl: none has no words; a pair needs some"):
        prepare({"train": targets, "train_source": sources}, tmp_path / "o")
    assert not (tmp_path / "o").exists()
