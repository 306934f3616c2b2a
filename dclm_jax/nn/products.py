"""Matrix products with weights that may be of a shorter type than the activations.

With bfloat16 weights both factors of a product are rounded to bfloat16, and the sum is made in the
type of the activations. With weights of the activations' own type these are plain products.
"""

import jax
import jax.numpy as jnp


@jax.custom_vjp
def product(a: jax.Array, weight: jax.Array) -> jax.Array:
    """a @ weight in the type of a, [..., I] x [I, O] -> [..., O]."""
    return rounded_product(a, weight, weight.dtype)


def rounded_product(a: jax.Array, b: jax.Array, dtype: jax.typing.DTypeLike) -> jax.Array:
    """a @ b of factors rounded to `dtype`; it has no gradient of its own."""
    return jnp.matmul(a.astype(dtype), b.astype(dtype), preferred_element_type=wider(a, b))


def wider(a: jax.Array, b: jax.Array) -> jax.typing.DTypeLike:
    """The type that holds the values of both."""
    return jnp.promote_types(a.dtype, b.dtype)


def flat(array: jax.Array) -> jax.Array:
    """[..., I] -> [F, I]."""
    return array.reshape(-1, array.shape[-1])


def _product_forward(a, weight):
    return product(a, weight), (a, weight)


def _product_backward(factors, d_product):
    a, weight = factors
    d_weight = rounded_product(flat(a).T, flat(d_product), weight.dtype)
    return (
        rounded_product(d_product, weight.T, weight.dtype).astype(a.dtype),
        d_weight.astype(weight.dtype),
    )


product.defvjp(_product_forward, _product_backward)
