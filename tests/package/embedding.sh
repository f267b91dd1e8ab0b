#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# embedding.sh SOURCE FOLDER COMPILER: a project adds this tree, has targets called as programs here, and chooses the
# kind of library.
set -euo pipefail
source=$1 folder=$2 compiler=$3
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
rm -rf "$folder"

configure() { # kind of library, more flags
  local type=$1
  shift
  cmake -S "$here/embedding" -B "$folder" -G Ninja "-DCMAKE_CXX_COMPILER=$compiler" "-DRONDO=$source" -DRONDO_CUDA=OFF \
    "-DLIBRARY_TYPE=$type" "$@"
}
configure SHARED_LIBRARY
configure STATIC_LIBRARY -DBUILD_SHARED_LIBS=OFF
# The layers lie in the archive: the package names none of them.
if grep --recursive --line-number 'rondo_[a-z]' "$folder/rondo/CMakeFiles/Export"; then exit 1; fi
