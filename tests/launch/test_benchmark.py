"""The command line of the benchmark."""

import json

import pytest
from absl import flags
from absl.testing import flagsaver

from dclm_jax.benchmark import footprint, ours, rows, timing
from launch import benchmark


@pytest.fixture
def parsed(monkeypatch):
    """Flags at their defaults, as if a command line without any had been parsed; and a small matrix
    that measures the speed of the machine."""
    monkeypatch.setattr(ours, "MATRIX_DIM", 8)
    with flagsaver.flagsaver():
        flags.FLAGS.mark_as_parsed()
        yield


def test_a_row_as_json_on_standard_output(parsed, monkeypatch, capsys):
    monkeypatch.setattr(footprint, "INPUT_DOCUMENTS", 100)
    with flagsaver.as_parsed(rows="input_16", rounds="1", output="-"):
        assert benchmark.main([]) is None
    done = capsys.readouterr()
    result = json.loads(done.out)
    assert [row["name"] for row in result["rows"]] == ["input_16"]
    assert result["rows"][0]["least"] == 2e6 and result["ratio"] is None
    assert "input_16" in done.err


@pytest.mark.parametrize(
    ("flags", "tuned"), [({"suite": "quick"}, False), ({}, True), ({"rows": "quick"}, True)]
)
def test_only_the_quick_suite_leaves_out_our_allocator(parsed, monkeypatch, flags, tuned):
    settings = []

    def note(name, setting):
        settings.append(setting)
        return []

    monkeypatch.setattr(rows, "ROWS", {"quick": note})
    monkeypatch.setattr(rows, "SUITES", {"quick": ("quick",), "full": ("quick",)})
    with flagsaver.as_parsed(rounds="1", **flags):
        assert benchmark.main([]) is None
    assert [setting.tuned_peers for setting in settings] == [tuned]


def test_a_peer_with_another_loss_ends_the_command(parsed, monkeypatch, tmp_path, capsys):
    def differ(name, setting):
        timing.require_same_loss("Peer", "ccdclm", 1.0, 2.0)

    monkeypatch.setattr(rows, "ROWS", {"differ": differ})
    output = str(tmp_path / "result.json")
    with flagsaver.as_parsed(rows="differ", rounds="1", output=output):
        assert benchmark.main([]) == 1
    assert "Peer computes a different ccdclm: its loss is 2 and ours 1" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
