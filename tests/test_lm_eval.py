"""Tasks of local files in the lm-evaluation-harness, with a run as the model."""

import importlib
import json
import logging
import math
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import dclm_jax
from dclm_jax.errors import InputError
from tests.launch.support import REPOSITORY, copy_run, environment, launch


@pytest.fixture
def harness(monkeypatch, tmp_path) -> Any:
    """The harness, which knows our model and has no network."""
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    # Packages that it imports warn of one another.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("lm_eval")
        importlib.import_module("dclm_jax.lm_eval")
        yield importlib.import_module("lm_eval")


@pytest.fixture(scope="module")
def runs(uninterrupted, tmp_path_factory) -> dict[str, Path]:
    """A run that reads lines, and one that reads raw text."""
    folder = tmp_path_factory.mktemp("raw")
    raw = copy_run(uninterrupted, folder / "run", text_format="prose")
    return {"lines": uninterrupted, "raw": raw}


def write_task(folder: Path, name: str, records: list[dict[str, Any]], config: str) -> None:
    """A task whose documents are JSON lines."""
    data = folder / f"{name}.jsonl"
    data.write_text("".join(json.dumps(record) + "\n" for record in records))
    source = f"dataset_path: json\ndataset_kwargs: {{data_files: {{test: {data}}}}}\n"
    (folder / f"{name}.yaml").write_text(f"task: {name}\ntest_split: test\n{source}{config}")


def evaluate(harness, run: Path, folder: Path, tasks: list[str], **options) -> dict[str, Any]:
    manager = importlib.import_module("lm_eval.tasks").TaskManager(include_path=str(folder))
    return harness.simple_evaluate(
        model="dclm_jax",
        model_args=f"workdir={run}",
        tasks=tasks,
        task_manager=manager,
        bootstrap_iters=0,
        log_samples=True,
        **options,
    )


def results(evaluated: dict[str, Any], task: str) -> dict[str, float]:
    named = evaluated["results"][task].items()
    return {name.removesuffix(",none"): value for name, value in named}


def responses(evaluated: dict[str, Any], task: str) -> list[Any]:
    """What the model answered to each request of each item."""
    return [[answer for (answer,) in sample["resps"]] for sample in evaluated["samples"][task]]


ROLLING = 'output_type: loglikelihood_rolling\ndoc_to_text: ""\n'


@pytest.mark.parametrize("kind", ["lines", "raw"])
def test_nats_are_those_of_evaluate(harness, runs, kind, tmp_path, caplog):
    words = dclm_jax.restore(runs[kind]).vocabulary.entries[3:]
    if kind == "lines":
        sentences = [[" ".join(words[:n]), "unheard", " ".join(words[n:])] for n in range(1, 6)]
        records: list[Any] = [{"sentences": document} for document in sentences]
        target = "doc_to_target: \"{{sentences | join('\\n')}}\"\n"
    else:
        records = [{"text": f"{words[n]} unheard. The {words[n + 1]}?\n\nIt"} for n in range(5)]
        target = 'doc_to_target: "{{text}}"\n'
    write_task(tmp_path, "texts", records, ROLLING + target)
    evaluated = evaluate(harness, runs[kind], tmp_path, ["texts"])

    file, json_file = tmp_path / "texts.jsonl", tmp_path / "measured.json"
    launch(
        "evaluate",
        f"--workdir={runs[kind]}",
        f"--input={file}",
        f"--metrics={json_file}",
        quiet=False,
    )
    expected = json.loads(json_file.read_text())
    nats = -math.fsum(answer for (answer,) in responses(evaluated, "texts"))
    assert nats == pytest.approx(expected["nll"], rel=1e-6)
    per_word = results(evaluated, "texts")["word_perplexity"]
    if kind == "lines":
        assert per_word == pytest.approx(2 ** expected["bits_per_word"], rel=1e-6)
    else:
        count = sum(len(record["text"].split()) for record in records)
        assert per_word == pytest.approx(math.exp(expected["nll"] / count), rel=1e-6)
    text = "\n".join(records[0].get("sentences", [])) or records[0]["text"]
    size = len(text.encode())
    of_bytes = results(evaluate(harness, runs[kind], tmp_path, ["texts"], limit=1), "texts")
    (answer,) = responses(evaluated, "texts")[0]
    assert of_bytes["byte_perplexity"] == pytest.approx(math.exp(-answer / size), rel=1e-6)


def test_multiple_choice_chooses_the_likeliest_continuation(harness, runs, tmp_path, caplog):
    lm = dclm_jax.restore(runs["lines"])
    words = lm.vocabulary.entries[3:]
    items = [
        {"before": [], "begun": words[:2], "choices": [words[3:5], words[5:6], ["unheard"]]},
        {"before": [words[2:4]], "begun": words[6:7], "choices": [words[7:8], words[8:10]]},
    ]
    expected, records = [], []
    for item in items:
        lengths = len(item["before"]), len(item["begun"])
        log_probs = []
        for choice in item["choices"]:
            # The scores of all targets before the END that the text does not show.
            (score,) = lm.score([[*map(list, item["before"]), [*item["begun"], *choice]]])
            log_probs.append(sum(score.sentences[lengths[0]].log_probs[lengths[1] : -1]))
        expected.append(log_probs)
        lines = [*item["before"], item["begun"]]
        context = "\n".join(map(" ".join, lines))
        best = log_probs.index(max(log_probs))
        choices = list(map(" ".join, item["choices"]))
        records.append({"context": context, "choices": choices, "answer": best})
    config = (
        'output_type: multiple_choice\ndoc_to_text: "{{context}}"\n'
        'doc_to_choice: "{{choices}}"\ndoc_to_target: answer\n'
    )
    write_task(tmp_path, "right", records, config)
    wrong = [{**record, "answer": 1 - min(record["answer"], 1)} for record in records]
    write_task(tmp_path, "wrong", wrong, config)
    evaluated = evaluate(harness, runs["lines"], tmp_path, ["right", "wrong"])
    assert [results(evaluated, task)["acc"] for task in ("right", "wrong")] == [1, 0]
    for answers, log_probs in zip(responses(evaluated, "right"), expected, strict=True):
        assert [log_prob for log_prob, _ in answers] == pytest.approx(log_probs, rel=1e-5)


def test_greedy_words_are_generated_and_are_right(harness, runs, tmp_path, caplog):
    """The likeliest word or END is greedy and generated, and no other word is."""
    lm = dclm_jax.restore(runs["lines"])
    words = lm.vocabulary.entries[3:]
    contexts = [words[0], f"{words[0]} {words[1]}", f"{words[1]}\n{words[2]} {words[3]}"]
    records = []
    for context in contexts:
        *before, begun = context.split("\n")
        (best, _), (other, _), *_ = lm.read(before).next_words(begun)
        targets = ("\n" if word == "<END>" else f" {word}" for word in (best, other))
        records.append({"context": context, **dict(zip(("best", "other"), targets, strict=True))})
    for name in ("best", "other"):
        config = f"output_type: loglikelihood\ndoc_to_text: context\ndoc_to_target: {name}\n"
        write_task(tmp_path, name, records, f"{config}metric_list: [{{metric: acc}}]\n")
    evaluated = evaluate(harness, runs["lines"], tmp_path, ["best", "other"])
    assert results(evaluated, "best")["acc"] == 1
    assert results(evaluated, "other")["acc"] == 0


def test_answers_of_unknown_words_are_named(harness, runs, tmp_path, caplog):
    word = dclm_jax.restore(runs["lines"]).vocabulary.entries[3]
    config = (
        'output_type: multiple_choice\ndoc_to_text: ""\n'
        'doc_to_choice: "{{choices}}"\ndoc_to_target: 0\n'
    )
    chance = [{"choices": ["unheard", "absent"]}, {"choices": [f"{word} x", f"{word} y"]}]
    write_task(tmp_path, "chance", chance, config)
    write_task(tmp_path, "known", [{"choices": [" ".join([word] * 9), "absent"]}], config)
    write_task(
        tmp_path,
        "last",
        [{"word": "unheard"}, {"word": word}],
        f"output_type: loglikelihood\ndoc_to_text: {word}\ndoc_to_target: ' {{{{word}}}}'\n",
    )
    with caplog.at_level(logging.WARNING, "dclm_jax"):
        evaluate(harness, runs["lines"], tmp_path, ["chance", "known", "last"])
    messages = [
        record.getMessage()
        for record in caplog.records
        if record.name == "dclm_jax" and record.module == "lm_eval"
    ]
    equal = "items the answers are equal for the model, because they differ only in words outside"
    assert len(messages) == 3
    assert messages[0].startswith(f"chance: in 2 of 2 {equal}")
    likeliest = "items the likeliest answer has more OOV words than another; the probability of"
    assert messages[1].startswith(f"known: in 1 of 1 {likeliest}")
    assert messages[2].startswith(f"last: in 1 of 2 {equal}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "model_args: workdir is missing; add --model_args workdir=RUN"),
        ({"workdri": "a"}, "model_args: 'workdri' is unknown; did you mean 'workdir'?"),
        ({"workdir": "a", "batch_size": "x"}, "batch_size is 'x'; expected a whole number"),
        ({"workdir": "absent/run"}, "absent/run"),
        ({"workdir": "RUN", "matmul_precision": "half"}, "half"),
    ],
)
def test_bad_arguments_are_refused(harness, runs, arguments, message):
    module = importlib.import_module("dclm_jax.lm_eval")
    arguments = {
        name: str(runs["lines"]) if value == "RUN" else value for name, value in arguments.items()
    }
    with pytest.raises(InputError) as error:
        module.HarnessModel(**arguments, device="cuda:0")
    assert message in str(error.value)


def test_tasks_that_generate_text_are_refused(harness, runs, tmp_path, caplog):
    config = "output_type: generate_until\ndoc_to_text: text\ndoc_to_target: text\n"
    write_task(tmp_path, "written", [{"text": "it"}], f"{config}metric_list: [{{metric: acc}}]\n")
    with pytest.raises(InputError, match="the task written generates text"):
        evaluate(harness, runs["lines"], tmp_path, ["written"])


def run_module(*arguments: str, code: str = "", **variables: str):
    program = f"{code}\nimport runpy; runpy.run_module('dclm_jax.lm_eval', run_name='__main__')"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=REPOSITORY,
        env=environment(**variables),
        capture_output=True,
        text=True,
    )


def test_the_command_ends_in_one_line_for_bad_input(harness, runs, tmp_path):
    write_task(tmp_path, "texts", [{"text": "it"}], ROLLING + 'doc_to_target: "{{text}}"\n')
    arguments = ["--model", "dclm_jax", "--include_path", str(tmp_path), "--tasks", "texts"]
    done = run_module(*arguments, "--model_args", "workdir=absent/run")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: absent/run")
    done = run_module(*arguments, "--model_args", f"workdir={runs['lines']}")
    assert done.returncode == 0 and "word_perplexity" in done.stdout, done.stderr


def test_a_missing_harness_is_one_line():
    done = run_module(code="import sys; sys.modules['lm_eval'] = None")
    message = "error: the model dclm_jax of the lm-evaluation-harness needs lm_eval: pip install"
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{message} 'dclm_jax[lm-eval]'\n"
