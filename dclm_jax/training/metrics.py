"""Where the numbers of a run go: JSON lines, and TensorBoard events if tensorboardX is there."""

import contextlib
import dataclasses
import importlib.util
import math
import os
import socket
import time
from pathlib import Path
from typing import Any

from dclm_jax import files, storage
from dclm_jax.errors import InputError

FILE = "metrics.jsonl"


@dataclasses.dataclass(frozen=True)
class Line:
    """What results are made of in a line of metrics.

    Attributes:
      kind: "train" or "valid".
      step: updates made until then.
      tokens: targets trained on until then.
      seconds: spent training until then, evaluation and compilation left out.
    """

    kind: str
    step: files.Count
    tokens: files.Count
    seconds: files.Finite


@dataclasses.dataclass(frozen=True)
class TrainLine(Line):
    """A line of kind "train" with what training has measured since the line before."""

    perplexity: files.Positive


@dataclasses.dataclass(frozen=True)
class ValidLine(Line):
    """A line of kind "valid": an evaluation on the development set."""

    perplexity: files.Nonnegative


class MetricsLog(contextlib.AbstractContextManager):
    """Appends one JSON object a line to WORKDIR/metrics.jsonl and mirrors numbers to TensorBoard.

    A resumed run drops the lines after the step it resumes from, so no step appears twice.
    """

    def __init__(self, workdir: Path, step: int):
        self._path = workdir / FILE
        with files.writing(self._path):
            self._drop_after(step)
            self._file = storage.open_to_append(self._path)
            has_tensorboard = importlib.util.find_spec("tensorboardX") is not None
            self._events = _Events(workdir, step) if has_tensorboard else None

    def write(self, kind: str, step: int, **values: Any) -> None:
        """One line {"kind", "step", ...}; kind is "train" or "valid"."""
        with files.writing(self._path):
            line = files.json_text({"kind": kind, "step": step, **values}) + "\n"
            self._file.write(line.encode())
            self._file.flush()
            if self._events:
                self._events.write(kind, step, values)

    def _drop_after(self, step: int) -> None:
        before = _content(self._path)
        lines = [line for line in read_metrics(self._path) if line["step"] <= step]
        kept = "".join(files.json_text(line) + "\n" for line in lines).encode()
        # A finished run that is started again leaves the file and its date alone.
        if kept != before:
            files.write_bytes(self._path, kept)

    def __exit__(self, *exception: object) -> None:
        with files.writing(self._path), self._file:
            if self._events:
                self._events.close()


class _Events:
    """A file of TensorBoard events, written as they come.

    tensorboardX's own SummaryWriter leaves that to a thread, and waits for ever on one that has met
    a full disk or a clock that jumped.
    """

    def __init__(self, workdir: Path, step: int):
        from tensorboardX.proto import event_pb2
        from tensorboardX.record_writer import RecordWriter

        events: Any = event_pb2
        self._event = events.Event
        directory = workdir / "tensorboard"
        directory.mkdir(exist_ok=True)
        name = f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}.{os.getpid()}.{step}"
        self._writer = RecordWriter(str(directory / name))
        self.close = self._writer.close
        self._write(0, file_version="brain.Event:2")
        # TensorBoard hides what a run that was killed had written beyond.
        restart = events.SessionLog(status=events.SessionLog.START)
        self._write(step + 1, session_log=restart)

    def write(self, kind: str, step: int, values: dict[str, float]) -> None:
        from tensorboardX.summary import scalar

        for name, value in values.items():
            if math.isfinite(value):
                self._write(step, summary=scalar(f"{kind}/{name}", value))
        if kind == "valid":
            self._writer.flush()

    def _write(self, step: int, **content: Any) -> None:
        event = self._event(wall_time=time.time(), step=step, **content)
        self._writer.write(event.SerializeToString())


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics file up to one that `MetricsLog` did not write as it is: usually the
    last, which a crash has cut off."""
    lines = []
    for text in _content(path).splitlines():
        try:
            line = files.parse_json(text, str(path), dict[str, Any])
        except InputError:
            break
        is_plain = not any(isinstance(value, dict | list) for value in line.values())
        if type(line.get("step")) is not int or not is_plain:
            break
        lines.append(line)
    return lines


def _content(path: Path) -> bytes:
    return files.read_bytes(path) if path.exists() else b""


def read_lines(workdir: Path) -> list[Line]:
    """The lines of a run's metrics, those of evaluations as `ValidLine`, those of training that has
    measured a number as `TrainLine`; `InputError` if there are none, or one is broken."""
    lines = []
    for text, place in files.json_lines(workdir / FILE, made_by="python -m launch.train"):
        line = files.parse_json(text, place, Line)
        if line.kind == "valid":
            line = files.parse_json(text, place, ValidLine)
        elif line.kind == "train":
            with contextlib.suppress(InputError):
                line = files.parse_json(text, place, TrainLine)
        lines.append(line)
    if not lines:
        raise InputError(f"{workdir / FILE}: holds no line; the run has not trained yet")
    return lines
