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
  [RETRIES]=${RETRIES:-3}
  [GRACE]=${GRACE:-120}
)

template=$(dirname "${BASH_SOURCE[0]}")/${1:-}.yaml
if [[ ! -f $template ]]; then
  echo "usage: render.sh prepare|train [FLAG ...]" >&2
  exit 2
fi
shift
for name in PROCESSES PORT GPUS RETRIES GRACE; do
  # Bash and YAML read numbers with a leading zero as octal.
  if [[ ! ${values[$name]} =~ ^(0|[1-9][0-9]*)$ ]]; then
    echo "error: $name is '${values[$name]}'; expected a whole number without leading zeros" >&2
    exit 2
  fi
done
# A process that crashes takes all pods with it, and each of them counts.
values[FAILURES]=$((values[RETRIES] * values[PROCESSES]))

# Escapes a value between single quotes of YAML, where only a quote is special. Kubernetes expands $(NAME)
# in arguments.
escape() {
  if [[ $1 =~ [[:cntrl:]] ]]; then
    echo "error: '$1' has a line break or another control character; remove it" >&2
    exit 2
  fi
  escaped=${1//\'/\'\'}
  escaped=${escaped//'$('/'$$('}
}

for name in "${!values[@]}"; do
  escape "${values[$name]}"
  values[$name]=$escaped
done
flags=
for flag; do
  escape "$flag"
  flags+="${flags:+$'\n            '}- '$escaped'"
done
values[FLAGS]=$flags

rest=$(<"$template")
manifest=
while [[ $rest =~ \$\{([A-Z]+)\} ]]; do
  manifest+=${rest%%"${BASH_REMATCH[0]}"*}${values[${BASH_REMATCH[1]}]}
  rest=${rest#*"${BASH_REMATCH[0]}"}
done
printf '%s\n' "$manifest$rest"
