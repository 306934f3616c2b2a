# Sourced by launch/quickstart.sh and tests/run.sh, from any directory; needs bash and Python >= 3.11.
#
#   prepare_environment DIRECTORY EXTRAS
#
# makes the virtual environment DIRECTORY, installs this repository into it as `-e .[EXTRAS]`, and sets
# PYTHON to its interpreter. A stamp file for each set of extras is written after a complete installation,
# so that a later call installs nothing until setup.cfg, pyproject.toml or the repository's place changes.

find_python() {
  local candidate
  for candidate in python3.14 python3.13 python3.12 python3.11 python3; do
    # Being on the PATH is not enough: version managers leave names there that only print an error.
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
      echo "$candidate"
      return
    fi
  done
  echo "error: Python 3.11 or newer is needed; none of python3.14 ... python3.11, python3 is one" >&2
  return 2
}

prepare_environment() {
  local directory=$1 extras=$2
  local repository stamp wanted base
  repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
  PYTHON=$directory/bin/python

  if ! "$PYTHON" -c '' >/dev/null 2>&1; then
    base=$(find_python) || return
    rm -rf "$directory"
    if ! "$base" -m venv "$directory"; then
      rm -rf "$directory"
      echo "error: '$base -m venv' failed; on Debian and Ubuntu: apt install python3-venv" >&2
      return 2
    fi
  fi

  stamp=$directory/installed-${extras//,/-}
  wanted=$({ echo "$repository $extras"; cat "$repository/setup.cfg" "$repository/pyproject.toml"; } | cksum)
  if [[ -f $stamp && $(<"$stamp") == "$wanted" ]]; then
    return
  fi
  echo "installing dclm_jax[$extras] into $directory (the first time takes a few minutes)"
  rm -f "$stamp"
  "$PYTHON" -m pip install --quiet --disable-pip-version-check --editable "$repository[$extras]" || return
  echo "$wanted" >"$stamp"
}
