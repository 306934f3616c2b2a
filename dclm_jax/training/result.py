"""How a run ended, kept as WORKDIR/result.json from the end of the run on."""

import dataclasses
import json
from pathlib import Path

from dclm_jax.errors import InputError
from dclm_jax.evaluation import outputs

FILE = "result.json"
FINAL_ENDINGS = ("finished", "early_stop")


@dataclasses.dataclass(frozen=True)
class Result:
    """How a call of `train` ended: finished, early_stop or interrupted.

    step: of the last step made.
    best_step, best_perplexity: of the best evaluation on the development set.
    """

    ending: str
    step: int
    best_step: int
    best_perplexity: float


def forget_result(workdir: Path) -> None:
    """Removes what an earlier call of `train` left: the run goes on.

    Raises:
      InputError: it cannot be removed.
    """
    try:
        (workdir / FILE).unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{workdir / FILE}: cannot be removed: {error.strerror}") from error


def keep_result(workdir: Path, result: Result) -> None:
    """Writes the result of a run that has ended for good; of an interrupted one nothing is kept.

    Raises:
      InputError: the file cannot be written.
    """
    if result.ending in FINAL_ENDINGS:
        outputs.write_json(workdir / FILE, dataclasses.asdict(result))


def read_result(workdir: Path) -> Result | None:
    """The result of a run that has ended for good; None while it has not.

    Raises:
      InputError: the file cannot be read, or holds something else.
    """
    path = workdir / FILE
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    names = [field.name for field in dataclasses.fields(Result)]
    if not isinstance(values, dict) or sorted(values) != sorted(names):
        raise InputError(f"{path}: expected a JSON object of {', '.join(names)}")
    if values["ending"] not in FINAL_ENDINGS:
        raise InputError(
            f"{path}: ending is {values['ending']!r}; expected one of {', '.join(FINAL_ENDINGS)}"
        )
    for name in ("step", "best_step"):
        if type(values[name]) is not int or values[name] < 0:
            raise InputError(f"{path}: {name} is {values[name]!r}; expected a number of steps")
    if type(values["best_perplexity"]) not in (int, float) or not values["best_perplexity"] > 0:
        raise InputError(
            f"{path}: best_perplexity is {values['best_perplexity']!r}; expected more than 0"
        )
    return Result(**values)
