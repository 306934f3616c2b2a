"""launch.evaluate on several runs: side by side, by part of speech, mixed, and in pictures."""

import json
import math
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

import dclm_jax
from dclm_jax.data import datasets
from dclm_jax.data.readers import read_documents
from dclm_jax.report import figures
from dclm_jax.training.workdir import restore_run
from tests.compiling import TWO_DEVICES
from tests.launch.support import TOLERANCE, copy_run, launch, refuse

TAGS = ("NN", "NNS", "VB", "VBZ", "IN", "DT", "FW", ",")


def tag_of(word: str) -> str:
    """A part of speech for each of the words w0, w1, ..., some more often than others."""
    return TAGS[int(math.sqrt(int(word[1:]) % 64))]


@pytest.fixture(scope="module")
def tagged(space, tmp_path_factory) -> dict[str, Path]:
    """The text of `space` with tags, by split."""
    paths = {}
    for split in ("valid", "test"):
        paths[split] = tmp_path_factory.mktemp("tagged") / split
        documents = [
            "\n".join(" ".join(f"{word}/{tag_of(word)}" for word in words) for words in sentences)
            for _, sentences, *_ in read_documents(space.text[split])
        ]
        paths[split].write_text("\n\n".join(documents))
    return paths


def evaluate(*arguments, workdirs=(), **options):
    names = ",".join(map(str, workdirs))
    done = launch("evaluate", f"--workdirs={names}", "--metrics=-", *arguments, **options)
    return json.loads(done.stdout)


def test_several_runs_are_measured_as_each_alone(space, tmp_path):
    workdirs = [space.run, space.rnnlm]
    output = tmp_path / "result.json"
    done = launch(
        "evaluate", f"--workdirs={space.run},{space.rnnlm}", "--split=valid", f"--metrics={output}"
    )
    together = json.loads(output.read_text())
    assert list(together) == ["runs"]
    lines = done.stdout.splitlines()
    header = ["run", "parameters", "targets", "perplexity", "in-vocabulary", "bits/word"]
    assert lines[0].split() == header
    for workdir, result, line in zip(workdirs, together["runs"], lines[2:], strict=False):
        alone = evaluate("--split=valid", workdirs=[workdir])
        assert result == alone
        assert result["workdir"] == str(workdir)
        parameters, tokens = f"{result['parameters']:,}", f"{result['tokens']:,}"
        measures = ("perplexity", "known_perplexity", "bits_per_word")
        values = [f"{result[name]:.4f}" for name in measures]
        expected = [result["model"], parameters, tokens, *values]
        assert line.split() == expected
    assert [result["model"] for result in together["runs"]] == ["ccdclm", "rnnlm"]
    assert "counting: END is predicted and counted" in done.stdout

    piped = evaluate("--input=-", workdirs=workdirs, stdin=space.text["valid"].read_text())
    for result, other in zip(together["runs"], piped["runs"], strict=True):
        assert other["nll"] == pytest.approx(result["nll"], rel=TOLERANCE)


def test_runs_of_one_model_are_named_after_their_folders(space, tmp_path):
    small = copy_run(space.run, tmp_path / "small")
    done = launch("evaluate", f"--workdirs={space.run},{small}")
    assert [line.split()[0] for line in done.stdout.splitlines()[2:4]] == ["run", "small"]
    # A comma in a folder's name.
    shutil.copytree(small, tmp_path / "a,b")
    assert "ccdclm, " in launch("evaluate", f"--workdir={tmp_path / 'a,b'}").stdout


def test_the_picture_by_part_of_speech_is_relative_to_the_first_run(
    space, tagged, tmp_path, monkeypatch
):
    pictures = []
    monkeypatch.setattr(figures, "plot", lambda picture, path: pictures.append(picture))
    workdirs, output = f"--workdirs={space.run},{space.rnnlm}", tmp_path / "a.json"
    flags = (f"--input={tagged['test']}", "--format=tagged", "--by_pos")
    flags += (f"--plot={tmp_path / 'a.png'}",)
    launch("evaluate", workdirs, *flags, f"--metrics={output}")
    launch("evaluate", f"--workdir={space.run}", *flags)
    runs = json.loads(output.read_text())["runs"]
    base, other = (
        np.array([values["perplexity"] for values in run["by_pos"].values()]) for run in runs
    )
    both, alone = pictures
    assert (both.baseline, alone.baseline) == ("ccdclm", "")
    assert both.ticks == alone.ticks == list(runs[0]["by_pos"])
    (series,), (single,) = both.lines, alone.lines
    assert (series.label, single.label) == ("rnnlm", "ccdclm")
    np.testing.assert_allclose(series.y, 100 * (other / base - 1))
    np.testing.assert_allclose(single.y, base)
    for line in (series, single):
        known = ~np.isnan(line.low)
        assert known.any()
        assert (line.low <= line.y)[known].all() and (line.y <= line.high)[known].all()


def test_parts_of_speech_of_a_text(space, tagged, tmp_path):
    plot, output = tmp_path / "bars.png", tmp_path / "a.json"
    text = (f"--input={tagged['test']}", "--format=tagged")
    run = f"--workdir={space.run}"
    done = launch("evaluate", run, *text, "--by_pos", f"--plot={plot}", f"--metrics={output}")
    assert plot.read_bytes().startswith(b"\x89PNG")
    result = json.loads(output.read_text())
    plain = space.evaluate(*text)
    assert list(result) == [*plain, "by_pos"]
    assert {key: result[key] for key in plain} == plain
    classes = result["by_pos"]
    assert sum(values["tokens"] for values in classes.values()) == result["tokens"]
    assert classes["END"]["tokens"] == result["sentences"]
    for name, sums in classes.items():
        assert f"{name:<6}" in done.stdout and f"{sums['perplexity']:,.2f}" in done.stdout


def test_text_without_tags_has_no_parts_of_speech(space):
    for source in ("--split=test", f"--input={space.text['test']}"):
        error = refuse("evaluate", f"--workdir={space.run}", "--by_pos", source)
        assert "has no parts of speech; tag text with configs/larger_context/tag.py" in error


@pytest.mark.parametrize("is_text", [False, True])
def test_two_runs_mixed(space, tagged, tmp_path, is_text):
    arguments = [f"--workdirs={space.run},{space.rnnlm}", "--interpolate"]
    if is_text:
        arguments += [f"--input={tagged['test']}", "--format=tagged", "--by_pos"]
    done = launch("evaluate", *arguments, f"--metrics={tmp_path / 'result.json'}")
    result = json.loads((tmp_path / "result.json").read_text())
    documents = {
        split: [document.sentences for document in read_documents(space.text[split])]
        for split in ("valid", "test")
    }
    first, second = map(dclm_jax.restore, (space.run, space.rnnlm))
    mixture = dclm_jax.mix(first, second, tune_on=documents["valid"])
    weight = result["mixture"]["weight"]
    assert weight == pytest.approx(mixture.facts.config["weight"], abs=1e-4)
    for split, value in (("valid", result["tuning"]), ("test", result)):
        measured = [lm.perplexity(documents[split]) for lm in (first, second, mixture)]
        for run, expected in zip((*value["runs"], value["mixture"]), measured, strict=True):
            assert run["nll"] == pytest.approx(expected.nll, rel=TOLERANCE)
            assert run["known_nll"] == pytest.approx(expected.known_nll, rel=TOLERANCE)
            assert run["tokens"] == expected.tokens
        assert f"{value['mixture']['perplexity']:.4f}" in done.stdout
    assert f"mixture: {weight:.4f} ccdclm + {1 - weight:.4f} rnnlm" in done.stdout
    assert result["tuning"]["split"] == "valid"
    if is_text:
        classes = result["mixture"]["by_pos"]
        summed = math.fsum(values["nll"] for values in classes.values())
        assert summed == pytest.approx(result["mixture"]["nll"], rel=1e-12)
        assert classes["IN"]["nll"] != result["runs"][0]["by_pos"]["IN"]["nll"]
        assert {"DT", "IN", "Verb", "punctuation", "END"} < set(classes)
    else:
        assert result["mixture"]["split"] == "test"


def test_perplexity_against_context_in_a_picture(space, tmp_path):
    # Parameters do not depend on n, so that one run is read with two of them.
    bow = ["--config.model.context_dim=4", "--config.training.max_steps=1"]
    trained = space.train("rlm_bow_lf", "rlm_bow_lf", *bow)
    contexts = [
        copy_run(trained, tmp_path / f"bow_{number}", model_context_sentences=number)
        for number in (1, 2)
    ]
    plot = tmp_path / "context.svg"
    workdirs = ",".join(map(str, [*contexts, space.rnnlm]))
    done = launch("evaluate", f"--workdirs={workdirs}", f"--plot={plot}")
    assert done.stdout.splitlines()[-1] == f"Plot: {plot}"
    svg = plot.read_text()
    assert svg.count("<!-- rlm_bow_lf -->") == 1
    perplexity = float(done.stdout.splitlines()[4].split()[3])
    assert f"<!-- rnnlm ({perplexity:.1f}) -->" in svg


def test_runs_of_different_corpora_need_to_be_told_which(space, tmp_path):
    moved = tmp_path / "moved"
    shutil.copytree(space.corpus, moved)
    run = copy_run(space.rnnlm, tmp_path / "run", data_directory=str(moved))
    error = refuse("evaluate", f"--workdirs={space.run},{run}")
    assert f"was trained on {space.corpus} and {run} on {moved}" in error and "--data" in error
    result = evaluate(f"--data={moved}", workdirs=[space.run, run])
    assert [run["data"] for run in result["runs"]] == [str(moved)] * 2
    # Text is measured on, but the weight is tuned on a split.
    text = f"--input={space.text['test']}"
    assert "--data" in refuse("evaluate", f"--workdirs={space.run},{run}", "--interpolate", text)
    result = evaluate(f"--data={moved}", "--interpolate", text, workdirs=[space.run, run])
    assert result["tuning"]["data"] == str(moved)


def test_perplexity_over_the_tokens_of_published_ones(space, tmp_path):
    folder, out = tmp_path / "wikitext", tmp_path / "out"
    folder.mkdir()
    for word, split in enumerate(("train", "valid", "test")):
        (folder / f"{split}.txt").write_text(f" w1 w{word} \n \n{' w2' * 30} <unk> w4 \n \n")
    vocabulary = f"--vocabulary={space.corpus / 'vocabulary.tsv'}"
    launch("prepare", "--corpus=wikitext", f"--input={folder}", vocabulary, f"--output={out}")
    result = space.evaluate(f"--data={out}")
    # Four lines, two of them empty, but two sentences.
    assert (result["tokens"], result["original_tokens"]) == (34 + 2, 34 + 4)
    expected = result["perplexity"] ** (36 / 38)
    assert math.isclose(result["original_perplexity"], expected)
    printed = launch("evaluate", f"--workdir={space.run}", f"--data={out}", quiet=False).stdout
    assert (
        "perplexity (published counting)" in printed and "38 tokens of the original text" in printed
    )
    assert space.evaluate()["original_perplexity"] is None


def test_a_device_that_is_not_there_is_named(space):
    error = refuse("evaluate", f"--workdir={space.run}", process=True, JAX_PLATFORMS="rocket")
    assert error == (
        "error: JAX_PLATFORMS is rocket, and JAX finds no such device here; install JAX for "
        "this device (pip install 'jax[cuda13]') or set JAX_PLATFORMS=cpu"
    )


def test_a_fault_of_ours_is_none_of_a_device(space, monkeypatch):
    def fail(*arguments, **options):
        raise ValueError("a fault")

    asked = jax.config.values["jax_platforms"]
    monkeypatch.setattr(datasets, "open_split", fail)
    jax.config.update("jax_platforms", "cpu")
    try:
        with pytest.raises(ValueError, match="a fault"):
            launch("evaluate", f"--workdir={space.run}")
    finally:
        jax.config.update("jax_platforms", asked)


def test_evaluate_is_the_same_from_corpus_and_text(space):
    split = space.evaluate("--split=test")
    manifest = json.loads((space.corpus / "manifest.json").read_text())["splits"]["test"]
    assert split["words"] == manifest["tokens"]
    assert split["tokens"] == manifest["tokens"] + manifest["sentences"]
    assert split["oov_words"] == manifest["oov_tokens"] > 0
    assert split["oov_rate"] == manifest["oov_tokens"] / manifest["tokens"]
    assert split["documents"] == 11
    assert split["vocabulary_size"] == 98
    assert split["perplexity"] == math.exp(split["nll"] / split["tokens"])
    assert split["model"] == "ccdclm"
    assert split["step"] == restore_run(space.run).step
    assert split["matmul_precision"] == "highest"
    assert "END" in split["counting_rule"]
    text = space.evaluate(f"--input={space.text['test']}", "--matmul_precision=high")
    assert text["matmul_precision"] == "high"
    for key in ("tokens", "words", "oov_words", "sentences", "documents"):
        assert text[key] == split[key]
    assert text["nll"] == pytest.approx(split["nll"], rel=TOLERANCE)


def test_two_devices_need_neither_configuration_file_nor_this_directory(space, tmp_path):
    run = tmp_path / "moved"
    shutil.copytree(space.run, run)
    # What training read is out of reach: the run alone and text are enough.
    config = space.config.rename(tmp_path / "gone")
    try:
        output = tmp_path / "result.json"
        command = ["evaluate", "--workdir=moved", f"--metrics={output}"]
        done = launch(*command, cwd=tmp_path, **TWO_DEVICES)
    finally:
        config.rename(space.config)
    result = json.loads(output.read_text())
    expected = space.evaluate()
    assert result["nll"] == pytest.approx(expected["nll"], rel=TOLERANCE)
    for key in ("tokens", "words", "oov_words", "sentences", "documents"):
        assert result[key] == expected[key]
    assert f"{result['perplexity']:.4f}" in done.stdout
