"""The numbers of a run: JSON lines, and TensorBoard events if tensorboardX is installed."""

import contextlib
import dataclasses
import importlib.util
import math
import os
import socket
import time
from pathlib import Path
from typing import Any, Literal

from dclm_jax import files, storage
from dclm_jax.errors import InputError
from dclm_jax.training.workdir import EVENTS_FOLDER, METRICS_FILE


@dataclasses.dataclass(frozen=True)
class Line:
    """The numbers of a line of metrics that results are made of.

    Attributes:
      kind: "train" for what training has measured since the line before, "valid" for an evaluation
        on the validation split.
      step: training steps until then.
      tokens: targets trained on until then.
      seconds: spent training until then, without evaluation and compilation.
    """

    kind: Literal["train", "valid"]
    step: files.Count
    tokens: files.Count
    seconds: files.Finite
    perplexity: files.Positive


def read_lines(workdir: Path) -> list[Line]:
    """The lines of a run's metrics, of which there is one at least, in the order of their steps."""
    path = workdir / METRICS_FILE
    lines = [
        files.parse_json(text, place, Line)
        for text, place in files.json_lines(path, made_by="python -m launch.train")
    ]
    if not lines:
        raise InputError(f"{path}: holds no line; the run has not trained yet")
    return lines


class MetricsLog(contextlib.AbstractContextManager):
    """Appends one JSON object per line to WORKDIR/metrics.jsonl and mirrors numbers to TensorBoard.

    A resumed run removes the lines after the step it resumes from, so no step appears twice.
    """

    def __init__(self, workdir: Path, step: int):
        self._path = workdir / METRICS_FILE
        with files.writing(self._path):
            self._file = storage.open_to_append(self._path)
            size = self._size_until(step)
            # A finished run that is started again leaves the file and its date alone.
            if size < self._path.stat().st_size:
                self._file.truncate(size)
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

    def _size_until(self, step: int) -> int:
        """The bytes of the sound lines up to a step; a crash may have cut off the last line."""
        self._file.seek(0)
        size = 0
        for line in self._file:
            with contextlib.suppress(InputError):
                parsed = files.parse_json(line, METRICS_FILE, _Step)
                if line.endswith(b"\n") and parsed.step <= step:
                    size += len(line)
                    continue
            break
        return size

    def __exit__(self, *exception: object) -> None:
        with files.writing(self._path), self._file:
            if self._events:
                self._events.close()


@dataclasses.dataclass(frozen=True)
class _Step:
    step: files.Count


class _Events:
    """A file of TensorBoard events, written at once.

    tensorboardX's SummaryWriter has a thread write them, and its queue waits for ever once that
    thread has met a full disk.
    """

    def __init__(self, workdir: Path, step: int):
        from tensorboardX.proto import event_pb2
        from tensorboardX.record_writer import RecordWriter

        self._proto: Any = event_pb2
        (workdir / EVENTS_FOLDER).mkdir(exist_ok=True)
        name = f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}.{os.getpid()}.{step}"
        self._writer = RecordWriter(str(workdir / EVENTS_FOLDER / name))
        self.close = self._writer.close
        self._write(0, file_version="brain.Event:2")
        # TensorBoard hides what a run that was killed had written beyond.
        self._write(step + 1, session_log=self._proto.SessionLog(status="START"))

    def write(self, kind: str, step: int, values: dict[str, float]) -> None:
        from tensorboardX.summary import scalar

        for name, value in values.items():
            if math.isfinite(value):
                self._write(step, summary=scalar(f"{kind}/{name}", value))
        if kind == "valid":
            self._writer.flush()

    def _write(self, step: int, **content: Any) -> None:
        event = self._proto.Event(wall_time=time.time(), step=step, **content)
        self._writer.write(event.SerializeToString())
