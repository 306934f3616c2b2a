"""Rows of results: what was measured beside what was aimed at, as text and as JSON."""

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
    """The least that is wanted and the aim; with `at_most`, less is better."""

    least: float
    aim: float
    unit: str = "x"
    at_most: bool = False

    def verdict(self, measured: float) -> str:
        """ "aim met", "met" (the least) or "missed"."""
        sign = -1 if self.at_most else 1
        for bound, verdict in ((self.aim, "aim met"), (self.least, "met")):
            if sign * measured >= sign * bound:
                return verdict
        return "missed"

    def text(self, value: float) -> str:
        return f"{value:,.3g}{self.unit}" if abs(value) < 1e4 else f"{value / 1e6:,.3g}M{self.unit}"


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
      name: what --rows calls it.
      work: what was done.
      goal: None for what is only reported.
      measured: None where the row was skipped or has no goal.
      note: how it was measured, or why it was skipped.
      details: further numbers, for the JSON file.
      lines: further lines of the table.
      disturbed: other programs ran, so that what was measured is no result.
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
        """The attributes that are numbers or texts, as a JSON object."""
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


HEADER = f"{'row':<20} {'measured':>12} {'least':>12} {'aim':>12}  verdict"


def row_text(row: Row) -> str:
    """A row's line and, indented, what it did and how."""
    goal, measured = row.goal, row.measured
    cells = ["-"] * 3
    if goal is not None:
        bound = "<= " if goal.at_most else ""
        cells[1:] = [bound + goal.text(goal.least), bound + goal.text(goal.aim)]
        if measured is not None:
            cells[0] = goal.text(measured)
    first = f"{row.name:<20} " + " ".join(f"{cell:>12}" for cell in cells) + f"  {row.verdict}"
    disturbed = "other programs used the cores; run it again on a quiet machine"
    more = (row.work, *row.lines, row.note, disturbed if row.disturbed else "")
    return "\n".join([first, *(f"    {line}" for line in more if line)])


def machine() -> dict[str, Any]:
    """The processor and the devices that JAX sees."""
    device = jax.devices()[0]
    return {
        "cpu": _cpu_name(),
        "cores": usable_cores(),
        "device": device.device_kind,
        "platform": device.platform,
        "devices": jax.local_device_count(),
    }


def versions() -> dict[str, str | None]:
    """Of Python and of each package; None where it is not installed."""
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
