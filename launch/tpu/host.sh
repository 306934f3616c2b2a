#!/usr/bin/env bash
# What start.sh runs on each host of a slice: host.sh JAX SETUP FLAG ... (see there).
set -euo pipefail
jax=$1 setup=$2
shift 2
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# Held until training ends, even where the connection is lost: two would share the chips.
exec 9>lock
if ! flock --nonblock 9; then
  echo "error: this slice is training already" >&2
  exit 2
fi
eval "$setup"
source launch/environment.sh
prepare_environment "$PWD/.venv" text
"$PYTHON" -m pip install --quiet --disable-pip-version-check "$jax"

# Prints what the metadata server knows about this host.
about() {
  curl --silent --show-error --fail --header 'Metadata-Flavor: Google' \
    "http://metadata.google.internal/computeMetadata/v1/instance/attributes/$1"
}
process=$(about agent-worker-number)
hosts=$(about worker-network-endpoints)
# By name, or as NAME:NUMBER:ADDRESS.
IFS=, read -ra hosts <<<"$hosts"
exec "$PYTHON" -m launch.train "$@" --coordinator_address="${hosts[0]##*:}:8476" \
  --num_processes="${#hosts[@]}" --process_id="$process"
