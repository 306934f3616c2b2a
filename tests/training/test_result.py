"""What a run that has ended for good leaves, and what is refused in its place."""

import dataclasses
import json
import math

import pytest

from dclm_jax import files
from dclm_jax.errors import InputError
from dclm_jax.training.workdir import Result, read_result

GOOD = {"ending": "finished", "step": 12, "best_step": 10, "best_perplexity": 7.5}


@pytest.mark.parametrize("perplexity", [7.123456789012345, math.inf])
def test_a_result_is_read_as_it_was_written(tmp_path, perplexity):
    assert read_result(tmp_path) is None
    result = Result("early_stop", 12, 10, perplexity)
    files.write_json(tmp_path / "result.json", dataclasses.asdict(result))
    assert read_result(tmp_path) == result
    assert "Infinity" not in (tmp_path / "result.json").read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        (
            json.dumps({**GOOD, "more": 1}),
            "'more' is unknown; expected a JSON object of",
        ),
        (
            json.dumps({**GOOD, "ending": "interrupted"}),
            "'interrupted'; expected finished or",
        ),
    ],
)
def test_anything_else_is_refused(tmp_path, text, message):
    (tmp_path / "result.json").write_text(text)
    with pytest.raises(InputError) as error:
        read_result(tmp_path)
    assert str(error.value).startswith(f"{tmp_path / 'result.json'}: ")
    assert message in str(error.value)
