"""Compiles a run for a target machine, and prints the run's memory and estimated speed.

    python -m launch.plan --config=configs/your_text.py:adclm --target=tpu-v5e:2x4 \\
        --config.data.directory=data/ptb
    python -m launch.plan --config=configs/your_text.py:adclm --target=h100:8 \\
        --shape=512,5,32 --vocab_size=10003

The command compiles scoring, and the training step for each batch shape of the corpus or for
--shape. No device is needed and nothing is run. The command needs the optional packages of the
extra `plan`:

    pip install -e '.[plan]'

On a TPU the time is XLA's estimate of the cycles of every kernel. XLA has no estimate for a fused
token scan, whose time is the time of its memory traffic. On an H100 the time is a roofline
estimate. Each loop takes its launch time or its memory-traffic time, whichever is longer. The total
is at least the time of all matrix products. Neither time includes all-reduces between devices.
Compilation takes seconds to minutes per shape.
"""

import functools
import re
import sys
from collections.abc import Sequence

import jax
from absl import flags

from dclm_jax import files
from dclm_jax.errors import InputError
from dclm_jax.planning import report, targets
from dclm_jax.planning.programs import Workload
from launch import _app, _training

flags.adopt_module_key_flags(_training)
_TARGET = flags.DEFINE_string("target", None, f"Machine to compile for: {targets.target_names()}.")
_SHAPE = flags.DEFINE_string(
    "shape",
    None,
    "Shape of a global batch, SEGMENTS,SENTENCES,TOKENS, in place of the shapes of the corpus.",
)
_VOCAB_SIZE = flags.DEFINE_integer("vocab_size", None, "Size of the vocabulary, with --shape.")
_OUTPUT = flags.DEFINE_string("output", None, "JSON file for the result; '-' is standard output.")


def main(argv: Sequence[str]) -> None:
    del argv
    # No device is opened; the CUDA plugin would refuse to work without cuDNN and a driver.
    jax.config.update("jax_platforms", "cpu")
    # JAX cannot load the programs of machines that are not there.
    jax.config.update("jax_enable_compilation_cache", False)
    target = targets.parse_target(_app.required("target", "MACHINE, such as h100"))
    workload = _workload()
    # Standard output has only the JSON.
    stream = sys.stderr if _OUTPUT.value == "-" else sys.stdout
    say = functools.partial(print, file=stream, flush=True)
    result = report.plan(workload, target, say=say)
    for line in ("", *report.lines(result)):
        say(line)
    if _OUTPUT.value:
        files.write_json(_OUTPUT.value, report.as_json(result))


def _workload() -> Workload:
    config = _training.config()
    if _SHAPE.value is None:
        if _VOCAB_SIZE.value is not None:
            raise InputError("--vocab_size has no effect without --shape; give both or neither")
        return report.workload_of_run(config)
    if not re.fullmatch(r"[1-9]\d*(,[1-9]\d*){2}", _SHAPE.value):
        raise InputError(f"--shape={_SHAPE.value}; expected SEGMENTS,SENTENCES,TOKENS, all above 0")
    if _VOCAB_SIZE.value is None or _VOCAB_SIZE.value < 1:
        raise InputError("--vocab_size is missing; add the size of the vocabulary, with --shape")
    segments, sentences, tokens = map(int, _SHAPE.value.split(","))
    return report.workload_of_shape(config, (segments, sentences, tokens), _VOCAB_SIZE.value)


if __name__ == "__main__":
    _app.run(main, _training.parse)
