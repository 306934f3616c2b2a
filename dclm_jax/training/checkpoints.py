"""Checkpoints of a run, the only module that knows orbax.

WORKDIR/
  config.json               the configuration, enough to rebuild the model
  vocabulary.tsv            the vocabulary
  checkpoints/latest/STEP   for resuming: state and progress, the two newest
  checkpoints/best/STEP     for use: parameters at the best development perplexity, the two newest

Saves are asynchronous and atomic: a directory without `tmp` in its name is complete.
"""

import json
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp

from dclm_jax import models
from dclm_jax.data.vocabulary import Vocabulary
from dclm_jax.errors import InputError
from dclm_jax.models.base import DocumentModel, Params
from dclm_jax.training import config as configuration

CONFIG_FILE = "config.json"
VOCABULARY_FILE = "vocabulary.tsv"


class RestoredRun(NamedTuple):
    """What evaluation needs of a run; `info` is {"step", "perplexity", "vocabulary", ...}."""

    model: DocumentModel
    params: Params
    vocabulary: Vocabulary
    config: dict[str, Any]
    step: int
    info: dict[str, Any]


class Checkpoints:
    """The checkpoints of one run, written and read by `training.loop`."""

    def __init__(self, workdir: Path):
        self._latest = _manager(workdir / "checkpoints" / "latest", create=True)
        self._best = _manager(workdir / "checkpoints" / "best", create=True)

    def restore(self, template: Any) -> tuple[Any, dict[str, Any]] | None:
        """The newest readable state and its progress, or None in a new workdir.

        Everything ahead of it is removed: the run is about to write those steps again.

        Raises:
          InputError: checkpoints exist and none can be read.
        """
        found = _restore_newest(self._latest, {"state": _abstract(template)}, "progress")
        if found is None:
            return None
        step, trees, progress = found
        for manager in (self._latest, self._best):
            for later in [other for other in manager.all_steps() if other > step]:
                manager.delete(later)
        return trees["state"], progress

    def save_latest(self, state: Any, progress: Mapping[str, Any]) -> None:
        """Saves for resuming; `state` must have a `step`. Returns before the files are written."""
        _save(self._latest, int(state.step), {"state": state}, "progress", progress)

    def save_best(self, step: int, params: Params, info: Mapping[str, Any]) -> None:
        """Saves for use."""
        _save(self._best, step, {"params": params}, "info", info)

    def close(self) -> None:
        """Waits until everything is on disk."""
        self._latest.close()
        self._best.close()


def claim_workdir(workdir: Path, config: Mapping[str, Any], vocabulary: Vocabulary) -> None:
    """Writes configuration and vocabulary into a new workdir; checks those of an existing one.

    Raises:
      InputError: the workdir holds a run with another configuration or vocabulary.
    """
    config_path, vocabulary_path = workdir / CONFIG_FILE, workdir / VOCABULARY_FILE
    if config_path.exists() and vocabulary_path.exists():
        if different := configuration.differences(read_config(workdir), config):
            more = f" (and {len(different) - 1} more)" if len(different) > 1 else ""
            raise InputError(
                f"{workdir} holds a run with another configuration: {different[0]}{more}"
            )
        if Vocabulary.load(vocabulary_path).fingerprint != vocabulary.fingerprint:
            raise InputError(
                f"{workdir} holds a run with another vocabulary than {config['data']['directory']}"
            )
        return
    workdir.mkdir(parents=True, exist_ok=True)
    vocabulary.save(vocabulary_path)
    temporary = config_path.with_suffix(".tmp")
    temporary.write_text(json.dumps(config, indent=2) + "\n")
    temporary.replace(config_path)


def read_config(workdir: Path) -> dict[str, Any]:
    """The configuration a run was started with.

    Raises:
      InputError: the workdir is missing or holds none that can be read.
    """
    path = workdir / CONFIG_FILE
    if not path.is_file():
        raise InputError(f"{workdir} holds no run: {CONFIG_FILE} is missing")
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a JSON file ({error})") from error
    configuration.check_saved(config, str(path))
    return config


def restore_run(workdir: str | Path) -> RestoredRun:
    """Model, best parameters and vocabulary of a run, on whatever devices there are.

    Raises:
      InputError: the workdir holds no run, no finished evaluation yet, or nothing readable.
    """
    workdir = Path(workdir)
    config = read_config(workdir)
    vocabulary = Vocabulary.load(workdir / VOCABULARY_FILE)
    options = dict(config["model"])
    model = models.create(options.pop("name"), vocab_size=len(vocabulary), **options)
    directory = workdir / "checkpoints" / "best"
    found = None
    if directory.is_dir():
        template = jax.eval_shape(model.init, jax.random.key(0))
        with _manager(directory, create=False) as manager:
            found = _restore_newest(manager, {"params": _abstract(template)}, "info")
    if found is None:
        raise InputError(
            f"{workdir} has no checkpoint to use yet: train until the first evaluation"
        )
    step, trees, info = found
    if info["vocabulary"] != vocabulary.fingerprint:
        raise InputError(
            f"{directory / str(step)} is for another vocabulary than {workdir / VOCABULARY_FILE}"
        )
    return RestoredRun(model, trees["params"], vocabulary, config, step, info)


def _manager(directory: Path, *, create: bool) -> ocp.CheckpointManager:
    # Orbax logs every save, and it and asyncio every damaged file: the run has its own lines.
    for name in ("absl", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    options = ocp.CheckpointManagerOptions(max_to_keep=2, create=create, read_only=not create)
    return ocp.CheckpointManager(directory.absolute(), options=options)


def _save(
    manager: ocp.CheckpointManager,
    step: int,
    trees: Mapping[str, Any],
    json_name: str,
    values: Mapping[str, Any],
) -> None:
    if step in manager.all_steps():
        return
    # Copies: on CPU a device_get shares its buffer with the device, which the next step reuses.
    copies = jax.tree.map(np.array, trees)
    items: dict[str, Any] = {name: ocp.args.StandardSave(tree) for name, tree in copies.items()}
    items[json_name] = ocp.args.JsonSave(dict(values))
    manager.save(step, args=ocp.args.Composite(**items), force=True)


def _restore_newest(
    manager: ocp.CheckpointManager, templates: Mapping[str, Any], json_name: str
) -> tuple[int, Any, dict[str, Any]] | None:
    """The newest checkpoint that can be read, with a line on stderr for each that cannot."""
    steps = sorted(manager.all_steps(), reverse=True)
    for step in steps:
        items: dict[str, Any] = {
            name: ocp.args.StandardRestore(tree) for name, tree in templates.items()
        }
        items[json_name] = ocp.args.JsonRestore()
        try:
            restored = manager.restore(step, args=ocp.args.Composite(**items))
        # A damaged file surfaces as whatever the storage layer that trips over it raises.
        except Exception as error:
            where = manager.directory / str(step)
            reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
            print(f"warning: {where} cannot be read ({reason})", file=sys.stderr, flush=True)
            continue
        if step != steps[0]:
            print(f"warning: using step {step} instead", file=sys.stderr, flush=True)
        return step, {name: restored[name] for name in templates}, restored[json_name]
    if steps:
        raise InputError(f"no checkpoint in {manager.directory} can be read")
    return None


def _abstract(template: Any) -> Any:
    """Shapes and dtypes on one local device, whatever devices wrote the checkpoint."""
    sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), template
    )
