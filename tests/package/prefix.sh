#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# prefix.sh PREFIX SOURCE BUILD: what an installation holds, that it is small, and that it works where it was moved to.
set -euo pipefail
prefix=$1 source=$2 build=$3
failed=0
complain() {
  echo "$1"
  failed=1
}

programs=$(cd "$prefix/bin" && printf '%s\n' * | sort)
wanted=$(sort <<'END'
all_gather_perf
all_reduce_perf
alltoall_perf
barrier_perf
broadcast_perf
gather_perf
reduce_perf
reduce_scatter_perf
rondo
rondo-plan
rondo-rendezvous
rondo-tune
rondorun
scatter_perf
sendrecv_perf
wire_perf
END
)
[[ $programs == "$wanted" ]] || complain "other programs are installed: $(diff <(echo "$wanted") <(echo "$programs") || true)"
cmp --quiet "$source/LICENSE" "$prefix/share/doc/rondo/LICENSE" || complain 'the licence is not installed'

# The programs of the release preset, with line numbers: 294 MB when each held the library.
bytes=$(du --bytes --summarize "$prefix" | cut -f1)
((bytes < 60000000)) || complain "the installation has $bytes bytes"

for program in "$prefix"/bin/*; do
  name=${program##*/}
  env --ignore-environment "$program" --help >/dev/null || complain "$name --help fails"
  dynamic=$(readelf --dynamic --wide "$program")
  [[ $name == rondo@(|run|-plan|-rendezvous) || $dynamic == *'Shared library: [librondo.so.'* ]] ||
    complain "$name holds the library instead of using it"
  # One copy of everything that has a state: what the library exports nobody else defines.
  if own=$(nm --dynamic --defined-only --demangle "$program" | grep --max-count=3 --extended-regexp ' [A-UW-Z] rondo::'); then
    complain "$name defines names of librondo: $own"
  fi
  [[ $dynamic != *"$build"* ]] || complain "$name looks for libraries in the folder of the build"
done
while read -r text; do complain "$text names the folder of the build or of the installation"; done < <(
  grep --recursive --files-with-matches --fixed-strings --regexp="$build" --regexp=/opt/rondo "$prefix" \
    --include='*.cmake' --include='*.pc' --include='*.hpp' || true
)
((failed == 0)) && echo "$bytes bytes"
exit "$failed"
