"""Addresses under gs://, with the packages for Google's storage and an emulator of the service."""

import contextlib
import json
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dclm_jax
from dclm_jax import files, storage
from dclm_jax.data.corpus import open_corpus
from dclm_jax.data.prepare import PrepareOptions, prepare
from dclm_jax.errors import InputError
from dclm_jax.training import loop
from dclm_jax.training.checkpoints import Checkpoints
from dclm_jax.training.workdir import metrics_lines
from tests.launch import support
from tests.training.support import assert_same_bits, config, latest_state

SERVICE = Path(__file__).with_name("storage_service.py")


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    """The URL of a storage service, in a process of its own."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    with subprocess.Popen(
        [sys.executable, SERVICE, "start", f"--port={port}", "--in-memory"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("localhost", port)):
                break
            time.sleep(0.1)
        yield f"http://localhost:{port}"
        process.kill()


@pytest.fixture
def bucket(service, request, tmp_path, monkeypatch) -> str:
    """The address of an empty bucket, for a user with an empty cache."""
    # The two libraries that access the service.
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", service)
    monkeypatch.setenv("TENSORSTORE_GCS_HTTP_URL", service)
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    monkeypatch.setenv("EPATH_USE_TF", "false")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    name = re.sub("[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:60]
    urllib.request.urlopen(
        urllib.request.Request(
            f"{service}/storage/v1/b?project=tests",
            data=json.dumps({"name": name}).encode(),
            headers={"Content-Type": "application/json"},
        )
    ).close()
    return f"gs://{name}"


def put(directory: Path, address: str) -> None:
    for name, content in support.fingerprint(directory).items():
        files.write_bytes(f"{address}/{name}", content)


def names(address: str) -> list[str]:
    location = storage.locate(address)
    assert not isinstance(location, Path)
    return storage.list_files(location)


def prepared(texts, place: str | Path, vocab_size: int = 20, **options: Any):
    return prepare(texts, place, options=PrepareOptions(vocab_size=vocab_size), **options)


@pytest.mark.parametrize("text", ["runs/one", "/tmp/x", "gs:/b/x", "a:b", "", "x//y", "1://x"])
def test_a_local_path_is_a_path(text):
    assert storage.locate(text) == Path(text)
    assert not storage.is_remote(text)
    assert storage.absolute(text) == str(Path(text).absolute())


def test_an_address_is_returned_unchanged():
    text = "gs://bucket/a/b"
    assert str(storage.locate(text)) == storage.absolute(text) == str(storage.resolve(text)) == text
    assert storage.is_remote(text)
    for other in ("hdfs://a/b", "s3://a/b", "gs://", "gs:///", "GS://a/b", "file:///tmp/x"):
        with pytest.raises(InputError, match=f"^{other}: expected gs://BUCKET/... or a local path"):
            storage.locate(other)


def test_a_missing_package_is_reported_before_any_work(monkeypatch):
    monkeypatch.setenv("EPATH_USE_TF", "false")
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    message = r"^gs://b/x: gs:// needs a package: pip install 'etils\[epath-gcs\]'"
    with pytest.raises(InputError, match=message):
        dclm_jax.restore("gs://b/x")
    with pytest.raises(InputError, match=message), files.open_output("gs://b/x"):
        pytest.fail("an hour of work")


def test_a_corpus_is_prepared_and_read(bucket, texts, data, caplog):
    place = f"{bucket}/data"
    manifest = prepared(texts, place)
    assert manifest == prepared(texts, data)
    assert names(place) == sorted(support.fingerprint(data))
    local, remote = (open_corpus(directory, "train") for directory in (data, place))
    assert np.array_equal(local.tokens, remote.tokens)
    assert local.document_ids == remote.document_ids
    assert (local.checksums, local.vocabulary) == (remote.checksums, remote.vocabulary)
    assert prepared(texts, place) == manifest
    assert caplog.messages[-1] == f"reusing {place}: it has the same sources and options"


def test_subwords_are_prepared_and_read(bucket, tmp_path):
    text = tmp_path / "text"
    text.write_text("the cat sat .\nthe cats sit .\n" * 9)
    place, other = f"{bucket}/pieces", f"{bucket}/other"
    prepare({"train": text}, place, options=PrepareOptions(subwords=270))
    corpus = open_corpus(place, "train")
    assert {"pieces.model", "word_counts.tsv"} <= {*names(place)}
    text.write_text("a new word\n")
    prepare({"test": text}, other, options=PrepareOptions(vocabulary=place))
    test = open_corpus(other, "test")
    assert test.vocabulary == corpus.vocabulary
    assert test.vocabulary.decode(test.tokens.tolist()) == ["a", "new", "word"]


def test_another_corpus_is_refused_or_replaces_the_old_one(bucket, texts):
    place = f"{bucket}/data"
    prepared(texts, place)
    with pytest.raises(InputError, match=f"{place}: already has a different corpus .vocab_size"):
        prepared(texts, place, vocab_size=5)
    fewer = {split: texts[split] for split in ("train", "valid")}
    prepared(fewer, place, vocab_size=5, overwrite=True)
    assert not [name for name in names(place) if name.startswith("test")]
    assert len(open_corpus(place, "train").vocabulary) == 8
    files.write_bytes(f"{bucket}/other/text", b"mine")
    with pytest.raises(InputError, match=f"{bucket}/other: is not a prepared corpus"):
        prepared(texts, f"{bucket}/other")


def test_a_damaged_copy_is_not_used(bucket, texts):
    place = f"{bucket}/data"
    prepared(texts, place)
    corpus = open_corpus(place, "test")
    tokens, copy = np.array(corpus.tokens), corpus.directory / "test.tokens.bin"
    content = copy.read_bytes()
    copy.unlink()
    copy.write_bytes(content[:-4] + b"\3\0\0\0")
    assert np.array_equal(open_corpus(place, "test").tokens, tokens)
    files.write_bytes(f"{place}/train.tokens.bin", content)
    with pytest.raises(InputError, match=f"{place}/train.tokens.bin: its checksum differs"):
        open_corpus(place, "train")


def test_a_model_scores_as_its_local_copy(bucket, uninterrupted):
    put(uninterrupted, f"{bucket}/run")
    documents = [["a b c", "d e"], ["f"]]
    remote, local = dclm_jax.restore(f"{bucket}/run"), dclm_jax.restore(uninterrupted)
    assert list(remote.score(documents)) == list(local.score(documents))
    with pytest.raises(InputError, match="runs/two has no run"):
        dclm_jax.restore(f"{bucket}/runs/two")


def test_training_resumes_as_if_it_had_not_stopped(bucket, data, uninterrupted, tmp_path, caplog):
    """The newest checkpoint lacks the file that orbax writes last, as after a kill."""
    run = f"{bucket}/run"
    short = config(data, **{"training.max_steps": 9})
    assert loop.train(short, run).ending == "finished"
    assert "an address is not locked" in caplog.text
    *_, newest = [name for name in names(run) if re.fullmatch(".*latest/9/commit_success.*", name)]
    location = storage.locate(f"{run}/{newest}")
    location.unlink()
    assert loop.train(config(data), run).ending == "finished"
    (resumed,) = [line for line in caplog.messages if line.startswith("resuming")]
    assert resumed == "resuming after step 8"
    with storage.fetched(run, list) as copy:
        assert_same_bits(latest_state(copy, 12), latest_state(uninterrupted, 12))
        steps = [(line.kind, line.step) for line in metrics_lines(copy)]
    assert steps == [(line.kind, line.step) for line in metrics_lines(uninterrupted)]
    with contextlib.closing(Checkpoints(f"{run}/checkpoints", "best", read_only=True)) as best:
        restored = best.restore(dclm_jax.restore(uninterrupted).params)
    assert restored is not None and restored[0] == dclm_jax.restore(uninterrupted).facts.step


def test_results_are_written_whole_or_not_at_all(bucket):
    files.write_json(f"{bucket}/new/result.json", {"a": 1})
    files.write_bytes(f"{bucket}/new/figure.png", b"png")
    assert names(f"{bucket}/new") == ["figure.png", "result.json"]
    with pytest.raises(KeyboardInterrupt), files.open_output(f"{bucket}/new/result.json") as file:
        file.write("half")
        raise KeyboardInterrupt
    assert json.loads(files.read_bytes(f"{bucket}/new/result.json")) == {"a": 1}
