#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# quickstart.sh BUILD SOURCE: what tools/quickstart builds holds every built file that `cmake --install` takes.
set -euo pipefail
build=$1 source=$2

if [[ ! -f $build/build.ninja ]] || ! command -v ninja >/dev/null; then
  echo 'skipped: this build was not configured for ninja, which knows what belongs to a target'
  exit 77
fi
read -ra targets < <(sed --quiet 's/^configure_and_build release \(.*\) || exit 1$/\1/p' "$source/tools/quickstart")
((${#targets[@]} > 0)) || { echo 'tools/quickstart builds nothing'; exit 1; }

# Scripts of the installation name files of the build absolutely.
taken=$(find "$build" -name cmake_install.cmake -not -path '*/consumer/*' -exec \
  sed --quiet --regexp-extended "s#^.*\"$build/(bin/[^\"]*|librondo\.(a|so\.[0-9]+\.[0-9]+\.[0-9]+))\".*\$#\1#p" {} + | sort --unique)
built=$(cd "$build" && ninja -t commands "${targets[@]}" | grep --only-matching --extended-regexp '(-o|ar qc) [^ ]+' | cut -d' ' -f2- |
  sed 's/^qc //' | sort --unique)
(($(wc -l <<<"$taken") > 10)) || { echo "the installation takes only: $taken"; exit 1; }
missing=$(comm -23 <(echo "$taken") <(echo "$built"))
if [[ -n $missing ]]; then
  echo "tools/quickstart builds ${targets[*]}, and not what is installed:"
  echo "$missing"
  exit 1
fi
echo "$(wc -l <<<"$taken") files"
