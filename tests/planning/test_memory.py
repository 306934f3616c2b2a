"""The memory that `launch.plan` states for this machine, beside the memory that steps take."""

import subprocess
import sys

import pytest

MEASURE = """
import sys

import jax
import jax.numpy as jnp
import numpy as np

from dclm_jax import models
from dclm_jax.allocation import peak_memory
from dclm_jax.data.batches import Batch
from dclm_jax.training.config import OptimizerConfig
from dclm_jax.training.loop import first_shapes
from dclm_jax.training.optimizer import create_optimizer
from dclm_jax.training.step import parallel_step, spread_rows


def memory(key):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(key))


model = models.create(name=sys.argv[1], vocab_size=40_000, embedding_dim=512, hidden_dim=512)
optimizer = create_optimizer(OptimizerConfig(), 1)
shapes, key = first_shapes(model, optimizer), jax.random.key(0)
ids = np.ones((64, 5, 32), np.int32)
batch = spread_rows(Batch(tokens_BxSxN=ids, targets_BxSxN=ids, mask_BxSxN=ids > 0))
step = parallel_step(model, optimizer).lower(shapes, batch, key).compile()
before = memory("VmRSS")
# The peak of the process starts anew.
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
state = jax.tree.map(lambda leaf: jnp.ones(leaf.shape, leaf.dtype), shapes)
for _ in range(2):
    state, metrics = step(state, batch, key)
jax.block_until_ready((state, metrics))
print(peak_memory(step) / (memory("VmHWM") - before))
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["rnnlm", "ccdclm", "adclm"])
def test_planned_memory_is_the_measured_peak(name):
    """About 1.5 GB, beside which the runtime's own 50 MB are few."""
    run = subprocess.run(
        [sys.executable, "-c", MEASURE, name], capture_output=True, text=True, check=True
    )
    assert float(run.stdout) == pytest.approx(1, abs=0.1)
