"""Runs that start from runs, parameters that stay frozen, and runs that become longer."""

import json
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dclm_jax import models, ngram
from dclm_jax.data import subwords
from dclm_jax.data.prepare import PrepareOptions, prepare
from dclm_jax.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from dclm_jax.errors import InputError, TrainingInterrupted
from dclm_jax.training import loop
from dclm_jax.training.config import OptimizerConfig, default_config
from dclm_jax.training.freezing import by_path
from dclm_jax.training.optimizer import create_optimizer
from dclm_jax.training.step import first_state, local_shards, parallel_step, replicate
from dclm_jax.training.warm_start import start_from, word_axes
from dclm_jax.training.workdir import restore_run
from tests.launch.support import fingerprint
from tests.models.support import DOCUMENTS, MODELS, VOCAB, pack, random_params, small_model
from tests.training.support import (
    after_step,
    assert_same_bits,
    comparable,
    config,
    latest_state,
    read_result,
    save_run,
    terminate,
    write_texts,
)

FOUR = {"embedding_dim": 4, "hidden_dim": 4}
WORD_AXES = {
    "embedding": 0,
    "bag": 0,
    "output/kernel": 1,
    "output/bias": 0,
    "sentence_embedding": 0,
    "sentence_output/kernel": 1,
    "sentence_output/bias": 0,
}


@pytest.fixture(scope="module")
def other_data(tmp_path_factory) -> Path:
    """As many words, of which f to j are those of `data`, in another order."""
    root = tmp_path_factory.mktemp("other")
    sources = write_texts(root, "m l k o n j i h g f".split())
    prepare(sources, root / "prepared", options=PrepareOptions(vocab_size=20))
    return root / "prepared"


def of_epochs(data: Path, epochs: int, **values: Any):
    return config(data, **{"training.epochs": epochs, "training.max_steps": 0, **values})


@pytest.fixture(scope="module")
def source(data, tmp_path_factory) -> Path:
    """A run of two epochs, whose best model is an average of parameters."""
    workdir = tmp_path_factory.mktemp("source") / "run"
    loop.train(of_epochs(data, 2), workdir)
    return workdir


class Begun(Exception):
    """A run has come to its first step."""


def initial_state(settings, workdir: Path, monkeypatch) -> Any:
    """The state before the first step."""

    def stop(state):
        raise Begun(jax.device_get(state))

    with monkeypatch.context() as patch, pytest.raises(Begun) as begun:
        patch.setattr(loop, "replicate", stop)
        loop.train(settings, workdir)
    return begun.value.args[0]


def words_of(prepared: Path) -> tuple[str, ...]:
    return Vocabulary.load(prepared / "vocabulary.tsv").entries


# What is taken


def test_the_best_parameters_are_taken_as_they_are(data, source, tmp_path, monkeypatch, caplog):
    settings = config(data, **{"training.start_from": str(source)})
    state = initial_state(settings, tmp_path / "run", monkeypatch)
    lines = "\n".join(caplog.messages).splitlines()
    best = restore_run(source)
    assert_same_bits(state.params, jax.device_get(best.params))
    assert_same_bits(loop.model_params(state.params, state.optimizer_state), state.params)
    # An average, whose parameters are others.
    last = latest_state(source, 20)["params"]
    assert not np.array_equal(last["embedding"], best.params["embedding"])
    assert f"starting from step {best.step} of {source}:" in lines
    assert "  stack/0/recurrent   4 x 4            16  taken" in lines
    assert sum(line.endswith("  taken") for line in lines) == len(by_path(best.params))


def test_words_are_matched_by_their_spelling(
    data, other_data, source, tmp_path, monkeypatch, caplog
):
    ours, theirs = words_of(other_data), words_of(data)
    assert len(ours) == len(theirs) == 13
    here = initial_state(config(other_data), tmp_path / "random", monkeypatch)
    settings = config(other_data, **{"training.start_from": str(source)})
    state = initial_state(settings, tmp_path / "run", monkeypatch)
    lines = "\n".join(caplog.messages).splitlines()
    there = jax.device_get(restore_run(source).params)
    shared = {*SPECIAL_TOKENS, *"fghij"}
    for index, word in enumerate(ours):
        params, row = (
            (there, theirs.index(word)) if word in shared else (here.params, ours.index(word))
        )
        for name, take in (
            ("embedding", lambda tree, i: tree["embedding"][i]),
            ("kernel", lambda tree, i: tree["output"]["kernel"][:, i]),
            ("bias", lambda tree, i: tree["output"]["bias"][i]),
        ):
            np.testing.assert_array_equal(take(state.params, index), take(params, row), name)
    assert_same_bits(state.params["stack"], there["stack"])
    assert "  embedding          13 x 4            52  8 of 13 words taken" in lines
    assert "  output/kernel      4 x 13            52  8 of 13 words taken" in lines


@pytest.mark.parametrize("name", MODELS)
def test_axes_of_words_are_found_in_every_model(name):
    expected = dict(WORD_AXES)
    if name == "codclm":
        expected["output/context"] = 1
    # As many words as dimensions: sizes alone do not tell.
    axes = word_axes(small_model(name, vocab_size=5))
    assert axes["sentence_embedding" if name == "rnnslm" else "embedding"] == 0
    assert axes == {path: expected.get(path) for path in axes}


def test_hashed_features_of_the_smallest_size_have_no_axis_of_words():
    model = small_model("rnnslm", hash_size=VOCAB)
    assert word_axes(model)["sentence_bigrams"] is None


def test_parameters_of_the_sentence_level_have_one_name_in_both_models():
    single, both = (
        by_path(jax.eval_shape(small_model(name).init, jax.random.key(0)))
        for name in ("rnnslm", "hrnnlm_two_step")
    )
    assert {path: leaf.shape for path, leaf in single.items()} == {
        path: leaf.shape for path, leaf in both.items() if path.startswith("sentence_")
    }


@pytest.mark.parametrize("from_words", [True, False])
def test_words_that_are_single_pieces_are_matched_with_words(tmp_path, from_words, caplog):
    """Pieces inside words, bytes and the mark of the end keep their random values."""
    counts = {"ab": 30, "ba": 20, "aab": 50, "abab": 20, "b": 10}
    pieces = subwords.learn(counts, 262, 40)
    first, second = (pieces.entries[index].removesuffix("▁") for index in (-1, -2))
    assert first and second
    words = Vocabulary((*SPECIAL_TOKENS, first, "zebra", second, "<0x00>", "a"), (0,) * 8)
    source, vocabulary = (words, pieces) if from_words else (pieces, words)
    size = len(pieces)
    pairs = {0: 0, 1: 1, 2: 2, size - 1: 3, size - 2: 5}
    if not from_words:
        pairs = {there: here for here, there in pairs.items()}
    run = save_run(tmp_path / "run", "ccdclm", source, **FOUR, num_layers=1)
    model = models.create(
        "ccdclm",
        vocab_size=len(vocabulary),
        first_word_end=vocabulary.first_word_end,
        **FOUR,
    )
    params = random_params(model, seed=1)
    start = start_from(run, model, params, vocabulary)
    theirs, ours, taken = (
        jax.device_get(tree)["embedding"]
        for tree in (restore_run(run).params, params, start.params)
    )
    for index in range(len(vocabulary)):
        expected = theirs[pairs[index]] if index in pairs else ours[index]
        np.testing.assert_array_equal(taken[index], expected)
    kind = "pieces" if from_words else "words"
    assert start.notes["embedding"] == f"5 of {len(vocabulary)} {kind} taken"
    if from_words:
        assert "parameters start from random" in caplog.text


def test_other_models_give_what_they_share(tmp_path, caplog):
    """Of another cell, with another layer and other words."""
    run = save_run(tmp_path / "run", "hrnnlm", "c b x", **FOUR, num_layers=1)
    vocabulary = Vocabulary((*SPECIAL_TOKENS, "a", "b", "c"), (0,) * 6)
    model = models.create("hrnnlm", vocab_size=6, embedding_dim=4, hidden_dim=4, cell="gru")
    params = random_params(model, seed=1)
    start = start_from(run, model, params, vocabulary)
    theirs, ours, taken = (
        by_path(jax.device_get(tree)) for tree in (restore_run(run).params, params, start.params)
    )
    for path in ("embedding", "sentence_output/bias"):
        np.testing.assert_array_equal(taken[path][[0, 1, 2, 4, 5]], theirs[path][[0, 1, 2, 4, 3]])
        np.testing.assert_array_equal(taken[path][3], ours[path][3])
        assert start.notes[path] == "5 of 6 words taken"
    kernel = "sentence_output/kernel"
    np.testing.assert_array_equal(
        taken[kernel][:, [0, 1, 2, 4, 5]], theirs[kernel][:, [0, 1, 2, 4, 3]]
    )
    np.testing.assert_array_equal(taken["initial_context"], theirs["initial_context"])
    assert start.notes["initial_context"] == "taken"
    for path, note in (
        ("stack/0/input", "random (4 x 12 here, 4 x 16 there)"),
        ("stack/1/input", "random (absent there)"),
    ):
        assert start.notes[path] == note
        np.testing.assert_array_equal(taken[path], ours[path])
    assert start.step == 3


@pytest.mark.parametrize(("hidden_dim", "is_warned_of"), [(4, False), (8, True)])
def test_a_start_from_other_sizes_is_warned_of(tmp_path, caplog, hidden_dim, is_warned_of):
    """The warning counts scalars, and words of one vocabulary only."""
    run = save_run(tmp_path / "run", "rnnlm", "a b x", **FOUR)
    vocabulary = Vocabulary((*SPECIAL_TOKENS, "a", "b", "c"), (0,) * 6)
    model = models.create("rnnlm", vocab_size=6, embedding_dim=4, hidden_dim=hidden_dim)
    params = random_params(model, seed=1)
    start = start_from(run, model, params, vocabulary)
    total = sum(leaf.size for leaf in by_path(params).values())
    assert start.notes["embedding"] == "5 of 6 words taken"
    if is_warned_of:
        assert start.notes["output/kernel"] == "random (8 x 6 here, 4 x 6 there)"
        (warning,) = caplog.messages
        # Of 6 rows of 4 and of 6 biases 5 are taken.
        assert warning.startswith(
            f"training.start_from: {total - 5 * 4 - 5:,} of {total:,} parameters start from random "
            f"values, because they are absent in {run} or have another size there; choose "
        )
    else:
        assert not caplog.messages


# What is frozen

FROZEN = frozenset({"embedding", "output/bias", "stack/0/recurrent"})


def steps(frozen: frozenset[str] = frozenset(), count: int = 2, **options: Any):
    """Steps over DOCUMENTS on all local devices: parameters before, state after, norms."""
    model = small_model("ccdclm", num_layers=1)
    optimizer = create_optimizer(OptimizerConfig(**options), count)
    params = random_params(model)
    # The sign is lost where zero is added.
    params["output"]["bias"] = -jnp.zeros_like(params["output"]["bias"])
    state = replicate(first_state(params, optimizer, frozen))
    step, batch, norms = parallel_step(model, optimizer), local_shards(pack(DOCUMENTS)), []
    for _ in range(count):
        state, metrics = jax.block_until_ready(step(state, batch, jax.random.key(7)))
        norms.append(float(metrics.gradient_norm))
    return jax.device_get(params), jax.device_get(state), norms


def leaf_paths(tree: Any) -> set[str]:
    return {path for path, leaf in by_path(tree).items() if np.ndim(leaf)}


@pytest.mark.parametrize(
    "options",
    [
        {"name": "adagrad"},
        {"name": "adam"},
        {"name": "sgd", "average_decay": 0.9},
    ],
    ids=lambda options: options["name"],
)
def test_frozen_parameters_stay_and_have_no_optimizer_state(options):
    params, state, _ = steps(FROZEN, **options)
    before, after = by_path(params), by_path(state.params)
    for path in before:
        assert (before[path].tobytes() == after[path].tobytes()) == (path in FROZEN), path
    moments = leaf_paths(state.optimizer_state)
    for path in before:
        ends = [moment for moment in moments if moment.endswith(f"/{path}")]
        assert bool(ends) == (path not in FROZEN), (path, moments)
    if "average_decay" in options:
        model = by_path(loop.model_params(state.params, state.optimizer_state))
        for path in before:
            same = np.array_equal(model[path], before[path])
            assert same == (path in FROZEN)
            assert model[path].shape == before[path].shape


def test_the_step_of_the_others_is_the_one_they_take_alone():
    """Clipped SGD by hand: the gradient of all parameters, and the norm of the trained ones."""
    options = {"name": "sgd", "learning_rate": 1.0, "count": 1}
    params, state, _ = steps(clip_norm=0.0, **options)
    moved = jax.tree.map(np.subtract, params, state.params)
    gradient = {path: g for path, g in by_path(moved).items() if path not in FROZEN}
    norm = np.sqrt(sum(np.sum(g.astype(np.float64) ** 2) for g in gradient.values()))
    _, state, norms = steps(FROZEN, clip_norm=norm / 3, **options)
    np.testing.assert_allclose(norms, [norm], rtol=1e-5)
    after, before = by_path(state.params), by_path(params)
    for path, g in gradient.items():
        np.testing.assert_allclose(after[path], before[path] - g / 3, rtol=1e-5, atol=1e-6)


def test_a_started_and_frozen_run_resumes_without_the_other_one(
    data, other_data, source, tmp_path, caplog
):
    """SIGTERM comes at step 5; the run it came from is gone when it goes on, bit for bit."""
    run = tmp_path / "one"
    shutil.copytree(source, run)
    values = {"training.start_from": str(run), "training.frozen": "embedding,output/*"}
    settings = config(other_data, **values)
    whole = loop.train(settings, tmp_path / "whole")
    assert whole.step == 12
    with after_step(5, terminate), pytest.raises(TrainingInterrupted) as interrupted:
        loop.train(settings, tmp_path / "run")
    shutil.rmtree(run)
    caplog.clear()
    assert loop.train(settings, tmp_path / "run") == whole
    said = "\n".join(caplog.messages)
    assert f"resuming after step {interrupted.value.step}" in said and "taken" not in said
    last = latest_state(tmp_path / "run", 12)
    assert_same_bits(last, latest_state(tmp_path / "whole", 12))
    best = restore_run(tmp_path / "run").params
    assert_same_bits(best, restore_run(tmp_path / "whole").params)
    assert comparable(tmp_path / "run") == comparable(tmp_path / "whole")
    # Frozen from its first step to its last, and in what is kept for use.
    there = restore_run(source).params["output"]["kernel"]
    ours, theirs = words_of(other_data), words_of(data)
    for word in "fghij":
        for params in (last["params"], best):
            np.testing.assert_array_equal(
                params["output"]["kernel"][:, ours.index(word)], there[:, theirs.index(word)]
            )
    # Before the first checkpoint there is nothing to resume.
    with pytest.raises(InputError, match=f"^training.start_from: {run} has no run"):
        loop.train(settings, tmp_path / "late")
    assert not (tmp_path / "late").exists()


def test_the_table_tells_what_is_trained(data, tmp_path, monkeypatch, caplog):
    settings = config(data, **{"training.frozen": "output/*, *recurrent"})
    initial_state(settings, tmp_path / "run", monkeypatch)
    lines = "\n".join(caplog.messages).splitlines()
    frozen = {line.split()[0] for line in lines if line.endswith("frozen")}
    assert frozen == {"output/bias", "output/kernel", "stack/0/recurrent"}
    sizes = {line.split()[0]: int(line.split()[-2]) for line in lines if line.endswith("frozen")}
    totals = dict(line.split() for line in lines if line.split()[0] in ("total", "trained"))
    assert int(totals["total"]) - int(totals["trained"]) == sum(sizes.values())
    assert (
        "frozen parameters keep their random initial values: training.start_from is empty" in lines
    )


def test_the_start_is_kept_as_it_can_be_found_from_anywhere(data, source, tmp_path, monkeypatch):
    monkeypatch.chdir(source.parent)
    initial_state(config(data, **{"training.start_from": "run"}), tmp_path / "run", monkeypatch)
    kept = json.loads((tmp_path / "run" / "config.json").read_text())
    assert kept["training"]["start_from"] == str(source)
    before = fingerprint(tmp_path / "run")
    with pytest.raises(InputError, match="training.start_from: '.*' saved, '' given"):
        loop.train(config(data), tmp_path / "run")
    assert fingerprint(tmp_path / "run") == before


# Longer runs


def test_more_epochs_make_the_run_that_was_as_long_at_once(data, source, tmp_path, caplog):
    at_once = loop.train(of_epochs(data, 4), tmp_path / "at_once")
    shutil.copytree(source, tmp_path / "run")
    short = read_result(tmp_path / "run")
    assert short is not None and short.step == 20
    assert loop.train(of_epochs(data, 4), tmp_path / "run") == at_once
    assert "resuming after step 20" in caplog.messages and at_once.step == 40
    assert read_result(tmp_path / "run") == at_once
    assert_same_bits(latest_state(tmp_path / "run", 40), latest_state(tmp_path / "at_once", 40))
    assert_same_bits(restore_run(tmp_path / "run").params, restore_run(tmp_path / "at_once").params)
    assert comparable(tmp_path / "run") == comparable(tmp_path / "at_once")
    for name in ("config.json", "vocabulary.tsv", "corpus.json"):
        kept = [(tmp_path / place / name).read_text() for place in ("run", "at_once")]
        assert kept[0] == kept[1]
    before = fingerprint(tmp_path / "run")
    with pytest.raises(InputError, match=r"has a run of 40 steps, .* allow 20; allow at"):
        loop.train(of_epochs(data, 2), tmp_path / "run")
    assert fingerprint(tmp_path / "run") == before


def test_a_longer_run_has_no_result_while_it_goes_on(data, source, tmp_path, monkeypatch):
    shutil.copytree(source, tmp_path / "run")
    initial_state(of_epochs(data, 3), tmp_path / "run", monkeypatch)
    assert read_result(tmp_path / "run") is None
    assert json.loads((tmp_path / "run" / "config.json").read_text())["training"]["epochs"] == 3
    # Still short of what was trained, and no longer than before: nothing is lost by it.
    result = loop.train(of_epochs(data, 2), tmp_path / "run")
    assert result == read_result(source)
    assert_same_bits(latest_state(tmp_path / "run", 20), latest_state(source, 20))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"training.epochs": 1}, "has a run of 20 steps, .* allow 10; allow at least 20"),
        ({"training.max_steps": 19}, "has a run of 20 steps, .* allow 19"),
        (
            {"training.patience": 4},
            r"already contains a different run \(training.patience: 5 saved, 4 given\). Choose",
        ),
        (
            {"training.seed": 1, "training.epochs": 3},
            r"\(training.seed: 0 saved, 1 given\). Choose a new --workdir, or add "
            r"--config.training.start_from=\S+/run to initialize from it$",
        ),
        ({"model.hidden_dim": 5}, r"a different run \(model.hidden_dim: 4 saved, 5 given\)"),
        ({"training.frozen": "embedding"}, "frozen: '' saved, 'embedding' given"),
        ({"optimizer.schedule": "cosine"}, "optimizer.schedule: 'constant' saved, 'cosine'"),
    ],
)
def test_what_would_be_another_run_is_refused_and_nothing_changes(data, source, values, message):
    before = fingerprint(source)
    with pytest.raises(InputError, match=message):
        loop.train(of_epochs(data, **{"epochs": 2, **values}), source)
    assert fingerprint(source) == before


def test_a_rate_that_decays_over_the_run_has_an_end(data, tmp_path, monkeypatch):
    values = {"optimizer.schedule": "cosine"}
    initial_state(of_epochs(data, 2, **values), tmp_path / "run", monkeypatch)
    before = fingerprint(tmp_path / "run")
    message = (
        r"\(training.epochs: 2 saved, 3 given; the learning rate decays over the whole run\). "
        r"Choose a new --workdir, or add --config.training.start_from=\S+ to initialize from it$"
    )
    with pytest.raises(InputError, match=message):
        loop.train(of_epochs(data, 3, **values), tmp_path / "run")
    assert fingerprint(tmp_path / "run") == before


def test_patience_ends_a_longer_run_too_and_more_of_it_does_not(data, tmp_path, caplog):
    """At rate 0 nothing improves after the first evaluation, at step 2."""

    def settings(epochs: int, patience: int):
        values = {"training.evaluate_every": 2, "training.patience": patience}
        return of_epochs(data, epochs, **values, **{"optimizer.learning_rate": 0.0})

    run = tmp_path / "run"
    loop.train(settings(1, 1), run)
    longer = loop.train(settings(2, 1), run)
    assert (longer.ending, longer.step, longer.best_step) == ("early_stop", 4, 2)
    assert loop.train(settings(2, 1), run) == longer
    assert "(resume with a larger --config.training.patience, or 0)" in caplog.messages[-1]
    assert read_result(run) == longer
    more = loop.train(settings(2, 3), run)
    at_once = loop.train(settings(2, 3), tmp_path / "at_once")
    assert more == at_once
    assert (more.ending, more.step) == ("early_stop", 8)
    assert_same_bits(latest_state(run, 8), latest_state(tmp_path / "at_once", 8))
    assert comparable(run) == comparable(tmp_path / "at_once")
    with pytest.raises(InputError, match="patience: 3 saved, 1 given"):
        loop.train(settings(2, 1), run)


# Bad input


def refused(settings, workdir: Path) -> str:
    with pytest.raises(InputError) as error:
        loop.train(settings, workdir)
    assert not workdir.exists()
    return str(error.value)


def test_a_start_that_cannot_be_is_refused_and_nothing_is_made(data, source, tmp_path):
    def start(run: Path) -> str:
        return refused(config(data, **{"training.start_from": str(run)}), tmp_path / "run")

    begins = "training.start_from: "
    assert start(tmp_path).startswith(f"{begins}{tmp_path} has no run: config.json is missing")
    shutil.copytree(source, tmp_path / "young")
    shutil.rmtree(tmp_path / "young" / "checkpoints" / "best")
    assert start(tmp_path / "young").startswith(f"{begins}{tmp_path / 'young'} has no checkpoint")
    counts = tmp_path / "counts"
    counts.mkdir()
    kept = {"model": {"name": ngram.NGRAM, "order": 5}, "data": {"directory": "somewhere"}}
    (counts / "config.json").write_text(json.dumps(kept))
    assert start(counts) == (
        f"{begins}{counts} has a model 'ngram', which has no parameters; choose another run"
    )
    foreign = save_run(tmp_path / "foreign", "ccdclm", "x y z", **FOUR)
    assert start(foreign) == (
        f"{begins}the vocabularies of {foreign} and data.directory share no word; choose another "
        "run"
    )
    # adclm has no bias at the output, which fits whatever the dimensions are.
    narrow = save_run(tmp_path / "narrow", "rnnlm", "a b c", **FOUR)
    settings = default_config("adclm")
    settings.update_from_flattened_dict(
        {"data.directory": str(data), "training.start_from": str(narrow), "model.hidden_dim": 5}
    )
    message = refused(settings, tmp_path / "run")
    assert message == (
        f"{begins}the rnnlm in {narrow} has no parameter of the same name and shape as this adclm; "
        "choose another run or the same sizes"
    )
    assert "expected gs://BUCKET" in refused(
        config(data, **{"training.start_from": "ftp://host/run"}), tmp_path / "run"
    )


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        ("stack/0/recurent", "'stack/0/recurent' matches no parameter; did you mean 'stack/0/re"),
        ("embedding,,output/*", "'' matches no parameter; known: embedding, "),
        ("stack.0.*", "'stack.0.*' matches no parameter"),
        ("*", "training.frozen is '*', which matches all parameters; choose"),
        ("e*,output*,stack/*,initial_context", "which matches all parameters"),
    ],
)
def test_patterns_of_nothing_or_everything_are_refused(data, tmp_path, patterns, message):
    assert message in refused(config(data, **{"training.frozen": patterns}), tmp_path / "run")
