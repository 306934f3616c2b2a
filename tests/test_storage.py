"""Runs and corpora under gs:// in a stand-in for Google's storage: tests/buckets/gcsfs.py."""

import contextlib
import hashlib
import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import pytest

import dclm_jax
from dclm_jax import files, ngram, storage
from dclm_jax.data.corpus import open_corpus
from dclm_jax.data.prepare import PrepareOptions, prepare
from dclm_jax.errors import DivergenceError, InputError
from dclm_jax.training import loop
from dclm_jax.training.workdir import complete, restore_run
from tests.buckets.gcsfs import FAILS_AFTER, FOLDER, GCSFileSystem
from tests.exhaustive import some
from tests.launch import support
from tests.training.support import assert_same_bits, config, latest_state, quiet, read_metrics

BUCKETS = Path(__file__).parent / "buckets"
DATA, RUN = "gs://bucket/data/small", "gs://bucket/runs/one"


class Bucket:
    """What lies under gs://, seen without the code under test."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.system = GCSFileSystem()

    def names(self, address: str) -> list[str]:
        prefix = address.removeprefix("gs://") + "/"
        names = map(unquote, os.listdir(self.folder))
        return sorted(name.removeprefix(prefix) for name in names if name.startswith(prefix))

    def read(self, address: str) -> bytes:
        with self.system.open(address, "rb") as file:
            content: Any = file.read()
        return content

    def write(self, address: str, content: bytes) -> None:
        self.system.pipe_file(address, content)

    def copy(self, address: str, target: Path) -> Path:
        """All files below an address, as a directory."""
        for name in self.names(address):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes(self.read(f"{address}/{name}"))
        return target


@pytest.fixture
def bucket(tmp_path, monkeypatch) -> Bucket:
    """An empty bucket, and a user who has the package for it and an empty cache."""
    folder = tmp_path / "objects"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(BUCKETS))
    monkeypatch.setenv("EPATH_USE_TF", "false")
    monkeypatch.setenv(FOLDER, str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    return Bucket(folder)


def put(bucket: Bucket, directory: Path, address: str) -> None:
    for name, content in support.fingerprint(directory).items():
        bucket.write(f"{address}/{name}", content)


def prepared(texts, place: str | Path = DATA, vocab_size: int = 20, **options: Any):
    options = {"report": quiet, **options}
    return prepare(texts, place, options=PrepareOptions(vocab_size=vocab_size), **options)


def counted_downloads(monkeypatch) -> list[str]:
    """The names below RUN, or whole addresses, of what is copied from now on."""
    names: list[str] = []
    download = storage.download

    def counted(location, file):
        names.append(str(location).removeprefix(f"{RUN}/"))
        download(location, file)

    monkeypatch.setattr(storage, "download", counted)
    return names


# Addresses


@pytest.mark.parametrize(
    "text", ["runs/one", "/tmp/x", "gs:/b/x", "a:b", "", "gs", "x//y", "1://x"]
)
def test_paths_of_this_machine_stay_what_they_were(text):
    assert type(storage.locate(text)) is type(Path(text))
    assert storage.locate(text) == Path(text)
    assert not storage.is_remote(text)
    assert storage.absolute(text) == str(Path(text).absolute())


def test_an_address_is_kept_as_it_is():
    text = "gs://bucket/a/b"
    assert str(storage.locate(text)) == storage.absolute(text) == str(storage.resolve(text)) == text
    assert storage.is_remote(text) and storage.is_remote(storage.locate(text))
    for other in ("hdfs://a/b", "s3://a/b", "gs://", "gs:///", "GS://a/b", "file:///tmp/x"):
        with pytest.raises(InputError, match=f"^{other}: expected gs://BUCKET/... or a local path"):
            storage.locate(other)


def test_a_missing_package_is_told_before_anything_is_done(monkeypatch):
    monkeypatch.setenv("EPATH_USE_TF", "false")
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    message = r"^gs://b/x: gs:// needs a package: pip install 'etils\[epath-gcs\]'"
    with pytest.raises(InputError, match=message):
        dclm_jax.restore("gs://b/x")
    with pytest.raises(InputError, match=message), files.open_output("gs://b/x"):
        pytest.fail("an hour of work")


# Corpora


def test_a_corpus_is_prepared_there_and_read_back(bucket, texts, data, tmp_path):
    lines: list[str] = []
    manifest = prepared(texts, report=lines.append)
    assert manifest == prepared(texts, data)
    assert support.fingerprint(data) == support.fingerprint(bucket.copy(DATA, tmp_path / "copy"))
    assert bucket.names("gs://bucket") == [f"data/small/{name}" for name in bucket.names(DATA)]
    here, there = (open_corpus(place, "train") for place in (data, DATA))
    assert np.array_equal(here.tokens, there.tokens)
    assert here.document_ids == there.document_ids
    assert (here.checksums, here.vocabulary) == (there.checksums, there.vocabulary)
    assert prepared(texts, report=lines.append) == manifest
    assert lines[-1] == f"reusing {DATA}: it has the same sources and options"
    assert not list((tmp_path / "tmp").iterdir())


def test_another_corpus_is_refused_or_replaces_the_old_one(bucket, texts):
    prepared(texts)
    before = {name: bucket.read(f"{DATA}/{name}") for name in bucket.names(DATA)}
    with pytest.raises(InputError, match=f"{DATA}: already has a different corpus .vocab_size"):
        prepared(texts, vocab_size=5)
    assert {name: bucket.read(f"{DATA}/{name}") for name in bucket.names(DATA)} == before
    fewer = {split: texts[split] for split in ("train", "valid")}
    bucket.write(f"{DATA}/run/config.json", b"{}")
    with pytest.raises(InputError, match=f"{DATA}/run/config.json: is not part of the corpus"):
        prepared(fewer, vocab_size=5, overwrite=True)
    bucket.system.rm_file(f"{DATA}/run/config.json")
    # Some programs make an object for a folder.
    bucket.write(f"{DATA}/", b"")
    prepared(fewer, vocab_size=5, overwrite=True)
    assert not [name for name in bucket.names(DATA) if name.startswith("test")]
    assert len(open_corpus(DATA, "train").vocabulary) == 8
    bucket.write("gs://bucket/other/text", b"mine")
    with pytest.raises(InputError, match="gs://bucket/other: is not a prepared corpus"):
        prepared(texts, "gs://bucket/other")


def test_a_corpus_that_is_cut_off_on_its_way_is_none(bucket, texts, monkeypatch):
    files = 14
    for number in range(files):
        monkeypatch.setenv(FAILS_AFTER, str(number))
        place = f"gs://bucket/{number}"
        with pytest.raises(InputError, match=f"{place}/.*ConnectionResetError: the network"):
            prepared(texts, place)
        monkeypatch.delenv(FAILS_AFTER)
        assert len(bucket.names(place)) == number
        with pytest.raises(InputError, match="manifest.json"):
            open_corpus(place, "train")
    monkeypatch.setenv(FAILS_AFTER, str(files))
    prepared(texts)
    assert len(bucket.names(DATA)) == files


def test_a_copy_that_is_old_or_damaged_is_not_used(bucket, texts, tmp_path, monkeypatch):
    prepared(texts)
    fetched = counted_downloads(monkeypatch)
    first = open_corpus(DATA, "test")
    assert len(fetched) == 6
    fetched.clear()
    assert np.array_equal(open_corpus(DATA, "test").tokens, first.tokens)
    assert [name.rpartition("/")[2] for name in fetched] == ["manifest.json"]
    copy = first.directory / "test.tokens.bin"
    content = copy.read_bytes()
    copy.unlink()
    copy.write_bytes(content[:-4] + b"\3\0\0\0")
    assert np.array_equal(open_corpus(DATA, "test").tokens, np.frombuffer(content, "<i4"))
    # Prepared again, the same names hold something else.
    other = texts | {"test": texts["valid"]}
    prepared(other, overwrite=True)
    assert np.array_equal(open_corpus(DATA, "test").tokens, open_corpus(DATA, "valid").tokens)
    bucket.write(f"{DATA}/train.tokens.bin", content)
    with pytest.raises(InputError, match=f"{DATA}/train.tokens.bin: its checksum differs"):
        open_corpus(DATA, "train")


def test_an_object_that_stands_for_a_folder_is_no_file(bucket, texts):
    for name in ("bucket/run/", "bucket/run/sub/"):
        (bucket.folder / quote(name, safe="")).write_bytes(b"")
    bucket.write("gs://bucket/run/run", b"one of its name")
    bucket.write("gs://bucket/run/sub/x", b"")
    location = storage.locate("gs://bucket/run")
    assert not isinstance(location, Path)
    assert storage.list_files(location) == ["run", "sub/x"]
    (bucket.folder / quote(f"{DATA[5:]}/", safe="")).write_bytes(b"")
    prepared(texts)
    assert open_corpus(DATA, "train").num_documents == 30


def test_names_that_lead_out_are_not_followed(bucket, tmp_path):
    bucket.write("gs://bucket/run/../escaped", b"x")
    bucket.write("gs://bucket/run/checkpoints/../../escaped", b"x")
    bucket.write("gs://bucket/run//tmp/escaped", b"x")
    bucket.write("gs://bucket/run/config.json", b"{}")
    location = storage.locate("gs://bucket/run")
    assert not isinstance(location, Path)
    assert storage.list_files(location) == ["config.json"]
    with storage.fetched("gs://bucket/run", list) as folder:
        assert list(support.fingerprint(folder)) == ["config.json"]
    assert not list(tmp_path.rglob("escaped"))


# Runs


def test_a_run_there_is_the_run_here(bucket, texts, uninterrupted, tmp_path):
    prepared(texts)
    lines: list[str] = []
    result = loop.train(config(Path("unused"), **{"data.directory": DATA}), RUN, lines.append)
    assert result.ending == "finished" and f"workdir: {RUN}" in lines
    there = bucket.copy(RUN, tmp_path / "copy")
    assert_same_bits(latest_state(there, 12), latest_state(uninterrupted, 12))
    assert_same_bits(restore_run(there).params, restore_run(uninterrupted).params)
    # Orbax gives its files of arrays names that mean nothing.
    names, expected = (
        {re.sub("/d/[0-9a-f]{32}$", "/d/", name) for name in files if "tensorboard" not in name}
        for files in (bucket.names(RUN), support.fingerprint(uninterrupted))
    )
    assert names == expected
    assert bucket.read(f"{RUN}/result.json") == (uninterrupted / "result.json").read_bytes()
    assert bucket.read(f"{RUN}/lock") == b""
    assert json.loads(bucket.read(f"{RUN}/config.json"))["data"]["directory"] == DATA
    steps = [line["step"] for line in read_metrics(there)]
    assert steps == [line["step"] for line in read_metrics(uninterrupted)]
    # What used it, and what it was used for, is gone.
    assert not list((tmp_path / "tmp").iterdir())


def test_a_model_there_scores_as_the_one_here(bucket, data, uninterrupted, monkeypatch):
    """From copies of the files that are needed alone, which are gone before it is used."""
    put(bucket, uninterrupted, RUN)
    bucket.write(f"{RUN}/tensorboard/events", b"")
    documents = [["a b c", "d e"], ["f zz"]]
    fetched = counted_downloads(monkeypatch)
    there = dclm_jax.restore(RUN)
    assert {"config.json", "vocabulary.tsv"} < set(fetched)
    assert {name.split("/")[1] for name in fetched if "/" in name} == {"best"}
    assert list(there.score(documents)) == list(dclm_jax.restore(uninterrupted).score(documents))
    assert there.config["data"]["directory"] == str(data)
    with pytest.raises(InputError, match="gs/bucket/runs/two has no run"):
        dclm_jax.restore("gs://bucket/runs/two")


def test_an_ngram_model_there_is_read(bucket, data, uninterrupted, monkeypatch):
    binary = b"of KenLM"
    config = {
        "model": {"name": "ngram", "order": 2},
        "data": {"directory": str(data)},
        "binary": {"sha256": hashlib.sha256(binary).hexdigest()},
    }
    bucket.write(f"{RUN}/config.json", json.dumps(config).encode())
    bucket.write(f"{RUN}/vocabulary.tsv", (uninterrupted / "vocabulary.tsv").read_bytes())
    bucket.write(f"{RUN}/model.arpa", b"\\data\\\nngram 1=3\nngram 2=1\n\n\\1-grams:\n")
    bucket.write(f"{RUN}/model.binary", binary)
    loaded = []
    monkeypatch.setattr(ngram, "_load", lambda path: loaded.append(Path(path).read_bytes()))
    assert dclm_jax.restore(RUN).num_parameters == 4
    assert loaded == [binary]
    bucket.write(f"{RUN}/model.binary", b"something else")
    with pytest.raises(InputError, match="model.binary: its checksum differs"):
        dclm_jax.restore(RUN)


def test_a_checkpoint_is_kept_before_the_run_goes_on(bucket, data, monkeypatch):
    seen = []
    evaluate = loop._Run.evaluate

    def look(run, params):
        there = complete(bucket.names(RUN))
        seen.append((run.step, {name.split("/")[2] for name in there if "/latest/" in name}))
        evaluate(run, params)

    monkeypatch.setattr(loop._Run, "evaluate", look)
    loop.train(config(data), RUN, quiet)
    assert seen == [(5, {"4"}), (10, {"5", "8"}), (12, {"8", "10"})]


def test_what_says_that_something_is_whole_comes_last_and_goes_first(bucket, tmp_path, monkeypatch):
    order: list[str] = []
    upload, remove = storage.upload, storage.Mirror._remove

    def counted_upload(file, location):
        order.append(location.name)
        upload(file, location)

    def counted_remove(mirror, names):
        for name in names:
            order.append(f"-{Path(name).name}")
            remove(mirror, [name])

    monkeypatch.setattr(storage, "upload", counted_upload)
    monkeypatch.setattr(storage.Mirror, "_remove", counted_remove)
    bucket.write(f"{RUN}/checkpoints/best/3/params/lost", b"")
    with storage.mirrored(RUN, complete, ["checksums.json"], "tensorboard") as (copy, mirror):
        assert mirror is not None
        saved = copy / "checkpoints" / "best"
        for name in ("4/checksums.json", "4/params/a", "4/params/z", "4/zz", "5.tmp/a", "6/b/c"):
            (saved / name).parent.mkdir(parents=True, exist_ok=True)
            (saved / name).write_text(name)
            os.utime(saved / name, (1, 1))
        mirror.upload()
        assert sorted(order[:3]) == ["a", "z", "zz"]
        assert order[3:] == ["checksums.json", "-lost"]
        order.clear()
        mirror.upload()
        assert order == []
        shutil.rmtree(saved / "4")
        mirror.upload()
    assert order[0] == "-checksums.json" and len(order) == 4
    assert bucket.names(RUN) == []


def test_a_run_that_diverges_keeps_its_numbers(bucket, data):
    values = {"optimizer.name": "sgd", "optimizer.learning_rate": 1e30, "optimizer.clip_norm": 0.0}
    with pytest.raises(DivergenceError):
        loop.train(config(data, **values), RUN, quiet)
    assert bucket.read(f"{RUN}/metrics.jsonl")
    assert bucket.read(f"{RUN}/lock") == b""
    assert "result.json" not in bucket.names(RUN)


def test_another_run_changes_nothing_and_the_same_is_told_who_was_writing(
    bucket, data, uninterrupted, capfd
):
    put(bucket, uninterrupted, RUN)
    bucket.write(f"{RUN}/lock", b"process 7 on elsewhere since today")
    before = {name: bucket.read(f"{RUN}/{name}") for name in bucket.names(RUN)}
    with pytest.raises(InputError, match=f"^{RUN} already contains a different run .model.d"):
        loop.train(config(data, **{"model.dropout": 0.1}), RUN, quiet)
    assert {name: bucket.read(f"{RUN}/{name}") for name in bucket.names(RUN)} == before
    assert loop.train(config(data), RUN, quiet).ending == "finished"
    note = capfd.readouterr().err
    assert "gs/bucket/runs/one was left locked by process 7 on elsewhere since today" in note


def test_files_of_others_stay(bucket, data):
    bucket.write(f"{RUN}/perplexity.json", b"mine")
    bucket.write(f"{RUN}/tensorboard/events.before", b"mine")
    evaluate = loop._Run.evaluate

    def write_beside(run, params):
        bucket.write(f"{RUN}/perplexity.json", b"newer")
        bucket.write(f"{RUN}/coherence.json", b"new")
        evaluate(run, params)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop._Run, "evaluate", write_beside)
        loop.train(config(data), RUN, quiet)
    assert bucket.read(f"{RUN}/perplexity.json") == b"newer"
    assert bucket.read(f"{RUN}/coherence.json") == b"new"
    assert bucket.read(f"{RUN}/tensorboard/events.before") == b"mine"


def uploads_of_a_run() -> int:
    return 1000 - int(os.environ[FAILS_AFTER])


def test_a_run_goes_on_wherever_its_network_was_lost(
    bucket, data, uninterrupted, monkeypatch, capfd
):
    """What lies there then can be gone on from, with the bits of a run that was left alone."""
    monkeypatch.setenv(FAILS_AFTER, "1000")
    loop.train(config(data), RUN, quiet)
    total = uploads_of_a_run()
    assert total > 60
    expected = latest_state(uninterrupted, 12)
    # In every part of it; a few uploads more or less are those of orbax.
    for number in range(3, total - 10, total // some(3, all=8)):
        address = f"gs://bucket/lost/{number}"
        monkeypatch.setenv(FAILS_AFTER, str(number))
        with pytest.raises(InputError, match="the network is gone"):
            loop.train(config(data), address, quiet)
        monkeypatch.delenv(FAILS_AFTER)
        capfd.readouterr()
        # What was only half there was never there.
        with contextlib.suppress(InputError):
            dclm_jax.restore(address)
        assert loop.train(config(data), address, quiet).ending == "finished"
        assert "cannot be used" not in capfd.readouterr().err
        there = bucket.copy(address, bucket.folder.parent / str(number))
        assert_same_bits(latest_state(there, 12), expected)
        assert_same_bits(restore_run(there).params, restore_run(uninterrupted).params)
        steps = sorted(os.listdir(there / "checkpoints" / "latest"))
        assert steps == sorted(os.listdir(uninterrupted / "checkpoints" / "latest"))
        shutil.rmtree(there)


# Results


def test_results_are_written_there_whole_or_not_at_all(bucket, monkeypatch):
    files.write_json("gs://bucket/new/result.json", {"a": 1})
    assert json.loads(bucket.read("gs://bucket/new/result.json")) == {"a": 1}
    files.write_bytes("gs://bucket/new/picture.png", b"png")
    assert bucket.names("gs://bucket/new") == ["picture.png", "result.json"]

    def breaks_off():
        with files.open_output("gs://bucket/new/result.json") as file:
            file.write("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        breaks_off()
    assert json.loads(bucket.read("gs://bucket/new/result.json")) == {"a": 1}
    monkeypatch.setenv(FAILS_AFTER, "0")
    with pytest.raises(InputError, match="gs://bucket/new/b.json: ConnectionResetError"):
        files.write_json("gs://bucket/new/b.json", {})


def test_commands_take_addresses(bucket, texts, tmp_path):
    text = [f"--{split}={path}" for split, path in texts.items()]
    support.launch("prepare", *text, f"--output={DATA}", "--vocab_size=20")
    configuration = tmp_path / "tiny.py"
    configuration.write_text(support.CONFIG.format(steps=8))
    training = [
        *(f"--config={configuration}", f"--config.data.directory={DATA}", f"--workdir={RUN}"),
        # A curve has two points.
        "--config.training.evaluate_every=4",
    ]
    support.launch("train", *training)
    run = f"--workdir={RUN}"
    support.launch("evaluate", run, f"--output={RUN}/perplexity.json")
    result = json.loads(bucket.read(f"{RUN}/perplexity.json"))
    assert (result["workdir"], result["data"]) == (RUN, DATA)
    flags = [run, f"--data={DATA}", "--permutations=2", f"--output={RUN}/coherence.json"]
    support.launch("coherence", *flags)
    score = [run, f"--input={texts['test']}", f"--output={RUN}/scores.jsonl"]
    support.launch("score", *score)
    assert bucket.read(f"{RUN}/scores.jsonl").count(b"\n") == 6
    flags = [f"--workdirs={RUN}", f"--output={RUN}/report", "--bootstrap=0"]
    table = support.launch("report", *flags).stdout
    assert f"{result['perplexity']:.2f}" in table
    assert bucket.read(f"{RUN}/report/learning_curves.png").startswith(b"\x89PNG")
    again = support.launch("report", *flags, "--quick").stdout
    assert f"{result['perplexity']:.2f}" in again and "measured" not in again


def test_a_run_there_starts_from_a_run_there(bucket, data, uninterrupted):
    put(bucket, uninterrupted, RUN)
    two, none = "gs://bucket/runs/two", "gs://bucket/runs/none"
    settings = config(data, **{"training.start_from": none, "training.frozen": "embedding"})
    with pytest.raises(InputError, match=r"^training.start_from: .*/runs/none has no run"):
        loop.train(settings, two, report=quiet)
    assert not bucket.names(two)
    settings.update(training={"start_from": RUN})
    lines: list[str] = []
    loop.train(settings, two, report=lines.append)
    assert f"starting from step 12 of {RUN}:" in lines
    assert json.loads(bucket.read(f"{two}/config.json"))["training"]["start_from"] == RUN
    there, here = (dclm_jax.restore(run).params or {} for run in (two, RUN))
    np.testing.assert_array_equal(there["embedding"], here["embedding"])
