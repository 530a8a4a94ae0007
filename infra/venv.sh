# shellcheck shell=bash
# Sourced by infra/demo, infra/test and .ci/run: one way to find a Python and to fill a virtual environment.

export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

# Print the first Python of 3.11 or newer; PYTHON=... goes before all others.
find_python() {
  local python
  for python in ${PYTHON:+"$PYTHON"} python3 python3.14 python3.13 python3.12 python3.11 python; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$python"
      return
    fi
  done
  echo "No Python of 3.11 or newer was found. Install one, or name it: PYTHON=/path/to/python3.12 $0" >&2
  return 1
}

# Print a digest of the named files and folders, without what Python leaves behind in them.
digest_of() {
  find "$@" -type f ! -name '*.pyc' -print0 | LC_ALL=C sort -z | xargs -0 cksum | cksum
}

# installed VENV TAG: whether the last fill of VENV was done with exactly this tag.
installed() {
  [ -x "$1/bin/python" ] && [ "$(cat "$1/mixer-installed" 2>/dev/null)" = "$2" ]
}

# fill VENV TAG PIP-ARGUMENTS...: make VENV if need be, install into it, and remember the tag.
# pip is silent unless it fails; a warning of pip's own is of no use to who only wants the result.
fill() {
  local venv=$1 tag=$2 log python
  shift 2
  log=$(mktemp)
  rm -f "$venv/mixer-installed"
  if [ ! -x "$venv/bin/python" ]; then
    python=$(find_python)
    "$python" -m venv "$venv"
  fi
  if ! "$venv/bin/python" -m pip install --quiet --prefer-binary "$@" >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
  echo "$tag" >"$venv/mixer-installed"
}
