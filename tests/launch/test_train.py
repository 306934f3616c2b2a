"""launch.train and launch.sweep: runs that go on, help, and flags that are amiss."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from dclm_jax.training.config import default_config, flat
from tests.exhaustive import also
from tests.launch.support import STEPS, fingerprint, launch, refuse

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


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "error: --config is missing, and none has no run to resume; add a file"),
        (["--config.training.epochs=4"], "--config is missing, and none has no run to resume"),
        (["--workdir=RUN", "--config.model.hidden_dim=9"], "model.hidden_dim: 8 saved, 9 given"),
        (["--workdir=RUN", "--config.training.epochs=x"], "--config.training.epochs=x"),
    ],
)
def test_a_workdir_alone_that_cannot_go_on_is_one_line(space, tmp_path, arguments, expected):
    before = fingerprint(space.run)
    flags = [text.replace("RUN", str(space.run)) for text in arguments]
    assert expected in refuse("train", "--workdir=none", *flags, cwd=tmp_path)
    assert fingerprint(space.run) == before
    assert not list(tmp_path.iterdir())


def keys_of(help_text: str) -> dict[str, tuple[str, str]]:
    """Value and meaning by key, of those that --help lists."""
    entries = re.findall(r"^  --config\.(\S+?)=(.*)\n((?: {6}.*\n)+)", help_text, re.MULTILINE)
    return {key: (value, " ".join(text.split())) for key, value, text in entries}


@pytest.mark.parametrize("name", ["train", "sweep"])
def test_help_lists_the_keys_of_a_configuration(space, name):
    said = launch(name, "--help", f"--config={space.config}:adclm").stdout
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
    said = launch(name, f"--config={space.config}", "--help").stdout
    assert keys_of(said)["model.name"][0] == "ccdclm"


def test_help_lists_the_keys_of_the_run_that_would_go_on(space):
    text = launch("train", "--help", f"--workdir={space.run}").stdout
    assert "\n  --config: Configuration file" in text and "(default:" not in text
    listed = keys_of(text)
    assert (listed["model.hidden_dim"][0], listed["data.directory"][0]) == ("8", str(space.corpus))


@pytest.mark.parametrize("name", ["train", "sweep"])
def test_help_teaches_with_commands_that_are_accepted(space, name, tmp_path):
    """All but the first, which prepares the corpus; as far as their data directory."""
    said = launch(name, "--help").stdout
    assert "--help --config=FILE" in said and "None" not in said
    commands = re.findall(r"^ +python -m launch\.\w+ (?:.*\\\n)*.*", said, re.MULTILINE)
    parsed = [shlex.split(command.replace("\\\n", " "))[2:] for command in commands]
    assert parsed[0] == ["launch.prepare", "--corpus=sotu", "--output=data/sotu"]
    corpus = f"--config.data.directory={tmp_path}"
    for module, *arguments in parsed[1:]:
        assert module == f"launch.{name}"
        flags = [
            corpus if text.startswith("--config.data.directory") else text
            for text in arguments
            if not text.startswith(("--workdir", "--executor", "--slurm"))
        ]
        if corpus in flags:
            error = refuse(name, f"--workdir={tmp_path / 'run'}", *flags)
            assert f"{tmp_path}: has no manifest.json" in error
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("flag", "meant"),
    [
        ("--hidden_dim=32", "--config.model.hidden_dim"),
        ("--hiden_dim=32", "--config.model.hidden_dim"),
        ("--training.epochs=3", "--config.training.epochs"),
        ("--batch_size=3", "--config.data.batch_size"),
        ("--name=adam", "--config.model.name or --config.optimizer.name"),
        ("--notie_embeddings", "--config.model.tie_embeddings"),
    ],
)
@pytest.mark.parametrize("name", ["train", *also(["sweep"])])
def test_a_bare_flag_that_is_a_key_is_told_its_name(space, tmp_path, name, flag, meant):
    bare = flag.removeprefix("--").split("=")[0]
    error = refuse(name, *space.training(tmp_path / "run", flag))
    assert error == f"error: Unknown command line flag '{bare}'; did you mean {meant}?"
    assert not list(tmp_path.iterdir())


def test_a_flag_that_is_no_key_gets_no_key(space, tmp_path):
    for flag, tip in (("--frobnicate=1", ""), ("--worksdir=1", ". Did you mean: workdir ?")):
        error = refuse("train", *space.training(tmp_path / "run", flag))
        assert error.endswith(f"flag '{flag[2:].split('=')[0]}'{tip}")


@pytest.mark.parametrize("more", [[], ["--help"]])
def test_a_configuration_that_needs_a_name_says_so(tmp_path, more):
    (tmp_path / "own.py").write_text("def get_config(size):\n    return {'small': 1}[size]\n")
    arguments = [f"--config={tmp_path / 'own.py'}", f"--workdir={tmp_path / 'run'}", *more]
    error = launch("train", *arguments, code=2).stderr
    assert error == (
        "error: --config: get_config() missing 1 required positional argument: 'size'; write the "
        "name as --config=FILE:NAME\n"
    )
    assert not (tmp_path / "run").exists()


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


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--config.model.hiden_dim=3"], ["'hiden_dim'", '"hidden_dim"']),
        (["--config=tiny.py:ccdcml"], ["'ccdcml'", "'ccdclm'"]),
        (["--config=raises.py"], ["raises.py:5", "max_step"]),
        (["--config=syntax.py"], ["syntax.py:1"]),
        (["--config=absent.py"], ["absent.py"]),
        (["--config.data.batch_size=x"], ["--config.data.batch_size=x"]),
        (["stray"], ["'stray'"]),
    ],
)
def test_train_refuses_bad_input_and_writes_nothing(space, tmp_path, arguments, expected):
    good = space.config.read_text()
    (tmp_path / "tiny.py").write_text(good)
    (tmp_path / "syntax.py").write_text("x = (1\n")
    (tmp_path / "raises.py").write_text(
        "from dclm_jax.training.config import default_config\n\n"
        "def get_config():\n    config = default_config()\n    return config.training.max_step\n"
    )
    before = fingerprint(tmp_path)
    configs = [text.removeprefix("--config=") for text in arguments if "--config=" in text]
    others = [text for text in arguments if "--config=" not in text]
    config = Path(configs[0]) if configs else None
    error = refuse("train", *space.training(Path("run"), *others, config=config), cwd=tmp_path)
    for part in expected:
        assert part in error
    assert fingerprint(tmp_path) == before
    assert not (tmp_path / "run").exists()


def test_train_needs_a_workdir(space):
    assert "--workdir" in refuse("train", f"--config={space.config}")


def test_train_refuses_a_workdir_of_another_vocabulary(space):
    before = fingerprint(space.run)
    corpus = f"--config.data.directory={space.other_corpus}"
    error = refuse("train", *space.training(space.run, corpus))
    assert f"{space.run} has a run whose vocabulary differs from" in error
    assert fingerprint(space.run) == before
