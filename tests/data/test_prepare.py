import dataclasses
import json
import os
from typing import Any

import pytest

from dclm_jax.data.corpus import open_corpus
from dclm_jax.data.documents import TextOptions
from dclm_jax.data.prepare import prepare
from dclm_jax.data.vocabulary import Vocabulary
from dclm_jax.errors import InputError
from tests.data.support import contents, ids_of, make_corpus, read, snapshot, write

TEXT = "".join(f"a b w{i} <unk>\nc <UNK> .\n\n" for i in range(10))


@pytest.fixture
def text(tmp_path):
    return write(tmp_path / "text.txt", TEXT)


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def words_of(directory, split):
    return [*contents(directory, split).values()]


def test_unknown_token_maps_to_unknown_also_when_lowercased(text, out, caplog):
    make_corpus({"test": text, "train": text}, out, lowercase=True, unknown_token="<UNK>")
    assert "documents word for word in two splits: 10 of 10" in caplog.text
    corpus = open_corpus(out, "test")
    assert corpus.manifest.splits["test"].oov_tokens == 20
    assert corpus.vocabulary.unknown_token == "<unk>"
    assert "<unk>" not in corpus.vocabulary.entries


def test_given_vocabulary_and_its_unknown_token(tmp_path, text, out, caplog):
    Vocabulary(unknown_token="<unk>").extended({"c": 2, ".": 1}, 9).save(tmp_path / "v.tsv")
    manifest = make_corpus({"test": text}, out, vocabulary=tmp_path / "v.tsv")
    assert manifest.splits["test"].oov_tokens == 50
    assert "test: 71.43% of the words are out of vocabulary (0.00% in" in caplog.text
    assert words_of(out, "test")[0] == [["<UNKNOWN>"] * 4, ["c", "<UNKNOWN>", "."]]
    assert open_corpus(out, "test").vocabulary.unknown_token == "<unk>"


def test_words_of_the_training_text_are_added_to_a_vocabulary(tmp_path, text, out, caplog):
    old = Vocabulary(unknown_token="<unk>").extended({"c": 2, ".": 1}, 9, 4)
    old.save(tmp_path / "v.tsv")
    options: dict[str, Any] = dict(vocabulary=tmp_path / "v.tsv", min_count=2)
    manifest = make_corpus({"train": text, "test": text}, out, **options)
    vocabulary = open_corpus(out, "test").vocabulary
    assert vocabulary.entries == (*old.entries, "<UNK>", "a", "b")
    # w0 to w9 and <unk> are unknown.
    assert vocabulary.counts == (24, 24, 20, 12, 11, 10, 10, 10)
    assert manifest.vocabulary_size == 8 and manifest.splits["test"].oov_tokens == 20
    assert "v.tsv: 3" in caplog.text
    assert make_corpus({"train": text, "test": text}, out, **options) == manifest
    with pytest.raises(InputError, match="out: already has a different corpus .min_count differ"):
        make_corpus({"train": text, "test": text}, out, vocabulary=tmp_path / "v.tsv")


def test_first_documents_of_the_training_text(tmp_path, text, out, caplog):
    make_corpus({"train": text, "test": text}, out, max_documents=3, vocab_size=4)
    assert "documents word for word in two splits: 3 of 10" in caplog.text
    documents = read(text)
    assert list(contents(out, "train")) == [document.id for document in documents[:3]]
    assert len(contents(out, "test")) == 10
    assert open_corpus(out, "train").vocabulary.counts[:3] == (6, 6, 9)
    # Documents after the last one are not parsed.
    lines = write(tmp_path / "t.jsonl", '{"text": "good"}\n{"text": "better"}\n{"text": "best"}\n{')
    make_corpus({"train": lines}, tmp_path / "two", max_documents=2)
    assert words_of(tmp_path / "two", "train") == [[["good"]], [["better"]]]


def test_first_documents_of_a_text_to_divide(text, out):
    make_corpus(text, out, max_documents=5, fractions=(0.6, 0.2, 0.2))
    first = [document.id for document in read(text)][:5]
    assert sorted(sum(ids_of(out).values(), [])) == sorted(first)


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ({"test": "t"}, dict(vocabulary="v"), "max_documents limits the documents of --train"),
        (None, dict(format="sotu"), "max_documents limits the documents of --train"),
    ],
)
def test_texts_without_first_documents(out, source, options, message):
    with pytest.raises(InputError, match=message):
        make_corpus(source, out, max_documents=3, **options)


def test_a_word_of_the_vocabulary_cannot_stand_for_unknown_words(tmp_path, text, out):
    words = tmp_path / "v.tsv"
    Vocabulary().extended({"c": 2, "<unk>": 1}, 9).save(words)
    with pytest.raises(InputError, match="'<unk>', which is also a word of .*v.tsv; remove the wo"):
        make_corpus({"test": text}, out, vocabulary=words, unknown_token="<unk>")


def test_same_sources_and_options_are_reused(text, out, caplog):
    manifest = prepare({"train": text}, out)
    before = snapshot(out)
    caplog.clear()
    assert prepare({"train": text}, out) == manifest
    renamed = text.rename(text.with_stem("renamed.2"))
    assert prepare({"train": renamed}, out) == manifest
    assert snapshot(out) == before
    assert len(caplog.messages) == 2 and all(line.startswith("reusing") for line in caplog.messages)
    # The extension determines the format.
    with pytest.raises(InputError, match=r"a different corpus \(sources differ\)"):
        prepare({"train": renamed.rename(text.with_suffix(".csv"))}, out)


def test_other_options_or_sources_are_refused_unless_overwritten(tmp_path, text, out):
    make_corpus({"train": text}, out)
    before = snapshot(out)
    with pytest.raises(InputError, match=r"a different corpus \(vocab_size differ\)"):
        make_corpus({"train": text}, out, vocab_size=1)
    text.write_text("changed\n")
    with pytest.raises(InputError, match=r"a different corpus \(sources differ\)"):
        make_corpus({"train": text}, out)
    assert snapshot(out) == before
    prepare({"train": text}, out, overwrite=True)
    assert words_of(out, "train") == [[["changed"]]]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "text.txt"]


@pytest.mark.parametrize("name", ["train.tokens.bin", "tags.tsv"])
def test_damaged_corpus_is_not_reused(tmp_path, out, name):
    sources = {"train": write(tmp_path / "tagged", "a/X\n")}
    make_corpus(sources, out, "tagged")
    (out / name).write_bytes(b"x\n")
    with pytest.raises(InputError, match=f"{name}: its checksum differs from the manifest"):
        make_corpus(sources, out, "tagged")
    (out / "manifest.json").write_text('{"format_version": 0}')
    with pytest.raises(InputError, match="expected 2; prepare the corpus again with --overwrite"):
        make_corpus(sources, out, "tagged")
    prepare(sources, out, TextOptions("tagged"), overwrite=True)
    assert words_of(out, "train") == [[["a"]]]


def test_foreign_directory_is_left_alone_even_when_overwriting(tmp_path, text):
    precious = write(tmp_path / "mine" / "precious", "x")
    with pytest.raises(InputError, match="not a prepared corpus; choose another output"):
        prepare({"train": text}, tmp_path / "mine", overwrite=True)
    with pytest.raises(InputError, match="not a prepared corpus"):
        prepare({"train": text}, text, overwrite=True)
    make_corpus({"train": text}, tmp_path / "corpus")
    run = write(tmp_path / "corpus" / "run" / "config.json", "{}")
    with pytest.raises(InputError, match="corpus/run: is not part of the corpus, and --overwrite"):
        prepare({"train": text}, tmp_path / "corpus", overwrite=True)
    assert precious.read_text() == "x" and run.read_text() == "{}"


def test_nothing_is_left_after_an_error_late_in_the_text(tmp_path):
    text = write(tmp_path / "bad", b"good\n\ngood\n\n\xff\n")
    with pytest.raises(InputError, match="bad:5"):
        make_corpus({"train": text}, tmp_path / "deep" / "out")
    assert list((tmp_path / "deep").iterdir()) == []


def test_input_is_split_by_document_and_seed(tmp_path, text):
    def ids(name, seed):
        make_corpus(text, tmp_path / name, seed=seed)
        return list(ids_of(tmp_path / name).values())

    first, same, other = ids("first", 1), ids("same", 1), ids("other", 2)
    assert first == same != other
    assert list(map(len, first)) == [8, 1, 1]
    everything = [document.id for document in read(text)]
    assert sorted(sum(first, [])) == sorted(everything)
    assert first[0] == sorted(first[0], key=everything.index)


def test_input_split_keeps_text_and_makes_vocabulary_from_train(text, out):
    make_corpus(text, out)
    texts = {document.id: document.sentences for document in read(text)}
    assert contents(out, "train") == {name: texts[name] for name in ids_of(out)["train"]}
    for split in ("valid", "test"):
        assert words_of(out, split)[0][0] == ["a", "b", "<UNKNOWN>", "<unk>"]
    vocabulary = open_corpus(out, "train").vocabulary
    assert vocabulary.counts[:3] == (16, 16, 0)
    assert vocabulary.counts[vocabulary.entries.index("a")] == 8


def test_share_of_zero_leaves_a_split_out(text, out):
    manifest = make_corpus(text, out, fractions=(0.5, 0, 0.5))
    documents = {split: entry.documents for split, entry in manifest.splits.items()}
    assert documents == {"train": 5, "test": 5}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\n\nb\n", "2 documents are too few to split as 0.8,0.1,0.1"),
        ("a\n", "1 document is too few .* line that begins with = ends"),
    ],
)
def test_too_few_documents_to_split(tmp_path, out, text, message):
    with pytest.raises(InputError, match=message):
        make_corpus(write(tmp_path / "t", text), out)


def test_a_named_pipe_is_refused(tmp_path, out):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="pipe: a text to prepare is read twice"):
        make_corpus({"train": tmp_path / "pipe"}, out)


def test_names_of_files_need_not_be_valid_utf8(tmp_path, out):
    path = write(tmp_path / os.fsdecode(b"caf\xe9"), "a b\n")
    manifest = prepare({"train": path}, out)
    corpus = open_corpus(out, "train")
    assert manifest.sources["train"]["name"] == str(path)
    assert (corpus.manifest, corpus.document_ids) == (manifest, ["caf\\udce9:1"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(vocab_size=0), "vocab_size is 0; expected at least 1"),
        (dict(min_count=99), "min_count is 99; the most frequent word has the count 8"),
        (dict(max_documents=0), "max_documents is 0; expected at least 1"),
        (dict(max_documents=2), "2 documents are too few to split"),
        (dict(unknown_token="two words"), "expected one word"),
        (dict(min_words=5, max_words=4), "max_words is 4; expected at least 5"),
        (dict(max_unknown=1.5), "max_unknown is 1.5; expected a share from 0 to 1"),
        (dict(fractions=(0.8, 0.1, 0.2)), "expected three shares"),
        (dict(fractions=(1.1, 0, -0.1)), "expected three shares"),
        (dict(fractions=(0, 0.5, 0.5)), "there is no train split to count a vocabulary"),
        (
            dict(fractions=(0, 0.5, 0.5), vocabulary="v", min_count=2),
            "there is no train split to count words; remove --min_count",
        ),
    ],
)
def test_bad_options(text, out, options, message):
    with pytest.raises(InputError, match=message):
        make_corpus(text, out, **options)
    assert not out.exists()


def test_manifest_is_plain_json_of_the_returned_value(text, out):
    manifest = make_corpus({"train": text}, out)
    saved = json.loads((out / "manifest.json").read_text("utf-8"))
    assert saved == dataclasses.asdict(manifest)
