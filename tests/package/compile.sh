#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# compile.sh PREFIX FOLDER COMPILER: a program compiled by hand with what pkg-config says; and what the compiler says
# about a language that is too old.
set -euo pipefail
prefix=$1 folder=$2 compiler=$3
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$folder"

# Whoever includes a header without C++20 reads one sentence.
headers=$(cd "$prefix/include" && find rondo -name '*.hpp' -not -path '*torch*')
(($(wc -l <<<"$headers") > 15))
for header in $headers; do
  if said=$("$compiler" -std=c++17 -fsyntax-only -I "$prefix/include" -include "$header" -x c++ /dev/null 2>&1); then continue; fi
  first=$(grep --max-count=1 'error: ' <<<"$said")
  if [[ $first != *'Rondo needs C++20: compile with -std=c++20 or later.'* ]] || (($(wc -l <<<"$said") > 20)); then
    printf '<%s> in C++17:\n%s\n' "$header" "$said"
    exit 1
  fi
done

if ! command -v pkg-config >/dev/null; then
  echo 'skipped: pkg-config is not installed'
  exit 77
fi
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name rondo.pc)")
export PKG_CONFIG_PATH
pkg-config --print-errors --exists 'rondo >= 0.1'
read -ra flags < <(pkg-config --cflags --libs rondo)
"$compiler" -std=c++20 "$here/small/main.cpp" -o "$folder/small" "${flags[@]}"
said=$(LD_LIBRARY_PATH=$(pkg-config --variable=libdir rondo) "$folder/small")
[[ $said == 2 ]] || { echo "it says $said"; exit 1; }
