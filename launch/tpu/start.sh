#!/usr/bin/env bash
# Trains on all hosts of a TPU VM slice. It needs gcloud, logged in, and a slice that is up. An example
# with two hosts, whose Ubuntu 22.04 lacks Python 3.11 (never run on a real slice):
#
#   gcloud compute tpus tpu-vm create slice --accelerator-type=v4-16 --version=tpu-ubuntu2204-base --spot
#   NAME=slice WORKDIR=gs://BUCKET/runs/ccdclm \
#       SETUP='sudo apt-get update -q && sudo apt-get install -qy python3.11-venv' \
#       bash launch/tpu/start.sh --config.data.directory=gs://BUCKET/data/sotu
#
# The script copies this tree to every host, where host.sh sets up an environment and trains. Arguments
# are flags of launch.train. A preempted slice is gone, perhaps before training has saved: create it again
# under the same name and repeat the command. The run resumes from its last checkpoint; a lower
# --config.training.checkpoint_every loses fewer steps. To save and stop:
#
#   gcloud compute tpus tpu-vm ssh slice --worker=all --command="pkill -f '[l]aunch.train'"
#
#   NAME      name of the slice                              dclm-jax
#   ZONE      zone of the slice                              the zone in gcloud's configuration
#   CONFIG    configuration                                  configs/quickstart.py:ccdclm
#   WORKDIR   mounted directory or gs:// address that        /mnt/share/runs/NAME
#             outlives the slice; only the first host
#             needs it
#   SETUP     commands that each host runs first, to mount   none
#             a directory or install Python (3.11 or newer,
#             with venv)
#   JAX       JAX for the hardware                           jax[tpu]
set -euo pipefail
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
name=${NAME:-dclm-jax}
config=${CONFIG:-configs/quickstart.py:ccdclm}
workdir=${WORKDIR:-/mnt/share/runs/$name}
where=(--worker=all ${ZONE:+"--zone=$ZONE"})

if ! command -v gcloud >/dev/null; then
  echo "error: gcloud is missing; see https://cloud.google.com/sdk/docs/install" >&2
  exit 2
fi

archive=$(mktemp -d)
trap 'rm -rf "$archive"' EXIT
tar -czf "$archive/dclm_jax.tar.gz" --exclude=__pycache__ -C "$repository" \
  setup.cfg pyproject.toml README.md LICENSE dclm_jax launch configs
gcloud compute tpus tpu-vm scp "$archive/dclm_jax.tar.gz" "$name:dclm_jax.tar.gz" "${where[@]}"

quoted() { printf '%q ' "$@"; }
gcloud compute tpus tpu-vm ssh "$name" "${where[@]}" --command="mkdir -p dclm_jax &&
tar -xzf dclm_jax.tar.gz -C dclm_jax &&
exec bash dclm_jax/launch/tpu/host.sh $(quoted "${JAX:-jax[tpu]}" "${SETUP:-}") \
$(quoted --config="$config" --workdir="$workdir" "$@")"
