"""Rows from end to end at tiny sizes, with a peer that needs no library. Nothing is timed."""

import dataclasses
import json
import mmap

import jax
import numpy as np
import pytest

from dclm_jax.benchmark import contests, footprint, generation, growth, ours, rows, worker
from dclm_jax.benchmark.contests import Peer, Training
from dclm_jax.benchmark.report import Goal
from dclm_jax.benchmark.timing import PeerError
from dclm_jax.benchmark.workloads import Setting, Size, synthetic_documents
from dclm_jax.data.batches import pack_sentences
from dclm_jax.reading.likelihoods import batch_likelihood
from tests.evaluation.support import FakeScorer
from tests.exhaustive import also

TINY = Size(vocab_size=30, embedding_dim=4, hidden_dim=4, num_layers=1, num_documents=12)
ABSENT = Peer("Absent", "no_such_library", "no_such_module", {})


def twin(factor: float = 1.0) -> Peer:
    return Peer("Twin", "numpy", "tests.benchmark.twin", {"factor": factor})


@pytest.fixture
def setting(tmp_path, monkeypatch) -> Setting:
    monkeypatch.setattr(ours, "MATRIX_DIM", 8)
    return Setting(tmp_path, TINY, rounds=1)


def train(*peers: Peer, model: str = "rnnlm") -> Training:
    return Training(model, 2, peers, Goal(2, 3), num_batches=1)


def test_a_run_gives_a_table_and_json(setting, monkeypatch):
    peers = (twin(), twin().with_our_allocator())
    monkeypatch.setattr(rows, "ROWS", {rows.HEADLINE: train(*peers), "absent": train(ABSENT)})
    monkeypatch.setattr(rows, "PYTORCH", (ABSENT,))
    setting = dataclasses.replace(setting, tuned_peers=False)
    table: list[str] = []
    result = json.loads(json.dumps(rows.run([rows.HEADLINE, "absent"], setting, table.append)))
    measured, skipped = result["rows"]
    seconds = measured["tokens_per_second"]
    assert measured["ratios"] == {"Twin": measured["measured"]}
    assert result["ratio"] == measured["measured"]
    assert result["ratio"] == pytest.approx(seconds["ours"] / seconds["Twin"])
    assert measured["memory_bytes"]["Twin"] == 1 and measured["memory_bytes"]["ours"] > 0
    assert 0 < measured["useful_flops_fraction"]
    assert (skipped["verdict"], skipped["measured"]) == ("skipped", None)
    assert {"machine", "versions", "matrix_product_flops_per_second"} <= set(result)
    assert any("no_such_library" in line and contests.INSTALL in line for line in table)
    assert "no_such_library" in skipped["note"]


def test_goals_are_about_peers_as_they_are_installed():
    peers = (ABSENT, ABSENT._replace(name="Slower"), ABSENT.with_our_allocator())
    assert [peer.tuned for peer in peers] == [False, False, True]
    seconds = {"ours": 2.0, "Absent": 6.0, "Slower": 7.0, "Absent, our allocator": 3.0}
    assert contests.ratio(seconds, peers) == 3


def test_training_of_an_autoencoder_reads_sources(setting):
    model = "hierarchical_attention_autoencoder"
    (row,) = train(twin(), model=model)("name", setting)
    assert row.measured is not None and row.measured > 0


def test_a_row_without_a_goal_reports_its_size_and_precision(setting):
    size = {"hidden_dim": 6, "precision": "bfloat16"}
    (row,) = Training("rnnlm", 2, (twin(1.001),), None, num_batches=1, **size)("name", setting)
    assert (row.verdict, row.measured) == ("reported", None)
    assert "H = 6, bfloat16 precision" in row.work
    assert set(row.details["ratios"]) == {"Twin"}
    # The losses of float32 are nearer to each other than those of bfloat16.
    with pytest.raises(PeerError, match="Twin computes a different rnnlm"):
        Training("rnnlm", 2, (twin(1.001),), None, num_batches=1, hidden_dim=6)("name", setting)


def test_scoring_has_the_same_loss_as_the_definition(setting, monkeypatch):
    monkeypatch.setattr(contests, "PYTORCH", (twin(), twin().with_our_allocator()))
    monkeypatch.setattr(contests, "SCORED_BATCHES", 1)
    (row,) = contests.score_row("name", setting)
    assert row.measured is not None and row.measured > 0
    assert set(row.details["ratios"]) == {"Twin", "Twin, our allocator"}


def test_bootstrap_says_what_was_extrapolated(setting, monkeypatch):
    monkeypatch.setattr(footprint, "TEST_SETS", 50)
    # All words are as likely.
    scorer = FakeScorer(np.ones(TINY.vocab_size))
    scorer.context_order = 1
    monkeypatch.setattr(footprint, "Scorer", lambda *_: scorer)
    (row,) = footprint.bootstrap_row("name", setting)
    assert "each of 200 permutations" in row.note and "from 64 permutations" in row.note


def test_growth_reads_ten_times_the_text(setting, monkeypatch):
    monkeypatch.setattr(footprint, "GROWTH_DOCUMENTS", 2)
    names = [row.name for row in footprint.growth_rows("growth", setting)]
    assert names == ["growth_time", "growth_memory"]
    assert not list(setting.directory.iterdir())


def test_growth_counts_every_target(tmp_path):
    text = growth.write_text(tmp_path / "text.txt", 3, seed=0)
    cost = growth.create(text).cost()
    lines = text.read_text().splitlines()
    assert sum(map(bool, lines)) == 3 * growth.SENTENCES
    assert cost.tokens == sum(len(line.split()) + 1 for line in lines if line)
    assert 0 < cost.anonymous < cost.memory


def test_anonymous_memory_is_what_is_written(tmp_path):
    size = 2**26
    (tmp_path / "file").write_bytes(bytes(size))
    with worker.AnonymousPeak() as before:
        pass
    assert before.bytes > 0
    with worker.AnonymousPeak() as read:
        mapped = np.memmap(tmp_path / "file", np.uint8, "r")
        assert mapped.sum() == 0
    assert read.bytes - before.bytes < size / 4
    # New memory, not what this process has freed and kept.
    taken = np.frombuffer(mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
    with worker.AnonymousPeak() as written:
        taken[:] = 1
    assert written.bytes - before.bytes == pytest.approx(size, rel=0.25)


@pytest.mark.parametrize("name", ["rnnlm", "codclm"])
def test_the_plain_loss_is_ours(name):
    model = TINY.model(name)
    params = model.init(jax.random.key(0))
    batch = pack_sentences(synthetic_documents(0, TINY.vocab_size, [3, 1]), 3, 64)

    @jax.jit
    def both(params, batch):
        return footprint.plain_nll(model, params, batch), batch_likelihood(model, params, batch)

    plain, likelihood = both(params, batch)
    assert float(plain) == pytest.approx(float(likelihood.nll / likelihood.tokens), rel=1e-5)


def test_the_plain_softmax_needs_more_memory():
    large = Size(vocab_size=5_000, embedding_dim=4, hidden_dim=4, num_layers=1).model("rnnlm")
    shape = (8, 3, 48)
    assert footprint.step_memory(large, shape) < footprint.plain_step_memory(large, shape)


@pytest.mark.parametrize("model", ["ccdclm", *also(["hierarchical_attention_autoencoder"])])
def test_generating_is_measured_in_two_ratios(setting, monkeypatch, model):
    texts, generate = [], generation.generate
    monkeypatch.setattr(generation, "generate", lambda *work: texts.extend(generate(*work)))
    monkeypatch.setattr(generation, "DOCUMENTS", 2)
    monkeypatch.setattr(generation, "ALONE", 1)
    name = f"generate_{model}"
    batch, beam = rows.ROWS[name](name, setting)
    assert (batch.name, beam.name) == (f"{name}_batch", f"{name}_beam")
    # The words that are counted have been generated.
    full = [generation.WORDS] * generation.SENTENCES
    assert texts and all(list(map(len, text.sentences)) == full for text in texts)
    speeds = batch.details["tokens_per_second"]
    assert batch.measured == pytest.approx(speeds["greedy"] / speeds["one by one"])
    assert beam.measured == pytest.approx(speeds["greedy"] / speeds["beam"])
    assert beam.goal == Goal(6, 6, at_most=True)
