#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# rehearsal.sh ROOT BIN: gpu-check without a GPU says that nothing ran; its stages run on the simulated device; and a
# rehearsal's report says what it is and lies outside bench/results.
set -euo pipefail
root=$1 bin=$2
out=$(mktemp --directory)
trap 'rm -rf "$out"' EXIT

fail() {
  echo "$1"
  tail -n 20 "$out"/report/raw/*/*.log 2>/dev/null || true
  exit 1
}

# Only what the script itself needs, so no nvidia-smi even where there is one.
mkdir "$out/path"
for tool in bash cat cut dirname; do ln -s "$(command -v "$tool")" "$out/path/"; done
said=$(PATH=$out/path "$root/tools/gpu-check") || fail "without a GPU the exit status is $?"
grep --quiet '^nothing ran: ' <<<"$said" || fail "without a GPU it says: $said"
grep --quiet '^skipped: environment,tests,.*,thresholds: no nvidia-smi' <<<"$said" || fail "without a GPU it says: $said"

before=$(ls "$root/bench/results")
"$root/tools/gpu-check" --rehearse --bin "$bin" --out "$out/report" \
  environment floors anatomy deciding-cells mps sanitizer-first nccl bench-threads bench-graphs bench-processes training thresholds 2>&1 | tee "$out/said" || fail 'the rehearsal failed'
grep --quiet --extended-regexp '^[1-9][0-9]* passed, 0 failed' "$out/said" || fail 'no closing line'
grep --quiet '^Simulated:' "$out/report/report.md" || fail 'the report is not labelled'
for program in all_reduce all_gather reduce_scatter broadcast reduce gather scatter alltoall sendrecv barrier; do
  grep --quiet "^### ${program}_perf, threads, 2 ranks" "$out/report/report.md" || fail "no table of ${program}_perf"
done
for line in '^## .* \(simulated\)$' '^\| 2 \| [0-9.]+ \((ll|window|simple|ll128|push)\) \| [0-9.]+ \|' '^- window, 8 ranks, [0-9.]+ us in the kernel: ' \
  '^- ll, 8 ranks, [0-9.]+ us in the kernel: ' '^- push, 8 ranks, [0-9.]+ us in the kernel: ' '^- results of benchmarks: [1-9][0-9]* rows checked, none wrong' \
  '^\| ping \| graph \| 8 \| 8 \| [0-9.]+ ' '^\| hop release acquire gpu \|' '^### window unregistered, 2 ranks, [0-9.]+ us a call' \
  '^\| graphs, ring-slots-8K, 2 ranks, 4096 B \|' '^\| processes, default-R0, 4 ranks, 8 B \|' '^- mps: mps: there is no MPS on' \
  '^- threads-2: device_push_bytes (stays|becomes) '; do
  grep --quiet --extended-regexp "$line" "$out/report/report.md" || fail "the report has no line $line"
done
if grep '^## ' "$out/report/report.md" | grep --invert-match '(simulated)$'; then fail 'a heading is not labelled'; fi
if grep --quiet 'awk:' "$out/said"; then fail 'a table could not be made'; fi
if grep --quiet ',cuda,' "$out"/report/raw/*/rows.csv; then fail 'simulated rows are called cuda'; fi
[[ $(ls "$root/bench/results") == "$before" ]] || fail 'a rehearsal wrote into bench/results'

# The goals are judged on a GPU alone: here by what one wrote. Its rows' shares are of the ring's own bound already.
# shellcheck disable=SC1090,SC2034 # the parts, and what they read
goals=$(
  here=$root/tools
  for part in common stages report; do source "$here/gpu_check/$part.sh"; done
  rehearse=false out=$root/bench/results/2026-11-26-H100
  report_goals
)
for line in '8 B, 8 ranks as threads, in a graph: 4 us \| 23\.4 us .* \*\*no\*\*' \
  'by the ring, 2 ranks as threads: 50 % of the \(6n-4\)S bound \| 16\.9 % '; do
  grep --quiet --extended-regexp "$line" <<<"$goals" || fail "no goal $line in: $goals"
done
