"""The number and the shapes of parameters, as text."""

from collections.abc import Collection, Mapping, Sequence

import jax

from dclm_jax.models.base import Params
from dclm_jax.training.freezing import by_path


def parameter_table(
    params: Params, frozen: Collection[str] = (), notes: Mapping[str, str] | None = None
) -> str:
    """A table with one line per parameter array (path, shape, count, notes), the total, and the
    number of trained parameters if some are frozen.

    Args:
      frozen: paths of parameters that are not trained.
      notes: notes by path.
    """
    leaves, notes, rows = by_path(params), notes or {}, []
    for path, leaf in leaves.items():
        remarks = filter(None, (notes.get(path), "frozen" if path in frozen else None))
        rows.append((path, shape_text(leaf.shape), leaf.size, ", ".join(remarks)))
    rows.append(("total", "", count_parameters(leaves), ""))
    if frozen:
        trained = {path: leaf for path, leaf in leaves.items() if path not in frozen}
        rows.append(("trained", "", count_parameters(trained), ""))
    width, shape_width = (max(len(row[column]) for row in rows) for column in (0, 1))
    return "\n".join(
        f"  {path:{width}}  {shape:>{shape_width}}  {n:>12,}  {remark}".rstrip()
        for path, shape, n, remark in rows
    )


def shape_text(shape: Sequence[int]) -> str:
    """A shape as text, such as "128 x 384"."""
    return " x ".join(map(str, shape))


def count_parameters(params: Params) -> int:
    """The number of scalars in a parameter tree."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))
