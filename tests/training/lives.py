"""A run in processes that are forked from one that has imported everything: lives begin quickly."""

import logging
import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path

from dclm_jax.log import logger
from dclm_jax.training import loop
from tests.training.support import config

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.training.lives"])


def begin(data: Path, workdir: Path, cache: Path, values: dict):
    """Starts `train`; returns the process and the end of a pipe that gives its lines."""
    ours, theirs = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=_live, args=(data, workdir, cache, values, theirs))
    process.start()
    theirs.close()
    return process, ours


def _live(data: Path, workdir: Path, cache: Path, values: dict, lines: Connection) -> None:
    import jax

    jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    logger.setLevel(logging.INFO)
    handler = logging.Handler()
    handler.emit = lambda record: lines.send(record.getMessage())
    logger.addHandler(handler)
    loop.train(config(data, **values), workdir)
