"""What finished runs left, on small hand-written result files: the quick table and its curves."""

import dataclasses
import json
import math

import numpy as np
import pytest

from dclm_jax.coherence.results import Coherence, FurtherTests, Insertion, OfLength
from dclm_jax.errors import InputError
from dclm_jax.experiments import pictures, plots, summary
from dclm_jax.experiments.runs import read_runs

CONFIG = {"data": {"directory": "data"}}


def valid(step, tokens, seconds, perplexity):
    return {
        "step": step,
        "kind": "valid",
        "epoch": 0.5,
        "tokens": tokens,
        "seconds": seconds,
        "loss": 5.0,
        "perplexity": perplexity,
    }


def train(step, tokens, seconds):
    # The perplexity of steps that were skipped may be no number.
    line = {"step": step, "kind": "train", "tokens": tokens, "seconds": seconds}
    return line | {"perplexity": math.nan}


TRAIN = json.dumps(train(5, 500, 60.0)) + "\n"
VALID = json.dumps(valid(5, 500, 60.0, -1.0)) + "\n"


def of_step(path, step):
    path.write_text(json.dumps(json.loads(path.read_text()) | {"step": step}))


@pytest.mark.parametrize("name", ["perplexity", "coherence"])
def test_results_of_a_model_of_before_are_blank_and_told(tmp_path, name):
    folder = write_run(tmp_path / "run")
    for kind in ("perplexity", "coherence"):
        of_step(folder / f"{kind}.json", 20)
    (run,) = read_runs([folder])
    assert None not in (run.evaluation, run.coherence) and not run.missing
    of_step(folder / f"{name}.json", 10)
    (run,) = read_runs([folder])
    (told,) = run.missing
    assert told.startswith(f"{name}.json is of step 10, and the best model of step 20; `python -m")
    left = {"perplexity": run.coherence, "coherence": run.evaluation}[name]
    assert [run.evaluation, run.coherence].count(None) == 1 and left is not None


def test_further_tests_of_coherence_are_read_with_a_run(tmp_path):
    folder = write_run(tmp_path / "run")
    path = folder / "coherence.json"
    assert read_runs([folder])[0].tests == FurtherTests()
    value = json.loads(path.read_text())
    block = value | {"block": 4, "fixed": value}
    insertion = Insertion(0.2, 0.4, 0.1, 0.3, 5, 24, 99)
    lengths = [{"least": 21, "most": None, "documents": 0, "accuracy": None}]
    further = {"blocks": [value, block], "insertion": insertion.to_json(), "by_length": lengths}
    path.write_text(json.dumps(value | further))
    (run,) = read_runs([folder])
    assert [one.block for one in run.tests.blocks] == [1, 4]
    assert run.tests.blocks[0] == run.coherence and run.tests.insertion == insertion
    assert run.tests.by_length == [OfLength(21, None, 0, None)] and run.tests.swaps is None
    path.write_text(json.dumps(value | {"blocks": [value, {"kind": "fixed"}]}))
    with pytest.raises(InputError, match=r"blocks\[1\].mean is missing"):
        read_runs([folder])


def test_a_run_that_was_not_evaluated_yet_is_blank(tmp_path):
    whole = write_run(tmp_path / "whole", "ccdclm")
    begun = write_run(tmp_path / "begun", metrics=[train(5, 500, 60.0)])
    for kind in ("perplexity", "coherence"):
        (begun / f"{kind}.json").unlink()
    run, _ = read_runs([begun, whole])
    assert (run.curve, run.development, run.seconds) == ([], None, None)
    assert run.missing[0].startswith("no evaluation in training yet")


def write_run(folder, name="rnnlm", perplexity=200.0, mean=0.5, metrics=None, tokens=1234):
    folder.mkdir(parents=True)
    if metrics is None:
        metrics = [train(5, 500, 60.0), valid(10, 1000, 120.0, 300.0), valid(20, 2000, 240.0, 210)]
    (folder / "config.json").write_text(json.dumps(CONFIG | {"model": {"name": name}}))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in metrics))
    (folder / "perplexity.json").write_text(
        json.dumps(
            {
                "perplexity": perplexity,
                "tokens": tokens,
                "vocabulary_size": 10003,
                "oov_rate": 0.0321,
                "known_perplexity": 212.5,
                "parameters": 1234567,
            }
        )
    )
    (folder / "coherence.json").write_text(
        json.dumps(dataclasses.asdict(Coherence("fixed", mean, 0.01, 5, 5, 24, 99, 120, 0)))
    )
    return folder


def test_the_table_shows_every_run_by_value(tmp_path):
    first = write_run(tmp_path / "a")
    second = write_run(tmp_path / "b", "ccdclm", perplexity=180.456, mean=0.83256)
    assert summary.text(read_runs([first, second])).splitlines() == [
        "model   parameters  development perplexity  test perplexity  of known  coherence %  "
        "training minutes",
        "------  ----------  ----------------------  ---------------  --------  -----------  "
        "----------------",
        "rnnlm    1,234,567                  210.00 "
        "          200.00    212.50        50.00               4.0",
        "ccdclm   1,234,567                  210.00 "
        "          180.46    212.50        83.26               4.0",
        "Perplexity = exp(sum NLL / targets) over 1,234 targets (END counted, START not), "
        "vocabulary 10,003, OOV rate 3.21%.",
        "Coherence: log P(document) > log P(permutation), ties count half, 24 documents.",
    ]


def test_hyper_parameters_that_differ_are_columns(tmp_path):
    folders = [write_run(tmp_path / name) for name in ("a", "b", "c")]
    for folder, rate, seed in zip(folders, (0.1, 0.2, None), (0, 0, 7), strict=True):
        config = json.loads((folder / "config.json").read_text())
        config["model"]["hidden_dim"] = 64
        config["optimizer"] = {} if rate is None else {"learning_rate": rate}
        config["training"] = {"seed": seed, "log_every": seed}
        config["data"]["directory"] = str(folder)
        (folder / "config.json").write_text(json.dumps(config))
    header, *cells = summary.table(read_runs(folders)).cells
    assert header[:4] == ["model", "learning_rate", "seed", "parameters"]
    # The third has the rate that is the default.
    assert [line[1:3] for line in cells] == [["0.1", "0"], ["0.2", "0"], ["0.1", "7"]]


def test_perplexities_that_do_not_compare_are_told(tmp_path):
    names = ("rnnlm", "rnnslm", "standard_autoencoder")
    folders = [write_run(tmp_path / name, name) for name in names]
    _, about, (header, *cells) = summary.table(read_runs(folders))
    at = header.index("development perplexity")
    assert [line[at] for line in cells] == ["210.00", "210.00 (bags)", "210.00 (given a source)"]
    told = "Development perplexities of different corpora do not compare."
    assert told not in about
    config = json.loads((folders[0] / "config.json").read_text())
    config["data"]["directory"] = "elsewhere"
    (folders[0] / "config.json").write_text(json.dumps(config))
    assert told in summary.table(read_runs(folders)).about


def test_a_coherence_that_beginnings_give_away_is_warned_of(tmp_path):
    folder, kept = write_run(tmp_path / "run"), write_run(tmp_path / "kept", "ccdclm")
    for one, more in ((folder, {"first_sentence": 0.9}), (kept, {"keep_first": 1})):
        path = one / "coherence.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | more))
    _, about, (header, *cells) = summary.table(read_runs([folder, kept]))
    at = header.index("coherence %")
    assert [line[at] for line in cells] == ["50.00", "50.00 (first 1 kept)"]
    assert about.count("warning") == 1
    assert "rnnlm: warning: the first sentence gives documents away" in about


def test_runs_of_one_model_are_told_apart_by_their_folders(tmp_path):
    folders = [write_run(tmp_path / "small"), write_run(tmp_path / "large")]
    assert [run.label for run in read_runs(folders)] == list(map(str, folders))


def test_of_steps_repeated_after_a_kill_the_last_lines_count(tmp_path):
    metrics = [
        valid(10, 1000, 60.0, 400.0),
        valid(20, 2000, 130.0, 350.0),
        valid(20, 2000, 120.0, 340.0),
        valid(30, 3000, 150.0, 300.0),
    ]
    (run,) = read_runs([write_run(tmp_path / "run", metrics=metrics)])
    assert run.seconds == 150.0
    assert [(one.step, one.tokens, one.perplexity) for one in run.curve] == [
        (10, 1000, 400.0),
        (20, 2000, 340.0),
        (30, 3000, 300.0),
    ]


def test_a_line_that_is_still_being_written_is_left_out(tmp_path):
    folder = write_run(tmp_path / "run")
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"step": 30, "ki')
    assert len(read_runs([folder])[0].curve) == 2


def draw(runs, path):
    plots.plot(pictures.learning_curves(runs), path)


def test_the_picture_is_a_png_with_one_line_a_run(tmp_path):
    runs = read_runs([write_run(tmp_path / "a"), write_run(tmp_path / "b", "ccdclm")])
    target = tmp_path / "plots" / "curves.png"
    draw(runs, target)
    assert target.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")

    as_text = tmp_path / "curves.svg"
    draw(runs, as_text)
    svg = as_text.read_text()
    assert svg.count("<!-- rnnlm (best 210.0) -->") == 1
    assert svg.count("<!-- ccdclm (best 210.0) -->") == 1


def test_a_picture_format_that_does_not_exist_is_an_input_error(tmp_path):
    runs = read_runs([write_run(tmp_path / "a")])
    with pytest.raises(InputError, match="curves.xyz: cannot write the plot"):
        draw(runs, tmp_path / "curves.xyz")


@pytest.mark.parametrize(
    ("name", "columns", "writer"),
    [
        ("metrics.jsonl", ["development perplexity", "training minutes"], "launch.train"),
        ("perplexity.json", ["parameters", "test perplexity", "of known"], "launch.evaluate"),
        ("coherence.json", ["coherence %"], "launch.coherence"),
    ],
)
def test_a_missing_file_is_a_blank_and_named_with_what_fills_it(tmp_path, name, columns, writer):
    whole, folder = write_run(tmp_path / "whole", "ccdclm"), write_run(tmp_path / "run")
    (folder / name).unlink()
    _, about, (header, *cells) = summary.table(read_runs([folder, whole]))
    blank = [column for column, cell in zip(header, cells[0], strict=True) if not cell]
    assert blank == columns and "" not in cells[1]
    (told,) = [line for line in about.splitlines() if line.startswith("rnnlm: ")]
    assert told.startswith(f"rnnlm: no {name}")
    assert f"python -m {writer} --workdir={folder}" in told
    if name != "metrics.jsonl":
        assert f"--output={folder}/{name}`" in told


def test_a_result_of_many_unknown_words_is_told_and_one_of_before_is_blank(tmp_path):
    folder, before = write_run(tmp_path / "run"), write_run(tmp_path / "before", "ccdclm")
    evaluation = json.loads((folder / "perplexity.json").read_text())
    many = evaluation | {"oov_rate": 0.2065, "own_oov_rate": 0.051}
    (folder / "perplexity.json").write_text(json.dumps(many))
    del evaluation["known_perplexity"]
    (before / "perplexity.json").write_text(json.dumps(evaluation))
    _, about, (header, first, second) = summary.table(read_runs([folder, before]))
    assert (first[header.index("of known")], second[header.index("of known")]) == ("212.50", "")
    (told,) = [line for line in about.splitlines() if "warning" in line]
    assert told.startswith("rnnlm: warning: 20.65% of the words are unknown, 5.10% of those of")


def test_an_n_gram_model_is_not_trained_in_steps(tmp_path):
    folder = write_run(tmp_path / "kn5", "ngram")
    (folder / "metrics.jsonl").unlink()
    (run,) = read_runs([folder])
    assert (run.missing, run.curve, run.development, run.seconds) == ([], [], None, None)


def test_runs_without_any_result_are_a_table(tmp_path):
    folder = write_run(tmp_path / "run")
    for name in ("perplexity", "coherence"):
        (folder / f"{name}.json").unlink()
    header, cells = summary.table(read_runs([folder])).cells
    assert dict(zip(header, cells, strict=True)) == {
        **{"model": "rnnlm", "parameters": "", "development perplexity": "210.00"},
        **{"test perplexity": "", "of known": "", "coherence %": "", "training minutes": "4.0"},
    }


def test_one_evaluation_is_no_learning_curve(tmp_path):
    one = read_runs([write_run(tmp_path / "a", metrics=[valid(10, 1000, 60.0, 400.0)])])
    told = plots.draw(pictures.learning_curves(one), tmp_path / "curves.png")
    assert told == f"{tmp_path / 'curves.png'}: not drawn: a single point is no plot"
    assert not (tmp_path / "curves.png").exists()
    two = read_runs([tmp_path / "a", write_run(tmp_path / "b", "ccdclm")])
    told = plots.draw(pictures.learning_curves(two), tmp_path / "curves.png")
    assert told == f"Learning curves: {tmp_path / 'curves.png'}"
    assert (tmp_path / "curves.png").exists()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("config.json", "{}", "config.json: expected the model's name"),
        (
            "perplexity.json",
            "[1]",
            "perplexity.json: it is .*; expected a JSON object",
        ),
        ("perplexity.json", '{"parameters": null}', "parameters is None; expected a whole number"),
        ("coherence.json", "{", "coherence.json: not JSON"),
        (
            "coherence.json",
            '{"kind": "fixed", "mean": "high"}',
            "mean is 'high'; expected a num",
        ),
        ("metrics.jsonl", TRAIN + "{oops\n", "metrics.jsonl:2: not JSON"),
        ("metrics.jsonl", TRAIN * 2 + VALID, "metrics.jsonl:3: perplexity is -1.0; expected a num"),
        ("metrics.jsonl", "", "holds no line; the run has not trained yet"),
    ],
)
def test_broken_files_are_input_errors(tmp_path, name, text, message):
    folder = write_run(tmp_path / "run")
    (folder / name).write_text(text)
    with pytest.raises(InputError, match=message):
        read_runs([folder])


def test_other_wrong_input(tmp_path):
    with pytest.raises(InputError, match="nowhere holds no run: config.json is missing"):
        read_runs([tmp_path / "nowhere"])
    folders = [write_run(tmp_path / "a"), write_run(tmp_path / "b", "ccdclm", tokens=99)]
    with pytest.raises(InputError, match="rnnlm was scored with 1,234 targets, ccdclm with 99"):
        read_runs(folders)


def measured(step, tokens, perplexity):
    return train(step, tokens, 1.0) | {"perplexity": perplexity}


def test_the_training_curve_is_what_was_measured_between_evaluations(tmp_path):
    """By hand: (100 ln 8 + 300 ln 2) / 400 nats; a killed run has said steps 15 and 20 twice, and
    of steps 21 to 30 nothing is a number."""
    metrics = [
        measured(5, 100, 8.0),
        measured(10, 400, 2.0),
        valid(10, 400, 60.0, 400.0),
        measured(15, 500, 999.0),
        valid(20, 600, 90.0, 999.0),
        measured(15, 500, 3.0),
        measured(20, 600, 5.0),
        valid(20, 600, 90.0, 340.0),
        measured(25, 700, math.nan),
        measured(30, 800, math.inf),
        valid(30, 800, 150.0, 300.0),
    ]
    (run,) = read_runs([write_run(tmp_path / "run", metrics=metrics)])
    tokens, perplexities = zip(*run.training, strict=True)
    assert tokens == (400, 600)
    assert perplexities == pytest.approx([(8**100 * 2**300) ** (1 / 400), math.sqrt(15)])


def test_the_training_curve_is_drawn_beside_the_development_curve(tmp_path, monkeypatch):
    metrics = [measured(5, 10**6, 250.0), valid(10, 10**6, 1.0, 300.0)]
    metrics += [measured(15, 3 * 10**6, 150.0), valid(20, 3 * 10**6, 2.0, 210.0)]
    runs = read_runs(
        [write_run(tmp_path / name, name, metrics=metrics) for name in ("rnnlm", "ccdclm")]
    )
    figures = []
    monkeypatch.setattr(plots, "save", lambda figure, path: figures.append(figure))
    draw(runs, tmp_path / "curves.png")
    (axes,) = figures[0].axes
    lines = axes.get_lines()
    assert len(lines) == 4
    for solid, dashed in (lines[:2], lines[2:]):
        assert (solid.get_linestyle(), dashed.get_linestyle()) == ("-", "--")
        assert solid.get_color() == dashed.get_color()
        assert list(solid.get_xdata()) == list(dashed.get_xdata()) == [1.0, 3.0]
        np.testing.assert_allclose(solid.get_ydata(), [300, 210])
        np.testing.assert_allclose(dashed.get_ydata(), [250, 150])
    assert lines[0].get_color() != lines[2].get_color()
    names = [text.get_text() for text in figures[0].legends[0].get_texts()]
    assert names == ["rnnlm (best 210.0)", "ccdclm (best 210.0)"]
    assert "dashed in training" in axes.get_ylabel()
