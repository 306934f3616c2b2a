#!/usr/bin/env bash
# Trains on all hosts of a TPU VM slice; needs gcloud, logged in, and a slice that is up:
#
#   gcloud compute tpus tpu-vm create slice --accelerator-type=... --version=... --spot
#   NAME=slice WORKDIR=/mnt/share/runs/ccdclm bash launch/tpu/start.sh \
#       --config.data.directory=/mnt/share/data/ptb
#
# Copies this tree to every host, where host.sh sets up an environment and trains; arguments are flags
# of launch.train. If the slice is preempted, create it again under the same name and repeat the command:
# the run resumes. To stop and save:
#
#   gcloud compute tpus tpu-vm ssh slice --worker=all --command="pkill -f '[l]aunch.train'"
#
#   NAME      of the slice                                   dclm-jax
#   ZONE      of the slice                                   that of gcloud's configuration
#   CONFIG    configuration                                  configs/quickstart.py:ccdclm
#   WORKDIR   on a file system that all hosts mount and      /mnt/share/runs/NAME
#             that outlives the slice, such as NFS
#   SETUP     what each host runs first, to mount that or    none
#             to install Python (3.11 or newer, with venv)
#   JAX       what to install for the hardware               jax[tpu]
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
