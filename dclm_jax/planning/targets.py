"""The target machines: TPU slices, H100s and this CPU. Compilation does not need the machine.

A TPU compiles with the package `libtpu`, an H100 with the CUDA plugin of JAX. No device is opened.
"""

import dataclasses
import importlib.metadata
import os
import re
from typing import Any

import jax
from jax.experimental import topologies

from dclm_jax.allocation import machine_memory
from dclm_jax.errors import InputError, importing
from dclm_jax.nn.plan import Plan, plan_of

_H100 = """
gpu_device_info {
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472
  threads_per_core_limit: 2048
  core_count: 132
  fpus_per_core: 128
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: 3352320000000
  l2_cache_size: 52428800
  clock_rate_ghz: 1.98
  device_memory_size: 84942979072
  cuda_compute_capability { major: 9 feature_extension: ACCELERATED_FEATURES }
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  name: "NVIDIA H100 80GB HBM3"
  driver_version: "13.0.0"
  runtime_version: "13.0.0"
  compile_time_toolkit_version: "13.0.0"
  dnn_version: "9.10.0"
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""
"""An H100 SXM as XLA describes devices (GpuTargetConfigProto), with the values of its maker."""


@dataclasses.dataclass(frozen=True)
class Device:
    """The constants of one device, as its maker states them, and the measured time of a launch.

    Attributes:
      memory: bytes.
      flops: products of bfloat16 matrices, FLOP/s; None if unknown.
      bandwidth: memory bandwidth, bytes/s; None if unknown.
      clock: cycles/s, if XLA estimates cycles for the device.
      launch: seconds to launch a kernel, if kernels are launched one by one.
    """

    memory: float
    flops: float | None = None
    bandwidth: float | None = None
    clock: float | None = None
    launch: float | None = None


@dataclasses.dataclass(frozen=True)
class Target:
    """A machine to compile for.

    Attributes:
      name: name in --target.
      device: the constants of each device.
      plan: arrangement of computations on the machine.
      devices: compile-only devices of JAX.
    """

    name: str
    device: Device
    plan: Plan
    devices: list[Any]


_TPUS = {
    "v4": Device(memory=32 * 2**30, flops=275e12, bandwidth=1228e9, clock=1.05e9),
    "v5e": Device(memory=16 * 2**30, flops=197e12, bandwidth=819e9, clock=1.5e9),
    "v5p": Device(memory=95 * 2**30, flops=459e12, bandwidth=2765e9, clock=1.75e9),
    "v6e": Device(memory=32 * 2**30, flops=918e12, bandwidth=1640e9, clock=1.75e9),
}
_TPU_TOPOLOGIES = {
    "v4": ("2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4"),
    "v5e": ("1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16"),
    "v5p": ("2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4"),
    "v6e": ("1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16"),
}
# One host has all chips of these topologies.
_ONE_HOST = {"1x1": (1, 1, 1), "2x4": (2, 4, 1)}
# Steps of small models on an H200 took 2 us per kernel (launch/benchmark.md).
_GPU = Device(memory=84.9e9, flops=989e12, bandwidth=3352e9, launch=2e-6)


def parse_target(text: str) -> Target:
    """The target of a name such as "tpu-v5e:2x4", "h100:8" or "cpu"."""
    if text == "cpu":
        devices = jax.devices("cpu")[:1]
        return Target(text, Device(memory=machine_memory()), plan_of(devices[0]), devices)
    if match := re.fullmatch(r"h100(?::([1-9]\d*))?", text):
        return _h100(text, int(match[1] or 1))
    match = re.fullmatch(r"tpu-(\w+):([\dx]+)", text)
    if not match or match[2] not in _TPU_TOPOLOGIES.get(match[1], ()):
        raise InputError(f"--target is {text!r}; expected one of {target_names()}")
    return _tpu(text, match[1], match[2])


def target_names() -> str:
    """The names of all targets, for help and messages."""
    slices = (f"tpu-{kind}:{'|'.join(names)}" for kind, names in _TPU_TOPOLOGIES.items())
    return ", ".join(("cpu", "h100:1|2|4|8|...", *slices))


def _tpu(name: str, kind: str, topology: str) -> Target:
    _require_package("libtpu")
    # Without these variables libtpu asks the metadata server of Google Cloud and warns.
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-4")
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    # Several processes compile at a time; none opens a device.
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    bounds = {}
    if kind in ("v5e", "v6e") and topology in _ONE_HOST:
        bounds["chips_per_host_bounds"] = _ONE_HOST[topology]
    devices = _devices(name, platform="tpu", topology_name=f"{kind}:{topology}", **bounds)
    return Target(name, _TPUS[kind], plan_of(devices[0]), devices)


def _h100(name: str, count: int) -> Target:
    _require_package("jax-cuda13-plugin")
    devices = _devices(
        name,
        platform="cuda",
        topology_name="h100",
        target_config=_H100,
        topology=f"1x1x{count}",
    )
    return Target(name, _GPU, plan_of(devices[0]), devices)


def _devices(name: str, **options: Any) -> list[Any]:
    try:
        return list(topologies.get_topology_desc(**options).devices)
    # Another version of the plugin may raise errors of any type from C++.
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"--target is {name}; JAX {jax.__version__} cannot compile for it: {reason}. "
            "Install the versions that belong to this JAX: pip install 'dclm_jax[plan]'"
        ) from error


def _require_package(package: str) -> None:
    """Raises an `InputError` unless the package is installed in a version that JAX asks for."""
    with importing("compiling for this target", "plan"):
        from packaging.requirements import Requirement

    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError as error:
        raise InputError(
            f"the package {package} is missing, which compiles for this target: "
            "pip install 'dclm_jax[plan]'"
        ) from error
    for requirement in map(Requirement, importlib.metadata.requires("jax") or ()):
        if requirement.name == package and not requirement.specifier.contains(version):
            raise InputError(
                f"{package} {version} is installed; JAX {jax.__version__} needs "
                f"{package}{requirement.specifier}: pip install 'dclm_jax[plan]'"
            )
