"""`lax.scan` as one kernel on a TPU: constants and the carry stay in VMEM, inputs are streamed.

For `lax.scan` the compiler makes several kernels per step, which mostly wait if batches are small.
In this module one kernel computes all steps: it reads the inputs of a chunk of steps from HBM while
it computes the previous chunk. For a training step of `ccdclm` (H = 128, 64 segments) on a v5e,
`launch.plan` estimates 2.4 ms with this kernel, and 7.4 ms with `lax.scan`. The estimate has 1,800
cycles to start each kernel of the compiler, and only the memory traffic of this kernel. Tests
interpret this kernel. It has been compiled for TPUs, and has not run on any TPU yet.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import eval_jaxpr
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

# Possible numbers of steps per chunk; the number must divide N. Longer chunks save little.
CHUNKS = (8, 4, 2, 1)
# Of 128 MiB on v5e and v6e, and 64 MiB on v5p. Two buffers of a chunk take at most two thirds.
VMEM_BYTES = 48 * 2**20
# Rows and columns of the smallest array in VMEM.
TILE = (8, 128)
# Precisions that products in kernels can have; "high" is not among them.
PRECISIONS = (None, "default", "highest")


def scan(
    body: Callable[[Any, Any], tuple[Any, Any]], carry: Any, xs: Any, *, reverse: bool = False
) -> tuple[Any, Any]:
    """`lax.scan(body, carry, xs, reverse=reverse)`, as one kernel if a step fits into VMEM and
    kernels have the precision of its products.

    Args:
      body: a pure function of matrices; the arrays in its closure are matrices too.
      carry: matrices.
      xs: stacked matrices [N, ...].
    """
    x = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), xs)
    closed, (_, y) = jax.make_jaxpr(body, return_shape=True)(carry, x)
    carries, carry_tree = jax.tree.flatten(carry)
    ys, y_tree = jax.tree.flatten(y)
    inputs = jax.tree.leaves(xs)
    length = len(inputs[0])
    kept_bytes = _vmem_bytes([*closed.consts, *carries, *carries])
    step_bytes = _vmem_bytes([*jax.tree.leaves(x), *ys])
    room = VMEM_BYTES // 3 - kept_bytes
    chunk = next((c for c in CHUNKS if length % c == 0 and c * step_bytes <= room), None)
    if chunk is None or jax.default_matmul_precision.value not in PRECISIONS:
        return jax.lax.scan(body, carry, xs, reverse=reverse)

    def index_of_chunk(i: jax.Array) -> tuple[Any, int, int]:
        return (length // chunk - 1 - i if reverse else i), 0, 0

    def whole(leaf: Any) -> pl.BlockSpec:
        return pl.BlockSpec(leaf.shape, lambda _: (0, 0))

    def stacked(leaf: Any) -> pl.BlockSpec:
        return pl.BlockSpec((chunk, *leaf.shape), index_of_chunk)

    results = pl.pallas_call(
        _kernel(closed.jaxpr, [len(closed.consts), len(carries), len(inputs)], chunk, reverse),
        grid=(length // chunk,),
        in_specs=[*map(whole, (*closed.consts, *carries)), *map(stacked, jax.tree.leaves(x))],
        out_specs=[*map(whole, carries), *map(stacked, ys)],
        out_shape=[
            *(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in carries),
            *(jax.ShapeDtypeStruct((length, *leaf.shape), leaf.dtype) for leaf in ys),
        ],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("arbitrary",), vmem_limit_bytes=VMEM_BYTES
        ),
        cost_estimate=_cost(
            closed, [*carries, *jax.tree.leaves(x)], length, length * step_bytes + kept_bytes
        ),
        name="fused_scan_backward" if reverse else "fused_scan",
    )(*closed.consts, *carries, *map(_without_predicates, inputs))
    return carry_tree.unflatten(results[: len(carries)]), y_tree.unflatten(results[len(carries) :])


def _kernel(jaxpr: Any, counts: Sequence[int], chunk: int, reverse: bool) -> Callable[..., None]:
    """The kernel of a chunk of steps. Blocks of the carry's outputs are the same in all chunks, so
    that they hold the carry.

    Args:
      counts: the numbers of constants, carries and inputs.
    """
    num_consts, num_carries, num_inputs = counts
    is_predicate = [variable.aval.dtype == bool for variable in jaxpr.invars[num_carries:]]

    def kernel(*refs: Any) -> None:
        rest = iter(refs)
        consts, firsts, xs, carries = (
            [next(rest) for _ in range(count)] for count in (*counts, num_carries)
        )
        ys = list(rest)

        @pl.when(pl.program_id(0) == 0)
        def _():
            for first, carry in zip(firsts, carries, strict=True):
                carry[...] = first[...]

        def step(count: jax.Array, carry: list[jax.Array]) -> list[jax.Array]:
            n = chunk - 1 - count if reverse else count
            x = [
                ref[n] != 0 if predicate else ref[n]
                for ref, predicate in zip(xs, is_predicate, strict=True)
            ]
            results = eval_jaxpr(jaxpr, [ref[...] for ref in consts], *carry, *x)
            for ref, y in zip(ys, results[num_carries:], strict=True):
                ref[n] = y
            return results[:num_carries]

        last = jax.lax.fori_loop(0, chunk, step, [carry[...] for carry in carries])
        for carry, value in zip(carries, last, strict=True):
            carry[...] = value

    return kernel


def _vmem_bytes(leaves: Sequence[Any]) -> int:
    """The bytes of matrices in VMEM, where each matrix takes whole tiles."""

    def tiled(leaf: Any) -> int:
        whole_tiles = (-(-size // tile) * tile for size, tile in zip(leaf.shape, TILE, strict=True))
        return math.prod(whole_tiles) * (4 if leaf.dtype == bool else leaf.dtype.itemsize)

    return sum(map(tiled, leaves))


def _cost(closed: Any, arguments: Sequence[Any], length: int, num_bytes: int) -> pl.CostEstimate:
    """The cost of all steps, for the compiler's schedule of other work."""
    step = pl.estimate_cost(partial(eval_jaxpr, closed.jaxpr), closed.consts, *arguments)
    return pl.CostEstimate(
        flops=length * step.flops,
        transcendentals=length * step.transcendentals,
        bytes_accessed=num_bytes,
    )


def _without_predicates(array: jax.Array) -> jax.Array:
    """The array, in a type that VMEM has."""
    return array.astype(jnp.float32) if array.dtype == bool else array
