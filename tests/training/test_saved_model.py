"""A model saved as a folder to share, and the pretrained model."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import safetensors.numpy

import dclm_jax
from dclm_jax.errors import InputError
from dclm_jax.report.results import facts_of
from dclm_jax.runs import corpus_of
from dclm_jax.training.loop import train
from dclm_jax.training.saved_model import PARAMS_FILE, base_section
from dclm_jax.training.workdir import pretrained_models
from tests.launch.support import launch
from tests.support import changed
from tests.training import support

DOCUMENTS = [["a b c", "d e f g", "b"], ["c c a", "g"]]
FILES = {
    *("README.md", "config.json", "corpus.json", "params.safetensors", "text.json"),
    "vocabulary.tsv",
}


@pytest.fixture(scope="module")
def saved(uninterrupted, tmp_path_factory) -> dict[str, Path]:
    """A run saved in both types."""
    folder = tmp_path_factory.mktemp("saved")
    lm = dclm_jax.restore(uninterrupted)
    for dtype in ("float16", "float32"):
        lm.save(folder / dtype, dtype=dtype, about="About this text.\n")
    return {dtype: folder / dtype for dtype in ("float16", "float32")}


@pytest.fixture
def folder(saved, tmp_path) -> Path:
    """A copy to damage."""
    return shutil.copytree(saved["float32"], tmp_path / "model")


def nats(lm) -> np.ndarray:
    return lm.surprisals(DOCUMENTS)["surprisal"]


def test_float32_keeps_all_scores_and_float16_rounds_parameters(uninterrupted, saved):
    lm = dclm_jax.restore(uninterrupted)
    assert nats(dclm_jax.restore(saved["float32"])).tolist() == nats(lm).tolist()
    rounded = jax.tree.map(lambda leaf: np.float32(np.float16(leaf)), lm.params)
    expected = nats(changed(lm, params=rounded))
    half = dclm_jax.restore(saved["float16"])
    assert nats(half).tolist() == expected.tolist()
    assert np.abs(nats(half) - nats(lm)).max() > 0
    assert half.facts.step == lm.facts.step and half.facts.text == lm.facts.text
    assert half.validation_perplexity == lm.validation_perplexity


def test_the_paths_of_a_configuration_are_not_saved(uninterrupted, tmp_path):
    lm = dclm_jax.restore(uninterrupted)
    training = lm.facts.config["training"] | {"start_from": "/home/somebody/run"}
    changed(lm, config=lm.facts.config | {"training": training}).save(tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config["data"]["directory"] == config["training"]["start_from"] == ""


def test_the_folder_has_plain_files_and_no_path_of_this_machine(saved, uninterrupted, data):
    for folder in saved.values():
        assert {path.name for path in folder.iterdir()} == FILES
        content = b"".join(path.read_bytes() for path in folder.iterdir())
        assert str(data).encode() not in content and str(uninterrupted).encode() not in content
    half, whole = (safetensors.numpy.load_file(folder / PARAMS_FILE) for folder in saved.values())
    assert {(array.dtype.name, 2 * array.nbytes) for array in half.values()} <= {
        ("float16", array.nbytes) for array in whole.values()
    }
    card = (saved["float16"] / "README.md").read_text()
    lm = dclm_jax.restore(uninterrupted)
    assert card.startswith("# float16\n") and card.endswith("\n\nAbout this text.\n")
    assert f"| parameters | {lm.facts.num_parameters:,}, saved as float16 |" in card
    assert f"| validation perplexity in training | {lm.validation_perplexity:.2f} |" in card


@pytest.mark.parametrize("run", [b"english", None, 5])
def test_what_is_no_path_is_one_line(run):
    with pytest.raises(InputError, match="^the run is .*; expected the path of a workdir or of a"):
        dclm_jax.restore(run)


def test_a_moved_read_only_folder_scores_alike_in_a_command(saved, uninterrupted, data, tmp_path):
    folder = shutil.copytree(saved["float32"], tmp_path / "moved" / "model")
    for path in (*folder.iterdir(), folder):
        path.chmod(0o555 if path.is_dir() else 0o444)
    printed = [
        launch("evaluate", f"--workdir={run}", f"--data={data}").stdout
        for run in (folder, uninterrupted)
    ]
    assert printed[0] == printed[1] and "perplexity" in printed[0]
    refused = launch("evaluate", f"--workdir={folder}", code=2).stderr
    assert "is a saved model, which has no corpus; add --data=DIR" in refused
    folder.chmod(0o755)


def test_training_starts_from_a_saved_model_and_does_not_resume_it(saved, data, tmp_path, caplog):
    config = support.config(data, **{"training.start_from": str(saved["float32"])})
    train(config, tmp_path / "run")
    assert any("taken" in line for line in caplog.text.splitlines())
    for workdir in (saved["float32"], "english"):
        with pytest.raises(InputError, match="is a saved model, which cannot be resumed; choose"):
            train(support.config(data), workdir)
    assert not (saved["float32"] / "lock").exists()


def test_the_card_of_a_fine_tuned_model_has_what_the_cards_of_its_bases_say(saved, data, tmp_path):
    """A run from a saved model, saved with and without a text about it; and a run from this run."""
    first = tmp_path / "first"
    train(support.config(data, **{"training.start_from": str(saved["float32"])}), first)
    base = (
        "## Base model\n\nTraining started from the parameters of `float32`.\n\nAbout this text.\n"
    )
    assert (first / "base.md").read_text() == base
    dclm_jax.restore(first).save(tmp_path / "model", about="## Training text\n\nLetters.")
    card = (tmp_path / "model" / "README.md").read_text()
    assert card.endswith(f"`--workdir`.\n\n## Training text\n\nLetters.\n\n{base}")
    assert {path.name for path in (tmp_path / "model").iterdir()} == {*FILES, "base.md"}
    assert dclm_jax.restore(tmp_path / "model").base_card == base
    for source, inherited in (
        ("first", base),
        ("model", f"## Training text\n\nLetters.\n\n{base}"),
    ):
        second = tmp_path / f"from-{source}"
        train(support.config(data, **{"training.start_from": str(tmp_path / source)}), second)
        expected = f"## Base model\n\nTraining started from the parameters of `{source}`.\n\n"
        expected += inherited.replace("## ", "### ")
        dclm_jax.restore(second).save(tmp_path / f"saved-{source}")
        assert (tmp_path / f"saved-{source}" / "README.md").read_text().endswith(f"\n\n{expected}")
        assert str(tmp_path) not in (tmp_path / f"saved-{source}" / "README.md").read_text()


def test_a_pointer_of_git_lfs_is_named(folder):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    (folder / PARAMS_FILE).write_text(pointer)
    with pytest.raises(InputError, match=f"{PARAMS_FILE}: is a pointer of Git LFS in place of the"):
        dclm_jax.restore(folder)


def test_an_edited_card_and_what_it_lacks_are_inherited(folder):
    (folder / "README.md").write_text("# Mine\n\nLetters, CC BY-SA.\n")
    (folder / "base.md").write_text("## Base model\n\nDigits, CC BY.\n")
    assert base_section(folder, "mine") == (
        "## Base model\n\nTraining started from the parameters of `mine`.\n\n## Mine\n\nLetters, "
        "CC BY-SA.\n\n### Base model\n\nDigits, CC BY.\n"
    )


def test_a_report_of_a_run_and_its_saved_model_compares_equal_recipes(saved, uninterrupted):
    models = [dclm_jax.restore(folder) for folder in (uninterrupted, saved["float32"])]
    trained, kept = (facts_of(lm, "") for lm in models)
    assert trained.training_text == kept.training_text is not None
    with pytest.raises(InputError, match="is a saved model, which has no corpus; add --data=DIR"):
        corpus_of(models[1:])


def test_bad_calls_are_one_line(saved, uninterrupted, tmp_path):
    lm = dclm_jax.restore(uninterrupted)
    with pytest.raises(InputError, match="float32 exists; choose a new folder"):
        lm.save(saved["float32"])
    with pytest.raises(InputError, match="cannot be written: File name too long"):
        lm.save(tmp_path / ("a" * 300))
    with pytest.raises(InputError, match="about is 3; expected a string"):
        lm.save(tmp_path / "new", about=3)  # pyright: ignore[reportArgumentType]
    large = jax.tree.map(lambda leaf: 1e6 * leaf, lm.params)
    with pytest.raises(InputError, match="^bias|^embedding exceeds the range of float16; choose"):
        changed(lm, params=large).save(tmp_path / "new")
    with pytest.raises(InputError, match="dtype is 'int8'; expected one of float16, float32"):
        lm.save(tmp_path / "new", dtype="int8")
    assert not list(tmp_path.iterdir())


def damage(folder: Path, kind: str) -> None:
    path = folder / PARAMS_FILE
    content = path.read_bytes()
    arrays = safetensors.numpy.load(content)
    with safetensors.safe_open(path, "numpy") as file:
        facts = file.metadata()
    if kind == "no parameters":
        path.unlink()
    elif kind == "no text":
        (folder / "text.json").unlink()
    elif kind == "short":
        path.write_bytes(content[:-9])
    elif kind == "text":
        path.write_text("not a model")
    elif kind == "vocabulary":
        words = folder / "vocabulary.tsv"
        words.write_text(words.read_text().replace("\na\t", "\nother\t"))
    elif kind == "size":
        words = folder / "vocabulary.tsv"
        words.write_text(words.read_text() + "another\t1\n")
    else:
        if kind == "shape":
            arrays["stack/0/bias"] = arrays["stack/0/bias"][1:]
        elif kind == "absent":
            del arrays["embedding"]
        elif kind == "further":
            arrays["more"] = arrays["embedding"]
        elif kind == "type":
            arrays["embedding"] = arrays["embedding"].astype(np.int32)
        elif kind == "nan":
            arrays["embedding"] = arrays["embedding"] * np.float32(np.nan)
        elif kind == "metadata":
            facts = {}
        elif kind == "step":
            facts = {"dclm_jax": facts["dclm_jax"].replace('"step": ', '"step": -')}
        path.write_bytes(safetensors.numpy.save(arrays, facts))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("short", r"params.safetensors: cannot be read as safetensors \(.*restore the folder"),
        ("text", "params.safetensors: cannot be read as safetensors"),
        ("shape", r"'stack/0/bias' is \d+, and \d+ by config.json and vocabulary.tsv"),
        ("absent", r"'embedding' is absent, and \d+ x \d+ by config.json"),
        ("further", "'more' is .* and absent by config.json"),
        ("type", "'embedding' has the type int32; expected float16 or float32"),
        ("nan", "'embedding' contains nan or inf; restore the folder from a copy"),
        ("metadata", "has no metadata 'dclm_jax'; choose a model that NeuralModel.save wrote"),
        ("step", "params.safetensors: dclm_jax: step is -.*; expected a whole number from 0"),
        ("no parameters", "has neither checkpoints nor params.safetensors; restore it from a copy"),
        ("no text", "text.json: no such file"),
        ("vocabulary", "params.safetensors is for a vocabulary other than .*vocabulary.tsv"),
        ("size", r"'embedding' is .*, and .* by config.json and vocabulary.tsv"),
    ],
)
def test_a_damaged_folder_is_one_line(folder, kind, message):
    damage(folder, kind)
    with pytest.raises(InputError, match=message):
        dclm_jax.restore(folder)


# The pretrained model.


@pytest.fixture(scope="module")
def english():
    return dclm_jax.restore("english")


def test_the_pretrained_model_predicts_a_word_better_in_its_context(english):
    context = "The old lighthouse stood on a rock. The keeper of the lighthouse was an old man."
    other = "The old hotel stood on a rock. The keeper of the hotel was an old man."

    def last(first: str) -> tuple[float, float]:
        documents = english.documents(f"{first} Nobody had ever seen him leave the lighthouse.")
        table = english.surprisals(documents, no_context_too=True)
        (index,) = np.flatnonzero((table["sentence"] == 3) & (table["word"] == "lighthouse"))
        return table["surprisal"][index], table["surprisal_no_context"][index]

    (related, alone), (unrelated, same) = last(context), last(other)
    assert alone == pytest.approx(same, abs=1e-4)
    assert related < unrelated - 3 and related < alone - 3


def test_a_word_that_no_training_text_has_is_scored_and_the_twin_reads_no_context(english):
    documents = english.documents("The kitten slept. Nobody saw the thermometer of zorblax.")
    twin = dclm_jax.restore("english_sentences")
    tables = [lm.surprisals(documents, no_context_too=True) for lm in (english, twin)]
    for table in tables:
        assert table["known"].all() and np.isfinite(table["surprisal"]).all()
        assert list(table["word"]) == list(tables[0]["word"])
    assert tables[1]["surprisal"] == pytest.approx(tables[1]["surprisal_no_context"], abs=1e-5)


@pytest.mark.parametrize("name", ["english", "english_sentences"])
def test_a_pretrained_model_is_small_and_reads_raw_text(name):
    folder = Path(dclm_jax.__file__).parent / "pretrained" / name
    assert sum(path.stat().st_size for path in folder.iterdir() if path.is_file()) < 8e6
    (document,) = dclm_jax.restore(name).documents("“Don’t <unk>,” he said — twice.")
    assert document.sentences[0][:4] == ['"', "don", "'t", "<unk>"]
    config = json.loads((folder / "config.json").read_text())
    assert config["data"]["directory"] == config["training"]["start_from"] == ""


def test_a_name_that_is_not_there_lists_the_pretrained_models(tmp_path, monkeypatch):
    names = ["english", "english_sentences"]
    assert pretrained_models() == names
    listed = f"engliss has no run: .*or a pretrained model: {', '.join(names)}$"
    with pytest.raises(InputError, match=listed):
        dclm_jax.restore("engliss")
    # A folder of this name comes first if it has a run.
    monkeypatch.chdir(tmp_path)
    Path("english").mkdir()
    assert dclm_jax.restore("english").facts.name == "pointer_drnnlm"
    Path("english/config.json").write_text("{}")
    with pytest.raises(InputError, match="config.json: expected the model's name"):
        dclm_jax.restore("english")


def test_the_package_lists_its_functions_and_its_version():
    assert {"Decoding", "mix", "report", "restore", "__version__"} <= set(dir(dclm_jax))
    code = "import sys, dclm_jax; print(dclm_jax.__version__, 'jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "0.1.0 False\n"
