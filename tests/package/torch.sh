#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# torch.sh PREFIX FOLDER COMPILER [LAUNCHER [ROOT]]: a libtorch program finds rondo::torch in the installed package, builds, runs.
set -euo pipefail
prefix=$1 folder=$2 compiler=$3 launcher=${4:-} root=${5:-}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
rm -f "$folder/CMakeCache.txt"

if ! said=$(cmake -S "$here/torch" -B "$folder" -G Ninja "-DCMAKE_CXX_COMPILER=$compiler" "-DCMAKE_PREFIX_PATH=$prefix" \
  "-DCMAKE_CXX_COMPILER_LAUNCHER=$launcher" "-DRONDO_TORCH_ROOT=$root" 2>&1); then
  if [[ $said == *'libtorch is not'* && -z $root ]]; then
    echo 'skipped: libtorch is not installed'
    exit 77
  fi
  echo "$said"
  exit 1
fi
cmake --build "$folder"
OMP_NUM_THREADS=1 "$folder/rondo_torch_consumer"
