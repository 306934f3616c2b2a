"""Files that are whole or absent, and JSON as records."""

import dataclasses
import errno
import json
import math
import os
import stat
from typing import Any, Literal

import numpy as np
import pytest

from dclm_jax import files
from dclm_jax.errors import InputError


@dataclasses.dataclass(frozen=True)
class Part:
    share: files.Share
    names: list[str]


@dataclasses.dataclass(frozen=True)
class Record:
    kind: Literal["a", 1]
    count: files.Count
    perplexity: files.Positive
    part: Part
    parts: dict[str, Part]
    seconds: files.Finite | None
    on: bool
    rest: dict[str, Any] | None = None


GOOD = {
    "kind": "a",
    "count": 2**63 - 1,
    "perplexity": math.inf,
    "part": {"share": 1, "names": ["x", ""]},
    "parts": {"one": {"share": 0.5, "names": []}},
    "seconds": None,
    "on": True,
}


def test_a_record_has_the_types_of_its_fields(tmp_path):
    path = tmp_path / "record.json"
    files.write_json(path, GOOD | {"unknown": 1})
    record = files.read_json(path, Record)
    part = Part(0.5, [])
    expected = Record("a", 2**63 - 1, math.inf, Part(1.0, ["x", ""]), {"one": part}, None, True)
    assert record == expected and type(record.part.share) is float
    with pytest.raises(InputError, match="record.json: 'unknown' is unknown; expected a JSON obj"):
        files.read_json(path, Record, exact=True)
    files.write_json(path, dataclasses.asdict(record))
    assert files.read_json(path, Record, exact=True) == record


def test_what_is_not_finite_is_null_and_read_as_infinity_where_that_may_be(tmp_path):
    value = {"a": [math.inf, -math.inf, math.nan, 1.5], "b": {"c": (np.float64("nan"), 2)}}
    assert files.json_text(value) == '{"a": [null, null, null, 1.5], "b": {"c": [null, 2]}}'
    assert files.json_text({"é": os.fsdecode(b"\xe9")}) == r'{"é": "\udce9"}'
    path = tmp_path / "record.json"
    files.write_json(path, GOOD)
    assert "null" in path.read_text() and "Infinity" not in path.read_text()
    assert files.read_json(path, Record).perplexity == math.inf
    optional: Any = files.Positive | None
    assert files.parse_json("null", "there", optional) is None
    kinds: list[Any] = [files.Count, files.Share, files.Finite, files.Number]
    for kind in kinds:
        with pytest.raises(InputError, match="there: the value is None; expected a"):
            files.parse_json("null", "there", kind)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": True}, "kind is True; expected a or 1"),
        ({"kind": []}, r"kind is \[\]; expected a or 1"),
        ({"count": 2**63}, "count is 9223372036854775808; expected a whole number from 0 to 2^63"),
        ({"count": -1}, "count is -1; expected a whole number"),
        ({"count": 1.0}, "count is 1.0; expected a whole number"),
        ({"count": True}, "count is True; expected a whole number"),
        ({"perplexity": 0}, "perplexity is 0; expected a number above 0"),
        ({"perplexity": math.nan}, "perplexity is nan; expected a number above 0"),
        ({"perplexity": 10**400}, "perplexity is 10+; expected a number above 0"),
        ({"part": {}}, "part.share is missing; expected a number from 0 to 1"),
        ({"part": {"share": 2}}, "part.share is 2; expected a number from 0 to 1"),
        ({"part": {"share": 1, "names": [1]}}, r"part.names\[0\] is 1; expected text"),
        ({"parts": {"a\n": None}}, r"parts.a\\n is None; expected a JSON object of share, names"),
        ({"seconds": math.inf}, "seconds is inf; expected a finite number"),
        ({"on": 1}, "on is 1; expected true or false"),
        ({"rest": []}, r"rest is \[\]; expected a JSON object"),
    ],
)
def test_anything_else_is_named(change, message):
    message = message.replace("^", r"\^").replace("10+", r"10+\.\.\.0+")
    with pytest.raises(InputError, match=f"^there: {message}"):
        files.parse_json(json.dumps(GOOD | change), "there", Record)


def test_text_that_is_no_json():
    for text, message in (
        (b"\xff", "not JSON: .*utf-8"),
        (json.dumps(GOOD).encode("utf-16"), "not JSON: .*utf-8"),
        (b"{", "not JSON: "),
        (b'{"a": 1, "b": {"c": 2, "c": 2}}', "the name 'c' is repeated; remove one"),
        (b"9" * 5000, "not JSON: Exceeds the limit"),
        (b"[" * 100_000, "nested too deeply"),
    ):
        with pytest.raises(InputError, match=f"^there: {message}"):
            files.parse_json(text, "there", Record)


def test_files_that_cannot_be_read(tmp_path):
    missing = tmp_path / "missing.json"
    with pytest.raises(InputError, match="missing.json: no such file; `python x` writes it$"):
        files.read_json_lines(missing, Record, made_by="python x")
    with pytest.raises(InputError, match=": cannot be read: Is a directory$"):
        files.read_json(tmp_path, Record)


def test_lines_have_numbers_and_the_last_may_be_cut_off(tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_text('{"share": 0, "names": []}\n{"sha')
    assert files.read_json_lines(path, Part) == [Part(0.0, [])]
    path.write_text('{"share": 0, "names": []}\n{\n{"sha')
    with pytest.raises(InputError, match="lines.jsonl:2: not JSON"):
        files.read_json_lines(path, Part)


def test_a_file_that_is_not_finished_leaves_the_one_before(tmp_path):
    path = tmp_path / "new" / "file.txt"
    files.write_bytes(path, b"before")
    with pytest.raises(RuntimeError), files.open_output(path) as file:
        file.write("half")
        raise RuntimeError
    assert path.read_bytes() == b"before"
    assert os.listdir(path.parent) == ["file.txt"]
    with pytest.raises(InputError, match="file.txt/x: cannot be written: File exists"):
        files.write_bytes(path / "x", b"")


def test_what_is_no_regular_file_is_written_through(tmp_path):
    pipe, device = tmp_path / "pipe", tmp_path / "null"
    os.mkfifo(pipe)
    device.symlink_to("/dev/null")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        files.write_bytes(pipe, b"through")
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
    files.write_bytes(device, b"gone")
    files.write_bytes("/dev/null", b"gone")
    assert stat.S_ISFIFO(pipe.stat().st_mode) and device.is_symlink()
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    # What the shell has opened is not replaced under it.
    redirected = tmp_path / "redirected"
    with redirected.open("wb") as file:
        inode = os.fstat(file.fileno()).st_ino
        files.write_bytes(f"/dev/fd/{file.fileno()}", b"through")
    assert (redirected.read_bytes(), redirected.stat().st_ino) == (b"through", inode)
    assert sorted(os.listdir(tmp_path)) == ["null", "pipe", "redirected"]


def test_the_target_of_a_link_is_written_and_the_link_stays(tmp_path):
    link, target = tmp_path / "result.json", tmp_path / "other" / "target.json"
    target.parent.mkdir()
    link.symlink_to(target)
    for value in (1, 2):
        files.write_json(link, {"a": value})
        assert json.loads(target.read_text()) == {"a": value} and link.is_symlink()
    assert os.listdir(target.parent) == ["target.json"] and os.listdir(tmp_path).count("other") == 1


@pytest.mark.parametrize("is_writable", [True, False], ids=["mounted file", "read-only directory"])
def test_a_file_that_cannot_be_replaced_is_overwritten(tmp_path, monkeypatch, is_writable):
    folders = []

    def replace(source, target):
        folders.append(source.parent)
        raise OSError(errno.EBUSY, "Device or resource busy")

    path = tmp_path / "result.json"
    path.write_text("a longer text than the result")
    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(os, "access", lambda path, mode: is_writable)
    inode = path.stat().st_ino
    files.write_json(path, {"a": 1})
    assert (json.loads(path.read_text()), path.stat().st_ino) == ({"a": 1}, inode)
    assert os.listdir(tmp_path) == ["result.json"]
    # No temporary file can be made in a folder that is not writable.
    assert (folders == [tmp_path]) == is_writable
    with pytest.raises(InputError, match="new.json: cannot be written: Device or resource busy"):
        files.write_json(tmp_path / "new.json", {})


def test_a_new_file_has_the_mode_of_any_other_and_a_name_of_any_length(tmp_path):
    path, plain = tmp_path / ("x" * 255), tmp_path / "plain"
    for mask in (0o022, 0o077):
        before = os.umask(mask)
        try:
            files.write_bytes(path, b"")
            plain.unlink(missing_ok=True)
            plain.touch()
        finally:
            os.umask(before)
        assert path.stat().st_mode == plain.stat().st_mode


def test_names_that_are_no_utf8_are_written_and_read(tmp_path):
    path = tmp_path / "names.json"
    value = {"name": os.fsdecode(b"caf\xe9"), "word": "é"}
    files.write_json(path, value)
    assert "é" in path.read_text("utf-8")
    assert files.read_json(path, dict[str, str]) == value


def test_a_directory_takes_the_place_of_another_when_it_is_whole(tmp_path):
    target = tmp_path / "target"
    for content in ("one", "two"):
        with files.replacing(target) as directory:
            (directory / content).write_text(content)
            assert not (target / content).exists()
        assert os.listdir(target) == [content] and os.listdir(tmp_path) == ["target"]
    with pytest.raises(RuntimeError), files.replacing(target) as directory:
        (directory / "three").write_text("three")
        raise RuntimeError
    with (
        pytest.raises(InputError, match="target: cannot be written: No space"),
        files.replacing(target),
    ):
        raise OSError(28, "No space left on device")
    assert os.listdir(target) == ["two"] and os.listdir(tmp_path) == ["target"]
