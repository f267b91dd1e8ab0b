#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# exports.sh LIBRARY: fails unless the library defines names of ours and no others, and wants none of CUDA's.
set -euo pipefail

names=$(nm --dynamic --defined-only --demangle "$1" | cut -d' ' -f3-)
ours='^(rondo::|(typeinfo|typeinfo name|vtable|VTT) for rondo::)'
foreign=$(grep --extended-regexp --invert-match "$ours" <<<"$names" || true)
if [[ -n $foreign ]]; then
  echo "$1 defines names that are not its own:"
  head -n 20 <<<"$foreign"
  exit 1
fi
for wanted in 'rondo::Error::what() const' 'typeinfo for rondo::Error' 'rondo::collective_table()'; do
  if ! grep --fixed-strings --line-regexp --quiet "$wanted" <<<"$names"; then
    echo "$1 does not define $wanted"
    exit 1
  fi
done
if wants=$(nm --dynamic --undefined-only "$1" | grep --extended-regexp ' (cuda|cu)[A-Z]'); then
  echo "$1 wants names of CUDA, which must be linked in or looked up at run time:"
  head -n 20 <<<"$wants"
  exit 1
fi
echo "$(wc -l <<<"$names") names, all ours"
