import dataclasses
import io
import json
import os
import threading
import types

import numpy as np
import pytest

from dclm_jax.data import Vocabulary, open_corpus, prepare, read_documents
from dclm_jax.data.documents import TextOptions
from dclm_jax.data.prepare import PrepareOptions
from dclm_jax.errors import InputError
from tests.data.support import contents
from tests.launch.support import launch

TEXT = "".join(f"a b w{i} <unk>\nc <UNK> .\n\n" for i in range(10))


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def words_of(directory, split):
    return [*contents(directory, split).values()]


def snapshot(directory):
    return {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in directory.iterdir()}


def test_round_trip_of_all_words(tmp_path, text):
    prepare({"train": text}, tmp_path / "out")
    assert words_of(tmp_path / "out", "train") == [d.sentences for d in read_documents(text)]


def test_unknown_token_maps_to_unknown_also_when_lowercased(tmp_path, text):
    prepare(
        {"test": text, "train": text},
        tmp_path / "o",
        TextOptions(lowercase=True),
        PrepareOptions(unknown_token="<UNK>"),
    )
    corpus = open_corpus(tmp_path / "o", "test")
    assert corpus.manifest.splits[corpus.split].oov_tokens == 20
    assert corpus.vocabulary.unknown_token == "<unk>"
    assert "<unk>" not in corpus.vocabulary.words


def test_vocabulary_is_that_of_train_alone(tmp_path, text):
    (tmp_path / "valid").write_text("new a new\n")
    prepare({"train": text, "valid": tmp_path / "valid"}, tmp_path / "out")
    assert words_of(tmp_path / "out", "valid") == [[["<UNKNOWN>", "a", "<UNKNOWN>"]]]


def test_given_vocabulary_and_its_unknown_token(tmp_path, text):
    Vocabulary.build({"c": 2, ".": 1}, 9, "<unk>").save(tmp_path / "v.tsv")
    manifest = prepare(
        {"test": text}, tmp_path / "out", options=PrepareOptions(vocabulary=tmp_path / "v.tsv")
    )
    assert manifest.splits["test"].oov_tokens == 50
    assert words_of(tmp_path / "out", "test")[0] == [["<UNKNOWN>"] * 4, ["c", "<UNKNOWN>", "."]]
    assert open_corpus(tmp_path / "out", "test").vocabulary.unknown_token == "<unk>"


def test_same_sources_and_options_are_reused(tmp_path, text):
    said = []
    first = prepare({"train": text}, tmp_path / "out")
    before = snapshot(tmp_path / "out")
    assert prepare({"train": text}, tmp_path / "out", report=said.append) == first
    assert snapshot(tmp_path / "out") == before
    assert len(said) == 1 and said[0].startswith("reusing")


def test_other_options_or_sources_are_refused_unless_overwritten(tmp_path, text):
    out = tmp_path / "out"
    prepare({"train": text}, out)
    before = snapshot(out)
    with pytest.raises(InputError, match=r"made otherwise \(vocab_size differ\)"):
        prepare({"train": text}, out, options=PrepareOptions(vocab_size=1))
    text.write_text("changed\n")
    with pytest.raises(InputError, match=r"made otherwise \(sources differ\)"):
        prepare({"train": text}, out)
    assert snapshot(out) == before
    prepare({"train": text}, out, overwrite=True)
    assert words_of(out, "train") == [[["changed"]]]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "text.txt"]


def test_damaged_corpus_is_not_reused(tmp_path, text):
    prepare({"train": text}, tmp_path / "out")
    (tmp_path / "out" / "train.tokens.bin").write_bytes(b"")
    with pytest.raises(InputError, match="has 0 bytes"):
        prepare({"train": text}, tmp_path / "out")


def test_foreign_directory_is_left_alone_even_when_overwriting(tmp_path, text):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious").write_text("x")
    with pytest.raises(InputError, match="no prepared corpus; it is left alone"):
        prepare({"train": text}, tmp_path / "mine", overwrite=True)
    with pytest.raises(InputError, match="no prepared corpus"):
        prepare({"train": text}, text, overwrite=True)
    assert (tmp_path / "mine" / "precious").read_text() == "x"


def test_nothing_is_left_after_an_error_late_in_the_text(tmp_path):
    (tmp_path / "bad").write_bytes(b"good\n\ngood\n\n\xff\n")
    with pytest.raises(InputError, match="bad:5"):
        prepare({"train": tmp_path / "bad"}, tmp_path / "deep" / "out")
    assert list((tmp_path / "deep").iterdir()) == []


def test_input_is_split_by_document_and_seed(tmp_path, text):
    def ids(name, seed):
        prepare(text, tmp_path / name, options=PrepareOptions(seed=seed))
        return [open_corpus(tmp_path / name, s).document_ids for s in ("train", "valid", "test")]

    one, same, other = ids("one", 1), ids("same", 1), ids("other", 2)
    assert one == same != other
    assert list(map(len, one)) == [8, 1, 1]
    everything = [d.id for d in read_documents(text)]
    assert sorted(sum(one, [])) == sorted(everything)
    assert one[0] == sorted(one[0], key=everything.index)


def test_input_split_keeps_text_and_makes_vocabulary_from_train(tmp_path, text):
    prepare(text, tmp_path / "out")
    train = words_of(tmp_path / "out", "train")
    by_id = {d.id: d.sentences for d in read_documents(text)}
    assert train == [by_id[i] for i in open_corpus(tmp_path / "out", "train").document_ids]
    for split in ("valid", "test"):
        assert words_of(tmp_path / "out", split)[0][0] == ["a", "b", "<UNKNOWN>", "<unk>"]
    vocabulary = open_corpus(tmp_path / "out", "train").vocabulary
    assert vocabulary.counts[:3] == (16, 16, 0)
    assert vocabulary.counts[vocabulary.words.index("a")] == 8


def test_share_of_zero_leaves_a_split_out(tmp_path, text):
    manifest = prepare(text, tmp_path / "out", options=PrepareOptions(fractions=(0.5, 0, 0.5)))
    assert {s: e.documents for s, e in manifest.splits.items()} == {"train": 5, "test": 5}


def test_too_few_documents_to_split(tmp_path):
    (tmp_path / "t").write_text("a\n\nb\n")
    with pytest.raises(InputError, match="2 documents are too few to split as 0.8,0.1,0.1"):
        prepare(tmp_path / "t", tmp_path / "out")
    (tmp_path / "t").write_text("a\n")
    with pytest.raises(InputError, match="1 document is too few .* line = ends one"):
        prepare(tmp_path / "t", tmp_path / "out")


def test_empty_sentences_are_counted_per_split(tmp_path):
    (tmp_path / "t.jsonl").write_text(
        '{"sentences": ["a", ""]}\n{"sentences": ["b"]}\n{"sentences": [[], "", "c"]}\n'
    )
    manifest = prepare({"train": tmp_path / "t.jsonl"}, tmp_path / "out")
    assert manifest.splits["train"].empty_sentences == 3
    assert manifest.splits["train"].sentences == 3


def test_penn_treebank_without_document_boundaries_is_one_document_a_split(tmp_path):
    # As Mikolov's files are: a space at both ends of a line, <unk> and N in the text.
    line = " the <unk> rose N N to $ N million \n"
    sizes = {"train": 42_068, "valid": 3_370, "test": 3_761}
    sources = {split: tmp_path / f"ptb.{split}.txt" for split in sizes}
    for split, size in sizes.items():
        sources[split].write_text(line * size)
    manifest = prepare(sources, tmp_path / "out", options=PrepareOptions(unknown_token="<unk>"))
    for split, size in sizes.items():
        entry = manifest.splits[split]
        assert (entry.documents, entry.sentences, entry.tokens) == (1, size, 9 * size)
        assert (entry.oov_tokens, entry.longest_document) == (size, size)
    corpus = open_corpus(tmp_path / "out", "train")
    assert corpus.vocabulary.words[3:] == ("N", "$", "million", "rose", "the", "to")
    assert corpus.vocabulary.decode(corpus.document(0)[42_067]) == [
        *("the", "<UNKNOWN>", "rose", "N", "N", "to", "$", "N", "million")
    ]


def test_named_pipe_is_read_once(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("a b\n",))
    writer.start()
    prepare({"train": pipe}, tmp_path / "out")
    writer.join()
    assert words_of(tmp_path / "out", "train") == [[["a", "b"]]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(seed=-1), "seed is -1; expected at least 0"),
        (dict(vocab_size=0), "vocab_size is 0; expected at least 1"),
        (dict(min_count=0), "min_count is 0; expected at least 1"),
        (dict(min_count=99), "min_count is 99; the most frequent word occurs 8 times"),
        (dict(min_count=2, vocabulary="v"), "min_count belongs to a vocabulary of training words"),
        (dict(unknown_token="two words"), "expected one word"),
        (dict(encoding="base64"), "there is no encoding 'base64'"),
        (dict(split_documents_at=0), "split_documents_at is 0; expected at least 1"),
        (dict(min_words=0), "min_words is 0; expected at least 1"),
        (dict(max_words=-1), "max_words is -1; expected at least 1"),
        (dict(min_words=5, max_words=4), "max_words is 4; expected at least 5"),
        (dict(max_unknown=1.5), "max_unknown is 1.5; expected a share from 0 to 1"),
        (dict(max_unknown=float("nan")), "max_unknown is nan"),
        (dict(fractions=(0.8, 0.1)), "expected three shares of train, valid and test"),
        (dict(fractions=(0.8, 0.1, 0.2)), "expected three shares"),
        (dict(fractions=(1.1, 0, -0.1)), "expected three shares"),
        (dict(fractions=(0, 0.5, 0.5)), "without a train split a vocabulary is needed"),
    ],
)
def test_bad_options(tmp_path, text, options, message):
    with pytest.raises(InputError, match=message):
        prepare(text, tmp_path / "out", options=PrepareOptions(**options))
    assert not (tmp_path / "out").exists()


def test_unknown_names_of_formats_and_splits(tmp_path, text):
    with pytest.raises(InputError, match="unknown format 'xml'"):
        prepare({"train": text}, tmp_path / "out", TextOptions("xml"))
    with pytest.raises(InputError, match="inputs are dev; expected any of train, valid, test, or"):
        prepare({"dev": text}, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_command_line_success_and_reuse(tmp_path, text):
    out = tmp_path / "out"
    arguments = (f"--train={text}", "--test=-", f"--output={out}", "--unknown_token=<unk>")
    done = launch("prepare", *arguments, stdin="a new\n")
    assert done.stdout.splitlines()[-1] == f"prepared corpus: {out}"
    assert "train         10         20" in done.stdout
    assert words_of(out, "test") == [[["a", "<UNKNOWN>"]]]
    assert open_corpus(out, "test").document_ids == ["-:1"]
    again = launch("prepare", *arguments, stdin="a new\n")
    assert again.stdout.startswith("reusing")


def test_standard_input_that_is_no_text_is_refused_by_its_name(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", types.SimpleNamespace(buffer=io.BytesIO(b"a\n\xff\n")))
    with pytest.raises(InputError, match="^-:2: not valid UTF-8"):
        prepare({"train": "-"}, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_manifest_is_plain_json_of_the_returned_value(tmp_path, text):
    manifest = prepare({"train": text}, tmp_path / "out")
    kept = json.loads((tmp_path / "out" / "manifest.json").read_text("utf-8"))
    assert kept == dataclasses.asdict(manifest)
    assert np.isclose(manifest.splits["train"].tokens_per_document, 7.0)
