"""The benchmarks by name, with their peers and goals."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dclm_jax.benchmark import contests, footprint, generation, ours, report, rescoring
from dclm_jax.benchmark.contests import (
    DYNET_AUTOBATCH,
    DYNET_BY_WORD,
    DYNET_ONLINE,
    FLOPS,
    PYTORCH,
    Training,
)
from dclm_jax.benchmark.report import Goal, Row
from dclm_jax.benchmark.timing import alternate
from dclm_jax.benchmark.workloads import MATRIX_PRODUCT, Setting

_COUPLED = "coupled_peephole_lstm"
ROWS: dict[str, Callable[[str, Setting], list[Row]]] = {
    "train_ccdclm_16": Training("ccdclm", 16, PYTORCH, Goal(2.0, 2.5)),
    "train_ccdclm_64": Training("ccdclm", 64, PYTORCH, Goal(0.5, 0.6, FLOPS), num_batches=2),
    "train_codclm_16": Training("codclm", 16, PYTORCH, Goal(2.2, 2.7)),
    "train_rnnlm_16": Training("rnnlm", 16, PYTORCH, Goal(2.2, 2.7)),
    "train_adclm_16": Training("adclm", 16, PYTORCH, Goal(2.0, 2.5)),
    "train_hierarchical_autoencoder_32": Training(
        "hierarchical_autoencoder", 32, PYTORCH, Goal(1.5, 2.0), num_batches=2
    ),
    "train_hierarchical_attention_autoencoder_32": Training(
        "hierarchical_attention_autoencoder", 32, PYTORCH, Goal(1.5, 2.0), num_batches=2
    ),
    "train_ccdclm_1": Training("ccdclm", 1, PYTORCH, Goal(1.8, 2.5), num_batches=16),
    "dynet_autobatch_16": Training("ccdclm", 16, (DYNET_AUTOBATCH,), Goal(3.5, 5), _COUPLED),
    "dynet_online_1": Training(
        "ccdclm", 1, (DYNET_ONLINE, DYNET_BY_WORD), Goal(6, 8), _COUPLED, num_batches=16
    ),
    "score_ccdclm_16": contests.score_row,
    "bootstrap_codclm": footprint.bootstrap_row,
    "rescore_ccdclm": rescoring.rescore_row,
    "generate_ccdclm": partial(generation.generate_rows, "ccdclm", generation.after_text),
    "generate_hierarchical_attention_autoencoder": partial(
        generation.generate_rows, "hierarchical_attention_autoencoder", generation.after_source
    ),
    "input_16": partial(footprint.input_row, 16),
    "input_64": partial(footprint.input_row, 64),
    "output_memory": footprint.output_memory_row,
    "growth": footprint.growth_rows,
    "startup": footprint.startup_row,
}
HEADLINE = "train_ccdclm_16"
"""The benchmark of the quick suite; its ratio is the field "ratio" of the JSON file."""
_CPU_ROWS = tuple(ROWS)


_PRECISIONS = ("default", "highest", "bfloat16")
# PyTorch has no peer of models that carry a state from sentence to sentence.
_WITHOUT_PEER = ("drnnlm", "hrnnlm")
ROWS |= {
    f"{model}_{segments}x{hidden_dim}_{precision}": Training(
        model,
        segments,
        () if model in _WITHOUT_PEER else PYTORCH[:1],
        None,
        num_batches=2,
        hidden_dim=hidden_dim,
        precision=precision,
    )
    for models, segments, hidden_dim, precisions in (
        (("rnnlm", "drnnlm", "hrnnlm", "ccdclm", "codclm", "adclm"), 64, 128, ("default",)),
        (("rnnlm", "ccdclm", "adclm"), 256, 512, _PRECISIONS),
        (("rnnlm", "ccdclm"), 1024, 1024, _PRECISIONS),
    )
    for model in models
    for precision in precisions
}
SUITES = {
    "full": _CPU_ROWS,
    "quick": (HEADLINE,),
    "accelerator": tuple(name for name in ROWS if name not in _CPU_ROWS),
}


def run(names: Sequence[str], setting: Setting, show: Callable[[str], None]) -> dict[str, Any]:
    """Runs benchmarks, shows each result as text when it is available, and returns all results as
    a JSON object.

    Raises:
      PeerError: a peer failed, or computes a different loss.
    """
    machine = report.machine()
    show("{cpu}, {cores} cores; JAX on {devices} x {device} ({platform})".format(**machine))
    for library in contests.missing_libraries((*PYTORCH, DYNET_ONLINE)):
        show(contests.how_to_install(library))
    product = ours.MatrixProduct()
    product.turn()
    seconds = alternate({MATRIX_PRODUCT: product.turn}, setting.rounds).seconds[MATRIX_PRODUCT]
    show(report.HEADER)
    results: dict[str, list[Row]] = {}
    for name in names:
        results[name] = ROWS[name](name, setting)
        for row in results[name]:
            show(report.row_text(row))
    first = results.get(HEADLINE, [])
    return {
        "machine": machine,
        "versions": report.versions(),
        "matrix_product_flops_per_second": product.flops / seconds,
        "rounds": setting.rounds,
        "seed": setting.seed,
        "ratio": first[0].measured if first else None,
        "rows": [row.to_json() for rows in results.values() for row in rows],
    }
