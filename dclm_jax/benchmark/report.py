"""Results of benchmarks: measured values and goals, as text and as JSON."""

import dataclasses
import importlib.metadata
import pathlib
import platform
from typing import Any

import jax

from dclm_jax.benchmark.worker import usable_cores

PACKAGES = ("jax", "jaxlib", "torch", "dynet38")


@dataclasses.dataclass(frozen=True)
class Goal:
    """The smallest acceptable value and the aim. With `at_most` less is better, and `least` is the
    largest acceptable value."""

    least: float
    aim: float
    unit: str = "x"
    at_most: bool = False

    def verdict(self, measured: float) -> str:
        """The verdict: "aim met", "met" (only `least` is met) or "missed"."""
        sign = -1 if self.at_most else 1
        for bound, verdict in ((self.aim, "aim met"), (self.least, "met")):
            if sign * measured >= sign * bound:
                return verdict
        return "missed"

    def text(self, value: float) -> str:
        return f"{value:,.3g}{self.unit}" if abs(value) < 1e4 else f"{value / 1e6:,.3g}M{self.unit}"


@dataclasses.dataclass(frozen=True)
class Row:
    """The result of one benchmark, a row of the table.

    Attributes:
      name: name of the benchmark in --rows.
      work: description of the work.
      goal: goal; None if the benchmark only reports numbers.
      measured: measured value; None if the benchmark was skipped or has no goal.
      note: method of measurement, or the reason for skipping the benchmark.
      details: further numbers, for the JSON file.
      lines: further lines of the table.
      disturbed: whether other programs ran; the measured value is then not a result.
    """

    name: str
    work: str
    goal: Goal | None = None
    measured: float | None = None
    note: str = ""
    details: dict[str, Any] = dataclasses.field(default_factory=dict)
    lines: tuple[str, ...] = ()
    disturbed: bool = False

    @property
    def verdict(self) -> str:
        if self.goal is None:
            return "reported"
        if self.measured is None:
            return "skipped"
        return "disturbed" if self.disturbed else self.goal.verdict(self.measured)

    def to_json(self) -> dict[str, Any]:
        """The result as a JSON object, with its verdict."""
        goal = {} if self.goal is None else dataclasses.asdict(self.goal)
        return {
            "name": self.name,
            "work": self.work,
            "measured": self.measured,
            **goal,
            "verdict": self.verdict,
            "note": self.note,
            **self.details,
        }


HEADER = f"{'row':<20} {'measured':>15} {'least':>15} {'aim':>15}  verdict"


def row_text(row: Row) -> str:
    """The row as text: its numbers, then indented its work and its method."""
    goal, measured = row.goal, row.measured
    cells = ["-"] * 3
    if goal is not None:
        bound = "<= " if goal.at_most else ""
        cells[1:] = [bound + goal.text(goal.least), bound + goal.text(goal.aim)]
        if measured is not None:
            cells[0] = goal.text(measured)
    first = f"{row.name:<20} " + " ".join(f"{cell:>15}" for cell in cells) + f"  {row.verdict}"
    disturbed = "other programs used the cores; repeat the benchmark on a quiet machine"
    more = (row.work, *row.lines, row.note, disturbed if row.disturbed else "")
    return "\n".join([first, *(f"    {line}" for line in more if line)])


def machine() -> dict[str, Any]:
    """The processor and the devices available to JAX."""
    device = jax.devices()[0]
    return {
        "cpu": _cpu_name(),
        "cores": usable_cores(),
        "device": device.device_kind,
        "platform": device.platform,
        "devices": jax.local_device_count(),
    }


def versions() -> dict[str, str | None]:
    """The versions of Python and of each package; None for a package that is not installed."""
    return {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu_name() -> str:
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
