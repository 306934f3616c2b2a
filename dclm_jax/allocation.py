"""Memory: how much there is, and a setting of the C library's allocator that XLA on CPUs profits
from."""

import ctypes
import os
import resource
import sys

from dclm_jax.errors import InputError

_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def machine_memory() -> int:
    """Bytes that this process can have at most: by the machine, its control group, its limits."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    limits += [limit for limit in resource.getrlimit(resource.RLIMIT_AS) if limit > 0]
    for path in _CGROUP_LIMITS:
        try:
            with open(path, encoding="ascii") as file:
                limits.append(int(file.read()))
        # There is no such file, or "max" in it.
        except (OSError, ValueError):
            continue
    return min(limits)


def require_memory(needed: int, what: str) -> None:
    """Refuses work before memory is taken that is not there.

    Args:
      needed: bytes, at least.
      what: needs them, for the message.
    """
    if needed > (available := machine_memory()):
        needs, has = (f"{size / 2**30:,.1f} GiB" for size in (needed, available))
        raise InputError(f"{what} would take {needs} of memory at least; this machine has {has}")


def keep_freed_memory() -> None:
    """Lets the process keep what it frees, from now on; has an effect with glibc alone.

    XLA on a CPU allocates its working memory at every call and frees it after. Given back to the
    system, it would have to be cleared page by page each time, which costs a tenth of a small step.
    Call it before threads are started: it is for processes that own themselves, not for libraries.
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
