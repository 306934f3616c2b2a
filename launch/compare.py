"""Prints one table of finished runs and draws their learning curves.

Each work directory must hold what training, evaluation and coherence write:

    python -m launch.train     --config=configs/quickstart.py:ccdclm --workdir=RUN ...
    python -m launch.evaluate  --workdir=RUN --split=test --output=RUN/perplexity.json
    python -m launch.coherence --workdir=RUN --split=test --output=RUN/coherence.json
    python -m launch.compare   --workdirs=RUN,OTHER_RUN --plot=learning_curves.png
"""

from collections.abc import Sequence

from absl import flags

from dclm_jax.evaluation import compare
from launch import _app

_WORKDIRS = flags.DEFINE_list(
    "workdirs", None, "Work directories to compare, separated by commas.", required=True
)
_PLOT = flags.DEFINE_string(
    "plot", None, "Picture to draw: validation perplexity against training tokens (PNG, PDF, SVG)."
)


def main(argv: Sequence[str]) -> None:
    del argv
    runs = compare.read_runs(_WORKDIRS.value)
    print(compare.comparison_table(runs))
    if _PLOT.value:
        compare.plot_learning_curves(runs, _PLOT.value)
        print(f"Learning curves: {_PLOT.value}")


if __name__ == "__main__":
    _app.run(main)
