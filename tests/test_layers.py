"""Who may import whom: every part of the project stands on those named before it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
# From the ground up; of parts in one line none imports another.
LAYERS = [
    ("errors", "log", "tables"),
    ("allocation", "processes", "storage"),
    ("files",),
    ("data",),
    ("nn",),
    ("models",),
    ("reading",),
    ("scoring",),
    ("metrics",),
    ("rescoring",),
    ("decoding",),
    ("training",),
    ("language_model",),
    ("neural_model", "mixture", "ngram"),
    ("neural_language_model",),
    ("evaluation", "runs", "strings"),
    ("coherence",),
    ("report",),
    ("lm_eval",),
    # The package itself, which imports what users need.
    ("dclm_jax",),
    ("launch",),
]
HEIGHTS = {part: height for height, parts in enumerate(LAYERS) for part in parts}
SOURCES = [
    path
    for folder in ("dclm_jax", "launch")
    for path in sorted((REPOSITORY / folder).rglob("*.py"))
]


def part_of(module: str) -> str | None:
    """The part that a module belongs to, the package itself included; None for those of others."""
    package, *names = module.removesuffix(".__init__").split(".")
    if package == "launch":
        return package
    return (names or ["dclm_jax"])[0] if package == "dclm_jax" else None


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.Import(names=names):
                modules = [alias.name for alias in names]
            case ast.ImportFrom(module="dclm_jax", names=names):
                modules = [f"dclm_jax.{alias.name}" for alias in names]
            # The package of a command.
            case ast.ImportFrom(level=level) if level:
                modules = ["launch"]
            case ast.ImportFrom(module=str(module)):
                modules = [module]
            case _:
                continue
        yield from filter(None, map(part_of, modules))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_imports_lead_downwards(path):
    part = part_of(".".join(path.relative_to(REPOSITORY).with_suffix("").parts))
    assert part in HEIGHTS, f"{part} has no place in LAYERS"
    for lower in imported(path):
        assert lower == part or HEIGHTS[lower] < HEIGHTS[part], f"{part} imports {lower}"
