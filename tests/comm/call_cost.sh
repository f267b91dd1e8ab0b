#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What a short call costs, in instructions, which do not depend on what else the machine does: fails above a bound.
set -euo pipefail
program=$1 call=$2 bound=$3

if ! command -v valgrind >/dev/null; then
  echo 'skipped: valgrind is not installed'
  exit 0
fi

instructions() { # calls
  local report
  report=$(valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "$call" "$1" 2>&1) || {
    echo "$report" >&2
    return 1
  }
  sed --quiet --regexp-extended 's/.*Collected : ([0-9]+).*/\1/p' <<<"$report"
}

few=$(instructions 1000)
many=$(instructions 3000)
cost=$(((many - few) / 2000))
echo "$call of 8 bytes: $cost instructions, at most $bound"
((cost > 0 && cost <= bound))
