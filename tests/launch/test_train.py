"""launch.train: runs that resume, diverge or have large batches; help."""

import json
import re
import shutil

from dclm_jax.training.config import default_config, flat
from tests.launch.support import STEPS, launch, refuse

LONGER = f"--config.training.max_steps={STEPS + 8}"


def test_a_run_goes_on_by_its_workdir_alone(space, tmp_path):
    """From another directory; tests/training/test_start_from.py compares the parameters."""
    run = tmp_path / "run"
    shutil.copytree(space.run, run)
    said = launch("train", "--workdir=run", cwd=tmp_path).stdout
    assert f"finished {STEPS} steps" in said
    config = json.loads((run / "config.json").read_text())
    assert config["data"]["directory"] == str(space.corpus)
    said = launch("train", LONGER, "--workdir", "run", cwd=tmp_path).stdout
    assert f"resuming after step {STEPS}" in said and f"finished {STEPS + 8} steps" in said
    config["training"]["max_steps"] = STEPS + 8
    assert json.loads((run / "config.json").read_text()) == config


def keys_of(help_text: str) -> dict[str, tuple[str, str]]:
    """Value and meaning by key, of those that --help lists."""
    entries = re.findall(r"^  --config\.(\S+?)=(.*)\n((?: {6}.*\n)+)", help_text, re.MULTILINE)
    return {key: (value, " ".join(text.split())) for key, value, text in entries}


def test_help_lists_the_keys_of_a_configuration(space):
    said = launch("train", "--help", f"--config={space.config}:adclm").stdout
    listed = keys_of(said)
    config = default_config("adclm").to_dict()
    config["model"].update(embedding_dim=8, hidden_dim=8, num_layers=1)
    config["data"].update(batch_size=8)
    config["optimizer"].update(name="adam", learning_rate=0.02)
    config["training"].update(max_steps=STEPS, evaluate_every=8, checkpoint_every=4, log_every=1)
    config["training"].update(patience=0)
    values = {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in flat(config).items()
    }
    assert {key: value for key, (value, _) in listed.items()} == values
    assert all(meaning for _, meaning in listed.values())
    assert listed["training.patience"][1] == (
        "number of consecutive evaluations without a better perplexity that end training; "
        "0 for never."
    )
    # In any order, and without a name.
    said = launch("train", f"--config={space.config}", "--help").stdout
    assert keys_of(said)["model.name"][0] == "ccdclm"


def test_help_lists_the_keys_of_the_run_that_would_go_on(space):
    text = launch("train", "--help", f"--workdir={space.run}").stdout
    assert "\n  --config: Configuration file" in text and "(default:" not in text
    listed = keys_of(text)
    assert (listed["model.hidden_dim"][0], listed["data.directory"][0]) == ("8", str(space.corpus))


def test_train_says_what_it_does_and_keeps_what_a_run_needs(space):
    output = space.trained.stdout
    for text in ("embedding", "total", "documents", "devices: 1 x cpu", f"finished {STEPS} steps"):
        assert text in output
    lines = [json.loads(line) for line in (space.run / "metrics.jsonl").read_text().splitlines()]
    steps = [line["step"] for line in lines if line["kind"] == "train"]
    assert steps == list(range(1, STEPS + 1))
    valid = [line["perplexity"] for line in lines if line["kind"] == "valid"]
    assert len(valid) == 3 and valid[-1] < valid[0] < 98
    saved = json.loads((space.run / "config.json").read_text())
    assert saved["model"]["hidden_dim"] == 8


def test_divergence_is_one_line_and_leaves_nothing_to_resume_from(space, tmp_path):
    run = tmp_path / "run"
    options = ("name=sgd", "clip_norm=0.0", "learning_rate=1e30")
    flags = [f"--config.optimizer.{option}" for option in options]
    flags.append("--config.training.evaluate_every=1")
    error = refuse("train", *space.training(run, *flags), code=1)
    assert error.startswith("error: step 1: ")
    assert not list((run / "checkpoints" / "latest").iterdir())
    assert "no checkpoint to use yet" in refuse("evaluate", f"--workdir={run}")


def test_a_corpus_of_many_oov_words_is_warned_of(space, tmp_path):
    """As if raw text were read like the lines of words whose vocabulary it has."""
    text, corpus = tmp_path / "text", tmp_path / "corpus"
    text.write_text("w1 w2, w3. W4\nw5 w6 w7 w8 w9\n")
    flags = [f"--{split}={text}" for split in ("train", "valid")]
    flags += [f"--vocabulary={space.corpus / 'vocabulary.tsv'}", f"--output={corpus}"]
    warning = "warning: train: 33.33% of the words are out of vocabulary (0."
    assert warning in launch("prepare", *flags, quiet=False).stderr
    training = space.training(tmp_path / "run", f"--config.data.directory={corpus}")
    assert warning in launch("train", *training, quiet=False).stderr
