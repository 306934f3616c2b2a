#!/usr/bin/env bash
# Checks everything: lint, format, types, tests. Arguments go to pytest:
#   bash tests/run.sh -k coherence
#   bash tests/run.sh --exhaustive    every model with every cell, 50 kills, long fuzzing, ...
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source launch/environment.sh
prepare_environment "$PWD/.venv" test

step() {
  echo "== $*"
  "$PYTHON" -m "$@"
}

export PYRIGHT_PYTHON_IGNORE_WARNINGS=1
step ruff check .
step ruff format --check .
step pyright --pythonpath "$PYTHON"
# A file of tests is one process's: the runs that it has trained serve all of it. Files go in their own
# order: those with the fewest tests, which come last otherwise, start the most processes.
step pytest -q --numprocesses=2 --dist=loadfile --no-loadscope-reorder "$@"
