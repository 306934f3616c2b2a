"""Benchmarks from end to end at tiny sizes, with a peer that needs no library. Nothing is timed."""

import json

import jax
import pytest

from dclm_jax.data.batches import pack_sentences
from launch.benchmark import contest, ours, workloads
from launch.benchmark.contest import Peer, Result, Work
from launch.benchmark.timing import PeerError
from tests.launch.support import launch, refuse

V = 30


def twin(factor: float = 1.0) -> Peer:
    return Peer("Twin", "tests.benchmark.twin", {"factor": factor})


@pytest.fixture
def peers(monkeypatch):
    """Replaces the peers that are installed."""
    return lambda *chosen: monkeypatch.setattr(contest, "peers", lambda: chosen)


@pytest.mark.parametrize(
    "work",
    [
        Work("rnnlm", 2, 1, hidden_dim=4),
        Work("ccdclm", 2, 1, hidden_dim=4, scores=True),
    ],
    ids=str,
)
def test_a_benchmark_compares_speeds_and_memory(peers, work):
    peers(twin())
    result = contest.compete(work, 1, 0, V)
    assert set(result.targets_per_second) == {"ours", "Twin"}
    assert result.memory["ours"] > 1 and result.memory["Twin"] == 1
    assert result.device == {"Twin": "cpu"}
    saved = json.loads(json.dumps(result.to_json()))
    assert saved["ratios"]["Twin"] == pytest.approx(
        saved["targets_per_second"]["ours"] / saved["targets_per_second"]["Twin"]
    )


def test_a_peer_with_another_loss_is_refused(peers):
    peers(twin(1.001))
    # The losses of float32 are nearer to each other than those of bfloat16.
    contest.compete(Work("rnnlm", 2, 1, hidden_dim=4, precision="bfloat16"), 1, 0, V)
    with pytest.raises(PeerError, match="Twin computes a different rnnlm"):
        contest.compete(Work("rnnlm", 2, 1, hidden_dim=4), 1, 0, V)


@pytest.mark.parametrize("scores", [False, True])
def test_subwords_are_measured_alone_and_counted_as_words(peers, scores):
    peers(twin())
    work = Work("rnnlm", 2, 1, hidden_dim=4, scores=scores, subwords=True)
    assert set(contest.compete(work, 1, 0, V).memory) == {"ours"}
    first_word_end = work.first_word_end(V)
    documents = workloads.synthetic_documents(0, V, [40] * 5, first_word_end)
    pieces = sum(len(sentence) for document in documents for sentence in document)
    words = workloads.num_targets(documents, first_word_end) - 200
    assert 1.1 < pieces / words < 1.3
    assert all(sentence[-1] >= first_word_end for document in documents for sentence in document)


def test_models_without_a_peer_are_measured_alone(peers):
    peers(twin())
    assert set(contest.compete(Work("drnnlm", 2, 1, hidden_dim=4), 1, 0, V).memory) == {"ours"}


@pytest.mark.parametrize("scores", [False, True])
def test_memory_has_parameters_and_optimizer_state(scores):
    """Training has parameters, the sums of AdaGrad and a gradient, which have equal sizes. The
    activations of this model are smaller than its parameters."""
    model = Work("rnnlm", 1, hidden_dim=128).create_model(V)
    documents = workloads.synthetic_documents(0, V, [1])
    contender = (
        ours.Scoring(model, [documents])
        if scores
        else ours.Training(model, [pack_sentences(documents, 1, 64)])
    )
    parameters = sum(leaf.nbytes for leaf in jax.tree.leaves(contender.params))
    assert contender.memory() > (1 if scores else 3) * parameters


def test_a_line_has_speed_memory_and_the_ratio():
    ours, peer = Result({"ours": 100.0, "Peer": 50.0}, {"ours": 2**20}, {}).lines()
    assert "100 targets/s" in ours and "1 MiB" in ours
    assert peer.endswith("ours is 2.00 times as fast")


def test_the_command_writes_json_on_standard_output():
    done = launch("benchmark", "--rows=score_ccdclm_16", "--rounds=1", "--metrics=-", quiet=False)
    result = json.loads(done.stdout)
    assert result["machine"]["cores"] >= 1 and result["machine"]["versions"]["jax"]
    (row,) = result["rows"]
    assert row["name"] == "score_ccdclm_16" and row["targets_per_second"]["ours"] > 0
    assert "score_ccdclm_16: score ccdclm, 16 documents" in done.stderr


def test_the_command_refuses_unknown_benchmarks():
    assert "'score_ccdclm_61'; did you mean" in refuse("benchmark", "--rows=score_ccdclm_61")
    both = refuse("benchmark", "--rows=score_ccdclm_16", "--suite=quick")
    assert "--rows replaces --suite" in both


def test_output_that_cannot_be_written_is_refused_before_measuring(monkeypatch, tmp_path):
    monkeypatch.setattr(contest, "compete", None)
    (tmp_path / "file").touch()
    for output in (tmp_path, tmp_path / "file" / "x.json"):
        assert f"{output}: cannot be written" in refuse("benchmark", f"--metrics={output}")


def test_documents_of_batches_have_the_words_of_the_corpus():
    corpus = workloads.synthetic_corpus(0, V)
    sentences = {tuple(words) for i in range(corpus.num_documents) for words in corpus.document(i)}
    batches = workloads.training_batches(4, 3, 0, V)
    for batch in batches:
        assert batch.mask_BxSxN.shape[:2] == (4, workloads.SEGMENT_LENGTH)
        documents = workloads.unpacked(batch)
        assert {tuple(words) for document in documents for words in document} <= sentences
        assert workloads.num_targets(documents) == batch.mask_BxSxN.sum()
