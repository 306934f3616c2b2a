"""Products with weights: their factors are rounded to the type of the weights."""

import jax
import jax.numpy as jnp
import numpy as np

from dclm_jax.nn.layers import Weight, product

RNG = np.random.default_rng(0)
A, W, COTANGENT = (
    RNG.normal(size=shape).astype(np.float32) for shape in [(2, 3, 5), (5, 4), (2, 3, 4)]
)


def rounded(array: np.ndarray) -> np.ndarray:
    return array.astype(jnp.bfloat16).astype(np.float64)


def test_bfloat16_weights_round_both_factors_and_sum_in_float32():
    weight = jnp.asarray(W, jnp.bfloat16)
    value, transpose = jax.vjp(product, jnp.asarray(A), weight)
    assert value.dtype == jnp.float32
    np.testing.assert_allclose(value, rounded(A) @ rounded(W), rtol=1e-6, atol=1e-6)
    assert not np.allclose(value, A @ W, rtol=1e-6, atol=1e-6)

    d_a, d_weight = transpose(jnp.asarray(COTANGENT))
    assert (d_a.dtype, d_weight.dtype) == (jnp.float32, jnp.bfloat16)
    np.testing.assert_allclose(d_a, rounded(COTANGENT) @ rounded(W).T, rtol=1e-6, atol=1e-6)
    expected = np.einsum("bni,bno->io", rounded(A), rounded(COTANGENT))
    # The sum is float32; the gradient of a bfloat16 weight is a bfloat16 number (8 bits).
    np.testing.assert_allclose(np.asarray(d_weight).astype(np.float64), expected, rtol=2**-8)


def test_a_weight_multiplies_arrays_of_numpy_and_of_jax_alike():
    weight = Weight(jnp.asarray(W, jnp.bfloat16))
    expected = product(jnp.asarray(A), weight.array)
    np.testing.assert_array_equal(jnp.asarray(A) @ weight, expected)
    np.testing.assert_array_equal(A @ weight, expected)


def test_float32_weights_are_the_plain_product():
    value, transpose = jax.vjp(product, jnp.asarray(A), jnp.asarray(W))
    expected, plain_transpose = jax.vjp(jnp.matmul, jnp.asarray(A), jnp.asarray(W))
    np.testing.assert_array_equal(value, expected)
    for actual, plain in zip(transpose(COTANGENT), plain_transpose(COTANGENT), strict=True):
        np.testing.assert_allclose(actual, plain, rtol=1e-6, atol=1e-6)
