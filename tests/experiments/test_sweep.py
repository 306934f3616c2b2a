"""Grids: their text, their cells, what is kept of them, the best of the finished cells."""

import csv
import itertools
import json
import math
import re
from pathlib import Path

import jax
import pytest
from ml_collections import ConfigDict

from dclm_jax import files, models
from dclm_jax.data.prepare import PrepareOptions, prepare
from dclm_jax.errors import InputError
from dclm_jax.experiments import sweep
from dclm_jax.experiments.sweep import Cell, Outcome, Sweep
from dclm_jax.tables import separated_columns
from dclm_jax.training.config import default_config, flat, validated
from dclm_jax.training.workdir import Result
from tests.training.support import write_result


@pytest.fixture
def config(tmp_path) -> ConfigDict:
    """A configuration whose corpus is there, with a vocabulary of three words and three tokens."""
    text = tmp_path / "text.txt"
    text.write_text("a b c\nb c\n\nc\n")
    sources = {split: str(text) for split in ("train", "valid")}
    prepare(
        sources, tmp_path / "corpus", options=PrepareOptions(vocab_size=3), report=lambda line: None
    )
    config = default_config("ccdclm")
    config.update_from_flattened_dict({"data.directory": str(tmp_path / "corpus")})
    return config.lock()


def plan(text, config, directory=Path("sweep")) -> Sweep:
    return Sweep(directory, config, sweep.parse_grid(text, config))


def test_values_have_the_types_of_their_keys():
    text = " model.hidden_dim = 32 , 64;optimizer.learning_rate=1,1e-3;model.tie_embeddings=true,0"
    grid = sweep.parse_grid(text + ";model.cell=gru; data.directory=x=y", default_config())
    assert grid == {
        "model.hidden_dim": [32, 64],
        "optimizer.learning_rate": [1.0, 0.001],
        "model.tie_embeddings": [True, False],
        "model.cell": ["gru"],
        "data.directory": ["x=y"],
    }
    assert [type(values[0]) for values in grid.values()] == [int, float, bool, str, str]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "found ''; expected --grid='KEY=VALUE,VALUE;KEY=VALUE,VALUE'"),
        ("model.hidden_dim", "found 'model.hidden_dim'; expected --grid='KEY="),
        ("training.seed=1;", "found ''; expected"),
        ("=1", "found '=1'; expected"),
        ("training.seed=", "found an empty value in 'training.seed='; expected"),
        ("training.seed=1,,2", "found an empty value in 'training.seed=1,,2'; expected"),
        ("training.seed=1;training.seed=3", "training.seed occurs twice; write every key"),
        ("model.hiden_dim=3", "unknown configuration key 'model.hiden_dim'; did you mean 'model.h"),
        ("model=3", "unknown configuration key 'model'"),
        ("model.hidden_dim=32,3x", "model.hidden_dim has the value '3x'; expected a value of type"),
        (
            "model.hidden_dim=3.5",
            "model.hidden_dim has the value '3.5'; expected a value of type i",
        ),
        (
            "model.remat=perhaps",
            "model.remat has the value 'perhaps'; expected a value of type boo",
        ),
        (
            "model.dropout=0.1,0.2,0.10",
            "model.dropout has the value 0.10 twice; write every value",
        ),
    ],
)
def test_text_that_is_no_grid(text, message):
    with pytest.raises(InputError, match=f"^--grid: {re.escape(message)}"):
        sweep.parse_grid(text, default_config())


def test_a_key_of_no_single_value_cannot_vary():
    config = ConfigDict({"data": {"weights": (1, 2)}})
    with pytest.raises(InputError, match=r"--grid: data.weights is \(1, 2\); choose a key whose"):
        sweep.parse_grid("data.weights=1", config)


def test_cells_are_all_choices_and_say_so_in_their_names():
    cells = sweep.cells({"model.hidden_dim": [32, 48], "model.embedding_dim": [8, 16]})
    assert [cell.name for cell in cells] == [
        "hidden_dim=32,embedding_dim=8",
        "hidden_dim=32,embedding_dim=16",
        "hidden_dim=48,embedding_dim=8",
        "hidden_dim=48,embedding_dim=16",
    ]
    assert cells[1].values == {"model.hidden_dim": 32, "model.embedding_dim": 16}


def test_keys_of_one_short_name_keep_their_sections():
    cells = sweep.cells({"model.name": ["rlm"], "optimizer.name": ["sgd"]})
    assert [cell.name for cell in cells] == ["model.name=rlm,optimizer.name=sgd"]


def test_names_are_those_of_files_and_differ():
    values = ["a/b", "a b", "a%Ab", "../a", "ä", "x" * 400, "x" * 401]
    names = [cell.name for cell in sweep.cells({"data.directory": values})]
    assert len(set(names)) == len(values)
    for name in names:
        assert re.fullmatch(r"directory=[A-Za-z0-9_.,=+-]+-[0-9a-f]{8}", name)
        assert len(name) < 200


def test_the_configuration_of_a_cell_follows_references_and_leaves_the_given_one(config):
    with config.unlocked():
        config.model.embedding_dim = config.model.get_oneway_ref("hidden_dim")
    before = config.to_dict()
    changed = sweep.configured(config, {"model.hidden_dim": 5, "optimizer.learning_rate": 0.5})
    values = flat(changed.to_dict())
    assert values["model.hidden_dim"] == values["model.embedding_dim"] == 5
    assert values["optimizer.learning_rate"] == 0.5
    assert config.to_dict() == before


def test_checked_cells_have_the_parameters_of_their_models(config):
    planned = plan("model.hidden_dim=3,5;model.num_layers=1,2", config)
    parameters = planned.parameters
    assert list(parameters) == [cell.name for cell in planned.cells]
    for cell in planned.cells:
        options = validated(sweep.configured(config, cell.values)).model
        model = models.create(options.pop("name"), vocab_size=6, **options)
        leaves = jax.tree.leaves(model.init(jax.random.key(0)))
        assert parameters[cell.name] == sum(leaf.size for leaf in leaves)


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ("model.dropout=0.1,2", "dropout=2.0: "),
        (
            "optimizer.name=sgd,adagard",
            "name=adagard: optimizer.name is 'adagard'; did you mean 'adagrad'?",
        ),
        (
            "data.segment_length=5,-1",
            "segment_length=-1: configuration: data.segment_length is -1; expected a whole",
        ),
        ("data.directory=absent", "directory=absent: absent"),
        ("model.dropout=1.0;model.hidden_dim=4", "dropout=1.0,hidden_dim=4: "),
    ],
)
def test_a_cell_that_cannot_be_trained_is_named(config, grid, message):
    with pytest.raises(InputError, match=f"^cell {re.escape(message)}"):
        assert plan(grid, config).parameters


def finish(planned: Sweep, cell: Cell, result: Result) -> Path:
    """Writes the configuration and the result of a cell, without metrics."""
    folder = planned.workdir(cell)
    folder.mkdir(parents=True)
    config = sweep.configured(planned.config, cell.values)
    files.write_json(folder / "config.json", config.to_dict())
    write_result(folder, result)
    return folder


def test_a_finished_cell_of_another_configuration_is_refused(config, tmp_path):
    grid = {"model.hidden_dim": [32], "model.embedding_dim": [8]}
    planned = Sweep(tmp_path, config, grid)
    (cell,) = planned.cells
    folder = finish(planned, cell, Result("finished", 12, 10, 7.5))
    # Cells set the keys of the grid, and training.log_every has no effect on results.
    same = sweep.configured(config, {"model.hidden_dim": 7, "training.log_every": 3})
    with pytest.raises(InputError, match="metrics.jsonl: no such file"):
        Sweep(tmp_path, same, grid).outcomes()
    other = sweep.configured(config, {"training.seed": 1, "model.num_layers": 3})
    message = (
        f"{folder} has a run with a different configuration (model.num_layers: 2 saved, 3 given; "
        "1 more differences); choose a new --workdir"
    )
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        Sweep(tmp_path, other, grid).outcomes()
    assert Sweep(tmp_path, other, {**grid, "model.embedding_dim": [16]}).outcomes() == []


def test_a_sweep_keeps_out_of_the_workdir_of_a_run(config, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match="has a run; choose a --workdir only for the sweep"):
        Sweep(tmp_path, config, {"model.hidden_dim": [3]})


def test_the_outcome_of_a_cell_is_its_result_and_its_last_metrics(config, tmp_path):
    planned = plan("model.hidden_dim=3", config, tmp_path)
    (cell,) = planned.cells
    assert planned.outcome(cell) is None and planned.outcomes() == []
    result = Result("finished", 12, 10, 7.5)
    folder = finish(planned, cell, result)
    with pytest.raises(InputError, match="metrics.jsonl: no such file"):
        planned.outcome(cell)
    lines = [
        {"kind": kind, "step": step, "seconds": step / 2, "tokens": 30 * step, "perplexity": 9.0}
        for kind, step in (("train", 1), ("valid", 12))
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    expected = Outcome(cell, planned.parameters[cell.name], result, 6.0, 60.0)
    assert planned.outcomes() == [expected]


def outcomes(*perplexities):
    cells = sweep.cells({"model.hidden_dim": [3, 40], "optimizer.learning_rate": [0.1, 1e-5]})
    return [
        Outcome(cell, 1000 * (index + 1), Result("finished", 12, 10, perplexity), 1.5, 12345.6)
        for index, (cell, perplexity) in enumerate(zip(cells, perplexities, strict=True))
    ]


def test_the_lowest_perplexity_is_the_best_and_of_equal_ones_the_first(monkeypatch, config):
    for order in itertools.permutations([7.5, 8.5, math.inf, 7.5]):
        finished = {outcome.cell.name: outcome for outcome in outcomes(*order)}
        planned = plan("model.hidden_dim=3,40;optimizer.learning_rate=0.1,1e-5", config)
        monkeypatch.setattr(Sweep, "outcome", lambda self, cell, of=finished: of[cell.name])
        best_first = planned.outcomes()
        perplexities = [outcome.result.best_perplexity for outcome in best_first]
        assert perplexities == [7.5, 7.5, 8.5, math.inf]
        assert best_first[0].cell == planned.cells[order.index(7.5)]


def test_the_table_marks_the_best():
    worse, best, worst, bad = outcomes(107.256, 8.5, math.inf, 1234.5)
    table = sweep.table([best, worse, bad, worst]).text()
    _, header, _, *rows = map(str.split, table.splitlines())
    columns = (
        "hidden_dim learning_rate parameters validation perplexity best step seconds targets/s"
    )
    assert " ".join(header) == columns
    assert rows[0] == "best 3 1e-05 2,000 8.50 10 1.5 12,346".split()
    assert [row[3] for row in rows[1:]] == ["107.26", "1234.50", "inf"]


def test_the_file_of_the_table_has_all_digits(tmp_path):
    first, *others = outcomes(7.123456789012345, 8.5, 9.5, 10.5)
    named = first._replace(cell=Cell("NA", first.cell.values))
    numbers = sweep.table([first, named, *others[1:]]).numbers
    (tmp_path / "sweep.csv").write_text(separated_columns(numbers))
    with (tmp_path / "sweep.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4
    cell, *values = rows[0].values()
    assert cell == "hidden_dim=3,learning_rate=0.1"
    assert values == "3 0.1 1000 7.123456789012345 10 finished 12 1.5 12345.6".split()
    assert list(rows[0])[:5] == [
        *("cell", "model.hidden_dim", "optimizer.learning_rate", "parameters", "perplexity")
    ]
    assert rows[1] == rows[0] | {"cell": "\\NA"}
