"""Options of XLA that make the whole training step one CUDA graph.

By default each iteration of a loop over tokens is a graph that the host launches. With these
options loops are parts of the graph. XLA's dump of `rnnlm` for an H100 has one graph instead of
seven graphs and four loops of the host.
"""

import importlib.util
import os

import jax

OPTIONS: dict[str, str | int | bool] = {
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,"
    "DYNAMIC_SLICE_FUSION,WHILE,CONDITIONAL",
    "xla_gpu_graph_min_graph_size": 1,
    "xla_gpu_command_buffer_unroll_loops": True,
}
_PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin")
# XLA ends the process if it does not know an option; the versions before this one know all.
_FIRST_UNTESTED = (0, 13)


def as_flags() -> str:
    """The options in the form of XLA_FLAGS."""
    return " ".join(f"--{name}={value}" for name, value in OPTIONS.items())


def use_cuda_graphs() -> None:
    """Sets XLA_FLAGS where JAX may use an NVIDIA GPU, unless the user has set it.

    JAX must not have used a device yet. CPUs ignore the options.
    """
    platforms = os.environ.get("JAX_PLATFORMS") or "cuda"
    may_use_gpu = any(name in ("cuda", "gpu") for name in platforms.split(","))
    has_plugin = any(importlib.util.find_spec(plugin) for plugin in _PLUGINS)
    if may_use_gpu and has_plugin and jax.__version_info__ < _FIRST_UNTESTED:
        os.environ.setdefault("XLA_FLAGS", as_flags())
