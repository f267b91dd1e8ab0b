#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# all_reduce of floats on this host: ours and Open MPI's, run in turns so that both see the same machine.
set -euo pipefail

usage='usage: bench/compare_openmpi.sh [BIN] [RANKS] [SIZE] [ROUNDS]
  BIN     folder with rondorun and all_reduce_perf; default build/release/bin
  RANKS   default 4
  SIZE    as all_reduce_perf -b; default 64M
  ROUNDS  turns of each; default 5'
[[ ${1:-} != -h && ${1:-} != --help ]] || { echo "$usage"; exit 0; }
bin=${1:-build/release/bin} ranks=${2:-4} size=${3:-64M} rounds=${4:-5}
[[ -x $bin/rondorun && -x $bin/all_reduce_perf ]] || {
  echo "compare_openmpi.sh: $bin holds no rondorun and all_reduce_perf; build the release preset first." >&2
  exit 2
}

if ! command -v mpicxx.openmpi mpirun.openmpi >/dev/null; then
  echo 'skipped: Open MPI is not here; install openmpi-bin and libopenmpi-dev.'
  exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/mpi.cpp" <<'EOF'
// Batches of calls after a barrier, in place; a sample is the slowest rank's time of one call. Prints their median.
#include <mpi.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int count = std::atoi(argv[1]), calls = std::atoi(argv[2]), batches = std::atoi(argv[3]);
  std::vector<float> data(count, 1.0F);
  const auto call = [&] { MPI_Allreduce(MPI_IN_PLACE, data.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); };
  call();
  if (std::count(data.begin(), data.end(), float(ranks)) != count) MPI_Abort(MPI_COMM_WORLD, 1);
  std::fill(data.begin(), data.end(), 0.0F);
  std::vector<double> samples;
  for (int b = 0; b < batches; ++b) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    for (int i = 0; i < calls; ++i) call();
    double us = (MPI_Wtime() - begin) / calls * 1e6;
    MPI_Allreduce(MPI_IN_PLACE, &us, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    samples.push_back(us);
  }
  std::sort(samples.begin(), samples.end());
  if (rank == 0) std::printf("%.3f\n", samples[samples.size() / 2]);
  MPI_Finalize();
}
EOF
mpicxx.openmpi -O3 -o "$work/mpi" "$work/mpi.cpp"

calls=3 batches=3
ours() { # prints bytes and the median of the calls in place, in microseconds
  "$bin/rondorun" --nproc-per-node "$ranks" --prefix none -- "$bin/all_reduce_perf" -b "$size" -e "$size" -n "$calls" \
    --batches "$batches" -c "$1" --csv |
    awk -F, '$1 == "device" { for (i = 1; i <= NF; ++i) at[$i] = i; next }
             $at["in_place"] == 1 { print $at["bytes"], $at["median_us"] }'
}
theirs() { # bytes
  mpirun.openmpi --allow-run-as-root --oversubscribe --bind-to none -np "$ranks" \
    "$work/mpi" $(($1 / 4)) "$calls" "$batches"
}
median() { sort -n | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

read -r bytes _ < <(ours 1) # the one run that checks every value
for ((round = 1; round <= rounds; ++round)); do
  ours 0 | cut -d ' ' -f 2 >>"$work/ours.txt"
  theirs "$bytes" >>"$work/theirs.txt"
  echo "round $round: ours $(tail -n 1 "$work/ours.txt") us, Open MPI $(tail -n 1 "$work/theirs.txt") us"
done
awk -v ours="$(median <"$work/ours.txt")" -v theirs="$(median <"$work/theirs.txt")" -v bytes="$bytes" -v ranks="$ranks" \
  'BEGIN { printf "all_reduce of %d bytes among %d ranks: ours %.2f us, Open MPI %.2f us (medians), ratio %.2f\n",
           bytes, ranks, ours, theirs, ours / theirs }'
