"""Time of the parts of a training step, or of scoring a batch, on a CPU.

    python -m configs.modern.step_parts train_ccdclm_16 score_ccdclm_16

The arguments are rows of launch.benchmark for CPUs; one batch per row is measured. At each moment
the time belongs to the operation that XLA has started last; the compiled program names the source
lines of its operations, and with JAX's names they tell the part. configs/modern/steps.md has
results.
"""

import collections
import heapq
import itertools
import math
import pathlib
import re
import statistics
import sys
import tempfile
from collections.abc import Iterator

import jax

from launch.benchmark import ours, workloads
from launch.benchmark.__main__ import CPU_ROWS

_TURNS = 9
_OTHER, _IDLE = "zeros for the outputs of loops, and all else", "between operations"


def main(*rows: str) -> None:
    if not rows or set(rows) - set(CPU_ROWS):
        names = ", ".join(CPU_ROWS)
        print(f"error: the rows are {' '.join(rows)!r}; choose from {names}", file=sys.stderr)
        sys.exit(2)
    for row in rows:
        work = CPU_ROWS[row]
        size = workloads.VOCAB_SIZE
        model, first_word_end = work.create_model(size), work.first_word_end(size)
        if work.scores:
            sentences = [10] * work.batch_size
            documents = workloads.synthetic_documents(0, size, sentences, first_word_end)
            contender = ours.Scoring(model, [documents])
            lowered = contender._nll.lower(contender._params, *contender._batches)
        else:
            batches = workloads.training_batches(work.batch_size, 1, 0, size, first_word_end)
            documents = workloads.unpacked(batches[0])
            contender = ours.Training(model, batches)
            lowered = contender._step.lower(contender._state, *contender._batches, contender._key)
        part_of = _parts(lowered.compile().as_text() or "")
        for _ in range(3):
            contender.turn()
        milliseconds = 1e3 * statistics.median(contender.turn().seconds for _ in range(_TURNS))
        with tempfile.TemporaryDirectory() as folder:
            with jax.profiler.trace(folder):
                for _ in range(_TURNS):
                    contender.turn()
            seconds = _seconds(pathlib.Path(folder), part_of)
        targets = workloads.num_targets(documents, first_word_end)
        print(f"{row}: {work}; {targets:,} targets in {milliseconds:.0f} ms")
        for part, time in seconds.most_common():
            print(f"{1e3 * time / _TURNS:8.1f} ms {time / seconds.total():7.1%}  {part}")


def _parts(program: str) -> dict[str, str]:
    """The part of each operation of a compiled program, by the operation's name."""
    tables = {
        title: dict(re.findall(r"^(\d+) (.*)$", rows, re.MULTILINE))
        for title, rows in re.findall(r"^(\w+)\n((?:\d+ .*\n)+)", program, re.MULTILINE)
    }

    def names(frame: str) -> Iterator[str]:
        """The files and functions of a source line and of its callers, the innermost first."""
        while frame != "0":
            location, parent = re.findall(r"=(\d+)", tables["StackFrames"][frame])
            file, function, *_ = re.findall(r"=(\d+)", tables["FileLocations"][location])
            yield tables["FileNames"][file].strip('"').rpartition("/")[2]
            yield from tables["FunctionNames"][function].strip('"').split(".")
            # The number of a caller is one too large; 1 stands for no caller.
            frame = str(int(parent) - 1)

    operation = re.compile(r"^ *(?:ROOT )?%?([\w.-]+) = (.*)$", re.MULTILINE)
    parts = {}
    for name, text in operation.findall(program):
        frame = re.search(r"stack_frame_id=(\d+)", text)
        path = re.search(r'op_name="([^"]*)"', text)
        parts[name] = _part(path[1] if path else "", set(names(frame[1])) if frame else set())
    return parts


def _part(path: str, names: set[str]) -> str:
    """The part of an operation, by JAX's path to it and the files and functions that made it."""
    kind = "products" if path.endswith("dot_general") else "elementwise, and starting each step"
    if "softmax.py" in names:
        return f"softmax and its gradient: {kind}"
    if "/while" in path:
        return f"loops: {kind}"
    if kind == "products":
        return "products of whole sentences: inputs, gradients of weights"
    is_small = names & {"optimizer.py", "update_fn", "embed"}
    return "optimizer, embeddings" if is_small else _OTHER


def _seconds(folder: pathlib.Path, part_of: dict[str, str]) -> collections.Counter[str]:
    """The time of each part in a profile."""
    (path,) = folder.rglob("*.xplane.pb")
    events = sorted(
        (event.start_ns, event.start_ns + event.duration_ns, part_of[event.name])
        for plane in jax.profiler.ProfileData.from_file(str(path)).planes
        for line in plane.lines
        for event in line.events
        if event.name in part_of
    )
    times = sorted({time for begin, end, _ in events for time in (begin, end)})
    seconds: collections.Counter[str] = collections.Counter()
    started: list[tuple[float, float, str]] = []
    upcoming = iter([*events, (math.inf, math.inf, "")])
    event = next(upcoming)
    for time, following in itertools.pairwise(times):
        while event[0] <= time:
            heapq.heappush(started, (-event[0], event[1], event[2]))
            event = next(upcoming)
        while started and started[0][1] <= time:
            heapq.heappop(started)
        seconds[started[0][2] if started else _IDLE] += (following - time) / 1e9
    return seconds


if __name__ == "__main__":
    main(*sys.argv[1:])
