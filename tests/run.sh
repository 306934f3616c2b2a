#!/usr/bin/env bash
# Checks everything: lint, format, types, tests. Arguments go to pytest:
#   bash tests/run.sh -k coherence
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
# A file of tests is one process's: what it has compiled, and runs it has trained, serve all of it.
step pytest -q --numprocesses=2 --dist=loadfile "$@"
