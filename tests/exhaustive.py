"""What runs with --exhaustive alone: the many of a kind of which others show the same."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import pytest

Value = TypeVar("Value")

asked = False
"""Whether --exhaustive was given; set before any test is collected."""


def also(values: Iterable[Any]) -> list[Any]:
    """Values of a parametrization that are left out unless all are asked for."""
    return [
        pytest.param(
            *(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.exhaustive
        )
        for value in values
    ]


def pairs(
    firsts: Iterable[Any], seconds: Iterable[Any], usual: Sequence[tuple[Any, Any]]
) -> list[Any]:
    """All pairs for a parametrization of two; the usual pairs run always."""
    rest = [pair for pair in itertools.product(firsts, seconds) if pair not in usual]
    return [*usual, *also(rest)]


def some(usual: Value, all: Value) -> Value:
    """Some of many, or their number; `all` of them only if that is asked for."""
    return all if asked else usual
