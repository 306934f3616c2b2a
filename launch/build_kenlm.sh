#!/usr/bin/env bash
# Builds KenLM's programs lmplz and build_binary, which launch.ngram needs, and query:
#   bash launch/build_kenlm.sh [FOLDER]        (default folder: .kenlm/bin in the repository)
# The source is that of the Python package kenlm on PyPI. MAX_ORDER=8 builds for longer n-grams than 6;
# the package needs the same: MAX_ORDER=8 pip install kenlm. Run again, it finds the programs there.
set -euo pipefail
folder=${1:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/.kenlm/bin}
if [[ $folder != /* ]]; then
  folder=$PWD/$folder
fi
max_order=${MAX_ORDER:-6}
programs=(lmplz build_binary query)

fail() {
  echo "error: $1" >&2
  exit 2
}

# Whether all programs are there, and can be run: query names its largest order in its usage.
is_built() {
  local program
  for program in "${programs[@]}"; do
    [[ -x $folder/$program ]] || return 1
  done
  [[ $("$folder/query" --help 2>&1) == *"maximum order $max_order."* ]]
}

finish() {
  echo "$1: ${programs[*]} in $folder"
  echo "now: export KENLM_BIN=$folder"
  exit
}

if is_built; then
  finish "already built"
fi

packages="on Debian and Ubuntu: apt install cmake make g++ libboost-all-dev"
for tool in cmake make g++; do
  command -v "$tool" >/dev/null || fail "$tool is missing; $packages"
done
for header in program_options thread; do
  g++ -E -x c++ - <<<"#include <boost/$header.hpp>" >/dev/null 2>&1 ||
    fail "the Boost libraries are missing; $packages"
done
python3 -m pip --version >/dev/null 2>&1 ||
  fail "python3 has no pip; activate the environment of this project first"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Runs a step with its output in a log, and shows the end of that if the step fails.
step() {
  echo "== $1"
  if ! "${@:2}" >"$work/log" 2>&1; then
    tail -n 20 "$work/log" >&2
    fail "'$1' failed; its last lines are above"
  fi
}

# Only kenlm itself from source: the tools that pip wants for reading its metadata are large.
step "download the source" python3 -m pip download --disable-pip-version-check --no-deps \
  --no-binary kenlm --dest "$work" kenlm
mkdir "$work/source" "$work/build"
tar -xzf "$work"/kenlm-*.tar.gz -C "$work/source" --strip-components=1
# Boost's system has been headers alone since 1.69, and its library is gone since 1.89; the other is
# for KenLM's own tests.
sed -i.original -e '/^ *system *$/d' -e '/^ *unit_test_framework *$/d' "$work/source/CMakeLists.txt"
step "configure" cmake -S "$work/source" -B "$work/build" -DCMAKE_BUILD_TYPE=Release \
  -DENABLE_INTERPOLATE=OFF -DKENLM_MAX_ORDER="$max_order"
step "build (some minutes)" cmake --build "$work/build" --parallel "$(nproc 2>/dev/null || echo 2)" \
  --target "${programs[@]}"

mkdir -p "$folder" || fail "$folder: cannot be written"
for program in "${programs[@]}"; do
  # Beside its place first, so that a program is whole or absent.
  cp "$work/build/bin/$program" "$folder/.$program.new" || fail "$folder: cannot be written"
  mv "$folder/.$program.new" "$folder/$program"
done
is_built || fail "the programs in $folder do not run"
finish "built"
