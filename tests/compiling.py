"""How tests compile, they and their subprocesses: quickly, because compiling takes far longer here
than running, and each program once for all runs of the tests."""

import contextlib
import hashlib
import os
import pathlib
import platform
from collections.abc import Iterator
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

OPTIMIZED = os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "true") == "false"
"""Whether the programs that users run were asked for."""
_HAS_CHOICE = jax.__version_info__ < (0, 11)
XLA_FLAGS = "--xla_cpu_use_fusion_emitters=false" if _HAS_CHOICE and not OPTIMIZED else ""
"""Of every process. XLA's newer way to emit fusions takes about half of the time; the versions that
know no other die of the flag."""
PLATFORMS = os.environ.setdefault("JAX_PLATFORMS", "cpu")
"""What tests compute on; with an empty variable, what JAX finds. The compilers of the extra `plan`
report in every process that looks for devices in vain."""
TWO_DEVICES: dict[str, Any] = {
    "XLA_FLAGS": f"{XLA_FLAGS} --xla_force_host_platform_device_count=2",
    "JAX_PLATFORMS": "cpu",
}
"""Variables of a process with two devices; their number is fixed when JAX starts."""


_CACHE_BYTES = 4 << 30


def cache_directory() -> pathlib.Path:
    """The directory of compiled programs, one per version of JAX and kind of processor: a program
    of another processor may have instructions that this one lacks."""
    cpu = platform.processor() + platform.machine()
    information = pathlib.Path("/proc/cpuinfo")
    if information.exists():
        lines = information.read_text().splitlines()
        cpu += "".join(sorted({line for line in lines if line.startswith(("flags", "Features"))}))
    name = f"tests-{jax.__version__}-{hashlib.sha256(cpu.encode()).hexdigest()[:8]}"
    root = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(root, "dclm_jax", name)


def bound_cache(directory: pathlib.Path, limit: int = _CACHE_BYTES) -> None:
    """Removes the programs that were used the longest ago, until the others have `limit` bytes."""
    if not directory.is_dir():
        return
    # Another run of the tests may remove some meanwhile.
    programs = []
    for path in directory.iterdir():
        with contextlib.suppress(FileNotFoundError):
            programs.append((path.stat(), path))
    total = 0
    for status, path in sorted(programs, key=lambda entry: entry[0].st_atime, reverse=True):
        total += status.st_size
        if total > limit:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def without_cache() -> Iterator[None]:
    """Neither reads nor writes compiled programs."""
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()
    try:
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", True)
        compilation_cache.reset_cache()


def compile_quickly() -> None:
    """For this process, before it has compiled anything, and those that it will start."""
    variable = os.environ.get("XLA_FLAGS", "")
    if XLA_FLAGS not in variable:
        os.environ["XLA_FLAGS"] = f"{variable} {XLA_FLAGS}".strip()
    jax.config.update("jax_disable_most_optimizations", not OPTIMIZED)
    jax.config.update("jax_platforms", PLATFORMS)
