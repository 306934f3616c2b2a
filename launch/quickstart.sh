#!/usr/bin/env bash
# Trains a model without context and a model with context on the embedded State of the Union corpus,
# and reports whether context helps:
#   bash launch/quickstart.sh [FOLDER]        (default folder: runs/quickstart)
# Run again, it reuses all results; stopped half-way, it resumes.
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

launch prepare --corpus=sotu --subwords=5000 --split_documents_at=600 --output="$folder/data"

for model in rnnlm pointer_drnnlm; do
  run=$folder/$model
  launch train --config="configs/quickstart.py:$model" --workdir="$run" \
    --config.data.directory="$folder/data"
done

# Results are saved in the runs: only runs that were trained since are measured again.
launch report --workdirs="$folder/rnnlm,$folder/pointer_drnnlm" --measure \
  --output="$folder" --html="$folder/report.html" --bootstrap=100 --permutation_pool=2

echo
head -n 1 "$folder/report.md"
