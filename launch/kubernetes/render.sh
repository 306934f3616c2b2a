#!/usr/bin/env bash
# Fills in a manifest of this folder and prints it (README.md lists all variables):
#   bash launch/kubernetes/render.sh train --config.data.directory=/storage/data/sotu | kubectl apply -f -
# Arguments after its name are flags of the program that it runs.
set -euo pipefail

declare -A values=(
  [NAME]=${NAME:-dclm-jax}
  [IMAGE]=${IMAGE:-dclm_jax:latest}
  [CLAIM]=${CLAIM:-dclm-jax}
  [ACCESS]=${ACCESS:-ReadWriteMany}
  [SIZE]=${SIZE:-20Gi}
  [CONFIG]=${CONFIG:-configs/quickstart.py:ccdclm}
  [WORKDIR]=${WORKDIR:-/storage/runs/${NAME:-dclm-jax}}
  [PROCESSES]=${PROCESSES:-2}
  [PORT]=${PORT:-8476}
  [CPUS]=${CPUS:-2}
  [MEMORY]=${MEMORY:-8Gi}
  [GPUS]=${GPUS:-0}
  # A process that crashes takes all pods with it, and each of them counts.
  [FAILURES]=$((${RETRIES:-3} * ${PROCESSES:-2}))
  [GRACE]=${GRACE:-120}
)

template=$(dirname "${BASH_SOURCE[0]}")/${1:-}.yaml
if [[ ! -f $template ]]; then
  echo "usage: render.sh prepare|train [FLAG ...]" >&2
  exit 2
fi
shift
# A quoted item of the list of arguments for each flag.
flags=
for flag; do
  flags+="${flags:+$'\n            '}- '${flag//\'/\'\'}'"
done
values[FLAGS]=$flags

manifest=$(<"$template")
for name in "${!values[@]}"; do
  manifest=${manifest//"\${$name}"/"${values[$name]}"}
done
printf '%s\n' "$manifest"
