#!/usr/bin/env bash
# Trains RNNLM and CCDCLM on the embedded State of the Union corpus, evaluates both, compares them:
#   bash launch/quickstart.sh [FOLDER]        (default folder: runs/quickstart)
# Run again, it reuses everything that is there; stopped half-way, it goes on from there.
set -euo pipefail
folder=${1:-runs/quickstart}
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# The default is inside the repository; a folder from the command line is relative to the caller.
if [[ $# -gt 0 && $folder != /* ]]; then
  folder=$PWD/$folder
fi
cd "$repository"
source launch/environment.sh
prepare_environment "$PWD/.venv" text,plots

launch() {
  echo "== python -m launch.$*"
  "$PYTHON" -m "launch.$@"
}

launch prepare --corpus=sotu --output="$folder/data"

for model in rnnlm ccdclm; do
  run=$folder/$model
  launch train --config="configs/quickstart.py:$model" --workdir="$run" \
    --config.data.directory="$folder/data"
  # Training appends to metrics.jsonl: results newer than that file belong to the finished run.
  if [[ ! $run/perplexity.json -nt $run/metrics.jsonl ]]; then
    launch evaluate --workdir="$run" --split=test --output="$run/perplexity.json"
  fi
  if [[ ! $run/coherence.json -nt $run/metrics.jsonl ]]; then
    launch coherence --workdir="$run" --split=test --permutations=5 --output="$run/coherence.json"
  fi
done

launch report --quick --workdirs="$folder/rnnlm,$folder/ccdclm" --output="$folder"
