#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# find.sh PREFIX FOLDER COMPILER: what find_package(rondo ...) accepts, and the sentences of what it refuses.
set -euo pipefail
prefix=$1 folder=$2 compiler=$3
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
rm -rf "$folder"
mkdir -p "$folder"

configure() { # more flags
  cmake -S "$here/found" -B "$folder" -G Ninja "-DCMAKE_CXX_COMPILER=$compiler" "-DCMAKE_PREFIX_PATH=$prefix" \
    "-DRONDO_TORCH_ROOT=$folder/nowhere" "$@" 2>&1
}
refused() { # component, what the sentence says
  local said
  if said=$(configure "-DREQUIRED_COMPONENT=$1") || [[ $(tr --squeeze-repeats ' \n' ' ' <<<"$said") != *"$2"* ]]; then
    printf 'a required component %s:\n%s\n' "$1" "$said"
    exit 1
  fi
}

configure
refused torch "libtorch is not in RONDO_TORCH_ROOT=$folder/nowhere: install libtorch-dev, or set RONDO_TORCH_ROOT"
refused python 'rondo has no component python; its only one is torch.'
