"""Parameters by their paths, and frozen parameters, which training does not change.

A frozen parameter is not an argument of the differentiated function and not passed to the
optimizer: it has no gradient, no part in the gradient's norm, no decay, no average and no state.
"""

import fnmatch
from collections.abc import Collection, Mapping
from typing import Any

import jax

from dclm_jax.errors import InputError, brief, did_you_mean


def by_path(tree: Any) -> dict[str, Any]:
    """The leaves, in their order, by paths such as `embedding` or `stack/0/recurrent`."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def with_leaves(tree: Any, leaves: Mapping[str, Any]) -> Any:
    """The tree with other leaves, one per path of `by_path` and in its order."""
    return jax.tree.unflatten(jax.tree.structure(tree), list(leaves.values()))


def frozen_paths(patterns: str, paths: Collection[str]) -> frozenset[str]:
    """The paths that match a pattern of `training.frozen`.

    Args:
      patterns: patterns of a shell (`fnmatch`), separated by commas; `*` also matches `/`.
      paths: paths of all parameters.
    """
    frozen: set[str] = set()
    for pattern in map(str.strip, patterns.split(",") if patterns else ()):
        matching = fnmatch.filter(paths, pattern)
        if not matching:
            raise InputError(
                f"training.frozen: {brief(pattern)} matches no parameter"
                f"{did_you_mean(pattern, paths)}"
            )
        frozen.update(matching)
    if len(frozen) == len(paths):
        raise InputError(
            f"training.frozen is {brief(patterns)}, which matches all parameters; choose patterns "
            "that match only some of them"
        )
    return frozenset(frozen)


def partition(params: Any, frozen: Collection[str]) -> tuple[Any, Any]:
    """The parameters to train and the frozen parameters: two trees, each with None in place of the
    other's leaves."""
    leaves = by_path(params)
    trained = {path: None if path in frozen else leaf for path, leaf in leaves.items()}
    held = {path: leaf if path in frozen else None for path, leaf in leaves.items()}
    return with_leaves(params, trained), with_leaves(params, held)
