"""`lax.scan` as one kernel on a TPU: constants and the carry stay in VMEM, inputs are streamed.

For `lax.scan` the compiler makes several kernels per step, which mostly wait if batches are small.
In this module one kernel computes all steps: it reads the inputs of a chunk of steps from HBM while
it computes the previous chunk. For a training step of `ccdclm` (H = 128, 64 segments) on a v5e,
XLA's estimates of cycles give 2.4 ms with this kernel, and 7.4 ms with `lax.scan`. The estimate has
1,800 cycles to start each kernel of the compiler, and only the memory traffic of this kernel. Tests
interpret this kernel. It has been compiled for TPUs, and has not run on any TPU yet.
"""

import math
from collections.abc import Callable, Sequence
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


def kernel_scan(
    body: Callable[[Any, Any], tuple[Any, Any]], carry: Any, xs: Any, *, reverse: bool = False
) -> tuple[Any, Any]:
    """`lax.scan(body, carry, xs, reverse=reverse)`, as one kernel if a step fits into VMEM and
    kernels have the precision of its products.

    Args:
      body: a pure function without products of arrays with three axes.
      carry: arrays.
      xs: stacked matrices [N, ...].
    """
    x = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), xs)
    closed, (_, y) = jax.make_jaxpr(body, return_shape=True)(carry, x)
    carries, carry_tree = jax.tree.flatten(carry)
    ys, y_tree = jax.tree.flatten(y)
    inputs = jax.tree.leaves(xs)
    length = len(inputs[0])
    kept = [_for_vmem(array) for array in (*closed.consts, *carries)]
    firsts = kept[len(closed.consts) :]
    kept_bytes = _vmem_bytes([*kept, *firsts])
    step_bytes = _vmem_bytes([*jax.tree.leaves(x), *ys])
    room = VMEM_BYTES // 3 - kept_bytes
    chunk = next((c for c in CHUNKS if length % c == 0 and c * step_bytes <= room), None)
    if chunk is None or jax.default_matmul_precision.value not in PRECISIONS:
        return jax.lax.scan(body, carry, xs, reverse=reverse)

    def index_of_chunk(i: jax.Array) -> tuple[Any, int, int]:
        return (length // chunk - 1 - i if reverse else i), 0, 0

    def whole(leaf: Any) -> pl.BlockSpec:
        return pl.BlockSpec(leaf.shape, lambda _: (0,) * leaf.ndim)

    def stacked(leaf: Any) -> pl.BlockSpec:
        return pl.BlockSpec((chunk, *leaf.shape), index_of_chunk)

    results = pl.pallas_call(
        _kernel(closed.jaxpr, [len(closed.consts), len(carries), len(inputs)], chunk, reverse),
        grid=(length // chunk,),
        in_specs=[*map(whole, kept), *map(stacked, jax.tree.leaves(x))],
        out_specs=[*map(whole, firsts), *map(stacked, ys)],
        out_shape=[
            *(jax.ShapeDtypeStruct(first.shape, first.dtype) for first in firsts),
            *(jax.ShapeDtypeStruct((length, *leaf.shape), leaf.dtype) for leaf in ys),
        ],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("arbitrary",), vmem_limit_bytes=VMEM_BYTES
        ),
        cost_estimate=_cost(closed.jaxpr, length, length * step_bytes + kept_bytes),
        name="fused_scan_backward" if reverse else "fused_scan",
    )(*kept, *map(_for_vmem, inputs))
    last = [
        result.reshape(carry.shape)
        for result, carry in zip(results[: len(carries)], carries, strict=True)
    ]
    return carry_tree.unflatten(last), y_tree.unflatten(results[len(carries) :])


def _kernel(jaxpr: Any, counts: Sequence[int], chunk: int, reverse: bool) -> Callable[..., None]:
    """The kernel of a chunk of steps. Blocks of the carry's outputs are the same in all chunks, so
    that they hold the carry.

    Args:
      counts: the numbers of constants, carries and inputs.
    """
    _, num_carries, _ = counts
    carry_variables, x_variables = jaxpr.invars[:num_carries], jaxpr.invars[num_carries:]

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
            x = [_as(v, ref[n]) for v, ref in zip(x_variables, xs, strict=True)]
            constants = [_as(v, ref[...]) for v, ref in zip(jaxpr.constvars, consts, strict=True)]
            results = eval_jaxpr(jaxpr, constants, *carry, *x)
            for ref, y in zip(ys, results[num_carries:], strict=True):
                ref[n] = y
            return results[:num_carries]

        first = [_as(v, ref[...]) for v, ref in zip(carry_variables, carries, strict=True)]
        last = jax.lax.fori_loop(0, chunk, step, first)
        for carry, value in zip(carries, last, strict=True):
            carry[...] = value.reshape(carry.shape)

    return kernel


def _vmem_bytes(leaves: Sequence[Any]) -> int:
    """The bytes of arrays in VMEM, where the last two axes take whole tiles."""

    def tiled(leaf: Any) -> int:
        *outer, rows, columns = leaf.shape
        whole_tiles = (
            -(-size // tile) * tile for size, tile in zip((rows, columns), TILE, strict=True)
        )
        return math.prod((*outer, *whole_tiles)) * (
            4 if leaf.dtype == bool else leaf.dtype.itemsize
        )

    return sum(map(tiled, leaves))


def _cost(jaxpr: Any, length: int, num_bytes: int) -> pl.CostEstimate:
    """The cost of all steps, for the compiler's schedule of other work: an operation per value."""
    values = sum(
        math.prod(variable.aval.shape) for equation in jaxpr.eqns for variable in equation.outvars
    )
    return pl.CostEstimate(flops=length * values, transcendentals=0, bytes_accessed=num_bytes)


def _for_vmem(array: jax.Array) -> jax.Array:
    """The array with at least two axes, in a type that VMEM has: no predicates."""
    array = array.reshape((1,) * (2 - array.ndim) + array.shape)
    return array.astype(jnp.float32) if array.dtype == bool else array


def _as(variable: Any, value: jax.Array) -> jax.Array:
    """A value from VMEM in the shape and type of a variable of the body."""
    value = value.reshape(variable.aval.shape)
    return value != 0 if variable.aval.dtype == bool else value
