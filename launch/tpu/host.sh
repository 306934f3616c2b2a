#!/usr/bin/env bash
# start.sh runs this script on each host of a slice: host.sh JAX SETUP FLAG ... (see start.sh).
set -euo pipefail
jax=$1 setup=$2
shift 2
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# The lock is held until training ends, even if the connection is lost: two trainings would share chips.
exec 9>lock
if ! flock --nonblock 9; then
  echo "error: this slice is training already; stop that job (see start.sh) or wait for its end" >&2
  exit 2
fi
eval "$setup"
source launch/environment.sh
prepare_environment "$PWD/.venv" text
# The second package is for gs:// addresses.
"$PYTHON" -m pip install --quiet --disable-pip-version-check "$jax" 'etils[epath-gcs]'

# Prints an attribute of this host from the metadata server.
about() {
  curl --silent --show-error --fail --header 'Metadata-Flavor: Google' \
    "http://metadata.google.internal/computeMetadata/v1/instance/attributes/$1"
}
process=$(about agent-worker-number)
hosts=$(about worker-network-endpoints)
# Each is a name, or NAME:NUMBER:ADDRESS.
IFS=, read -ra hosts <<<"$hosts"
exec "$PYTHON" -m launch.train "$@" --coordinator_address="${hosts[0]##*:}:8476" \
  --num_processes="${#hosts[@]}" --process_id="$process"
