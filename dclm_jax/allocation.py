"""The memory of the machine, and a setting of the C library's allocator that makes XLA on CPUs
faster."""

import ctypes
import os
import resource
import sys
from typing import Any

import jax

_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def machine_memory() -> int:
    """Maximum memory of this process in bytes: the least limit of machine, cgroup and process."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    limits += [limit for limit in resource.getrlimit(resource.RLIMIT_AS) if limit > 0]
    for path in _CGROUP_LIMITS:
        try:
            with open(path, encoding="ascii") as file:
                limits.append(int(file.read()))
        # The file does not exist, or contains "max".
        except (OSError, ValueError):
            continue
    return min(limits)


def device_memory() -> int:
    """Bytes that a program can have on one device of this process."""
    statistics = jax.local_devices()[0].memory_stats() or {}
    return statistics.get("bytes_limit", machine_memory())


def peak_memory(compiled: jax.stages.Compiled) -> int:
    """Bytes that a compiled program holds on one device: arguments, results and temporary arrays.
    Results in the buffers of arguments count once."""
    memory: Any = compiled.memory_analysis()
    new = memory.output_size_in_bytes - memory.alias_size_in_bytes
    return (
        memory.argument_size_in_bytes
        + new
        + memory.temp_size_in_bytes
        + memory.generated_code_size_in_bytes
    )


def memory_text(num_bytes: float) -> str:
    """A number of bytes for messages, in MiB or GiB."""
    gib = num_bytes / 2**30
    return f"{gib:,.2f} GiB" if gib >= 1 else f"{num_bytes / 2**20:,.1f} MiB"


def keep_freed_memory() -> None:
    """Makes the process reuse freed memory from now on; it has an effect only with glibc.

    XLA on a CPU allocates and frees its working memory at every call. Memory that was returned to
    the system has to be cleared page by page again, which takes a tenth of the time of a small
    step. Call this function before threads are started, from a program and not from a library.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    # Values of glibc's malloc.h; other C libraries have no mallopt.
    if hasattr(libc, "mallopt"):
        arena_max, mmap_max, trim_threshold = -8, -4, -1
        libc.mallopt(arena_max, 1)
        libc.mallopt(mmap_max, 0)
        libc.mallopt(trim_threshold, 2**31 - 1)
