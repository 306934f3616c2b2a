"""How a run ended, kept as WORKDIR/result.json from the end of the run on."""

import dataclasses
from pathlib import Path

from dclm_jax import files
from dclm_jax.errors import InputError, shown

FILE = "result.json"
FINAL_ENDINGS = ("finished", "early_stop")


@dataclasses.dataclass(frozen=True)
class Result:
    """How a call of `train` ended: finished, early_stop or interrupted.

    step: of the last step made.
    best_step, best_perplexity: of the best evaluation on the development set.
    """

    ending: str
    step: files.Count
    best_step: files.Count
    best_perplexity: files.Positive


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
        files.write_json(workdir / FILE, dataclasses.asdict(result))


def read_result(workdir: Path) -> Result | None:
    """The result of a run that has ended for good; None while it has not.

    Raises:
      InputError: the file cannot be read, or holds something else.
    """
    path = workdir / FILE
    if not path.exists():
        return None
    result = files.read_json(path, Result, exact=True)
    if result.ending not in FINAL_ENDINGS:
        expected = " or ".join(FINAL_ENDINGS)
        raise InputError(f"{path}: ending is {shown(result.ending)}; expected {expected}")
    return result
