"""Precision of products of float32 factors, which accelerators round by default."""

import functools
from collections.abc import Callable
from typing import Any, Literal

import jax

MatmulPrecision = Literal["default", "high", "highest"]
"""Values of `jax.default_matmul_precision`: "default" is the fastest on the device (one pass of
bfloat16 on TPUs, TF32 on H100), "highest" is float32. CPUs always compute with float32."""
SCORING_PRECISION = "highest"


def at_precision(precision: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with all its products at this precision, for `jax.jit` and `jax.pmap`.

    A function with gradients contains `jax.grad`, so that the products of the backward pass have
    the same precision.
    """

    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Any:
        with jax.default_matmul_precision(precision):
            return function(*args, **kwargs)

    return traced


@functools.cache
def compiled(
    function: Callable[..., Any],
    model: Any,
    static: int | tuple[int, ...] | None = None,
    donated: int | None = None,
) -> Callable[..., Any]:
    """`function(model, *arguments)` of a `DocumentModel` as a function of the arguments, at the
    precision of the model. Every caller gets the same compiled function.

    Args:
      function, model: the function and its first argument.
      static, donated: positions among the arguments of constants of the program, and of an argument
        whose memory the results may reuse (`jax.jit`).
    """
    bound = at_precision(model.matmul_precision, functools.partial(function, model))
    return jax.jit(bound, static_argnums=static, donate_argnums=donated)
