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

# quietly COMMAND...: run it, and show what it printed only if it failed.
quietly() {
  local log
  log=$(mktemp)
  if ! "$@" >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
}

# fill VENV TAG PIP-ARGUMENTS...: make VENV if need be, install into it, and remember the tag.
fill() {
  local venv=$1 tag=$2 python
  shift 2
  rm -f "$venv/mixer-installed"
  if [ ! -x "$venv/bin/python" ]; then
    python=$(find_python)
    quietly "$python" -m venv "$venv"
    # Resolving takes a new pip half the time that it takes the one which comes with Python.
    quietly "$venv/bin/python" -m pip install --upgrade pip
  fi
  quietly "$venv/bin/python" -m pip install --prefer-binary "$@"
  echo "$tag" >"$venv/mixer-installed"
}
