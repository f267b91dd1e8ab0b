# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# The stages of gpu-check: what is run, with which sizes. `run` and `record` count and log; see common.sh.

# Name, seconds at most, 1: of the first ten minutes. What decides most comes first, so that a call that is cut off has it.
list_stages() {
  cat <<'END'
environment        30 1 driver, GPU, toolkit, peer access, IPC
tests              60 1 every test that has the label gpu
refusal-and-abort  40 1 mismatches, missing, aborted and killed ranks; what must be refused is
floors             40 1 launches, hops, fences, copies, the least all_reduce: what nothing is faster than
anatomy            30 1 short calls by kernels with stamps: where their time goes
deciding-cells    150 1 short all_reduces from graphs by every kernel, long ones by 2, all programs checked, the ring's slots
mps                45 1 2 and 4 processes, 8 B and 8 MiB, without and with MPS
sanitizer-first    45 1 memcheck and racecheck of short all_reduces
nccl               60 1 NCCL beside ours
bench-graphs      450 2 every program and protocol from CUDA graphs, 1, 2, 4 and 8 ranks as threads
bench-threads     450 2 the same, launched one by one
bench-processes   450 2 2 and 4 processes, and again under MPS
sanitizer         450 2 compute-sanitizer: memcheck and racecheck, small sizes
training          450 2 the example on two ranks of one GPU
thresholds        450 2 rondo-tune: from which size on another kernel is faster, 4, 2 and 8 ranks as threads, 2 processes
END
}
limits_of() { list_stages | sed --quiet --regexp-extended "s/^$1 +([0-9]+) ([12]) .*/\\1 \\2/p"; }
is_stage() { list_stages | grep --quiet "^$1 "; }

programs=(all_reduce all_gather reduce_scatter broadcast reduce gather scatter alltoall sendrecv barrier)
protocols=(window simple ll ll128 push)

# ---- environment ----

stage_environment() {
  local tool
  run system 10 uname -a || true
  for tool in nvidia-smi nvcc cmake compute-sanitizer nvidia-cuda-mps-control; do
    if command -v "$tool" >/dev/null; then
      record "$tool" pass 0 "$(command -v "$tool")"
    else
      record "$tool" skip 0 'not in PATH'
    fi
  done
  ! command -v nvidia-smi >/dev/null || run nvidia-smi-q 30 nvidia-smi -q || true
  ! command -v nvcc >/dev/null || run nvcc-version 10 nvcc --version || true
  run describe 60 "$bin/on_gpu" $($rehearse && echo --sim) --describe || {
    (($? != 77)) || record describe fail 0 'nvidia-smi finds a GPU, and these programs do not'
  }
  if $rehearse; then return; fi
  if start_mps; then
    run mps-describe 60 "$bin/on_gpu" --describe || true
    stop_mps
  else
    record mps skip 0 "$obstacle"
  fi
}

# ---- tests ----

stage_tests() { run_listed gpu_tests.txt; }

run_listed() { # file of lines "name program arguments..."
  local name program words
  if [[ ! -s $bin/$1 ]]; then
    record "$1" skip 0 'this build has no such tests'
    return
  fi
  while read -r name program words; do
    read -r -a words <<<"$words"
    run "$name" 240 "$bin/on_gpu" $($rehearse && echo --sim) "$bin/$program" "${words[@]}" || true
  done <"$bin/$1"
}

# ---- compute-sanitizer ----

# Sets `sanitizer`, the command in front; or records why there is none.
find_sanitizer() {
  sanitizer=(compute-sanitizer --error-exitcode 9 --target-processes all)
  if $rehearse; then
    sanitizer=(env)
  elif ! command -v compute-sanitizer >/dev/null; then
    record sanitizer skip 0 'compute-sanitizer is not in PATH'
    return 1
  elif ! run probe 60 "${sanitizer[@]}" --tool memcheck "$bin/on_gpu" --describe; then
    if grep --quiet --ignore-case 'device not supported' "$stage_dir/probe.log"; then
      record sanitizer skip 0 'compute-sanitizer does not support this device'
      return 1
    fi
  fi
}
stage_sanitizer() {
  local sanitizer tool ranks protocol program
  find_sanitizer || return 0
  for tool in memcheck racecheck; do
    for ranks in 1 2; do
      for protocol in "${protocols[@]}"; do
        sanitize all_reduce
      done
    done
    for program in "${programs[@]:1}"; do
      ranks=2 protocol=window
      sanitize "$program"
      protocol=simple
      sanitize "$program"
    done
  done
}
# Ranks are processes: of a process that it watches, the sanitizer lets one kernel wait for another only sometimes.
sanitize() { # program; of stage_sanitizer: sanitizer, tool, ranks, protocol
  local tool_flags=(--tool "$tool")
  ! $rehearse || tool_flags=()
  run "$tool-$1-$protocol-$ranks" 60 "${sanitizer[@]}" "${tool_flags[@]}" \
    "$bin/rondorun" --nproc-per-node "$ranks" -- "$bin/${1}_perf" --device "$device" \
    --protocol "$protocol" -b 8 -e 64K -f 64 -n 1 -w 0 --batches 1 -c 1 --sets 1 -T 50 || true
}

# ---- benchmarks ----

# A program; its rows go into rows.csv with how and what they were run with in front. `settings`: its environment.
settings=()
cell() { # how: graphs, threads, processes or mps; label, limit, ranks, program, flags...
  local how=$1 label=$2 limit=$3 ranks=$4 program=$5 name launcher=() flags=()
  shift 5
  name=$how-$program-$label-$ranks
  if [[ $how == threads || $how == graphs ]]; then
    flags=(-g "$ranks")
  else
    launcher=("$bin/rondorun" --nproc-per-node "$ranks" --)
  fi
  local status=0
  run "$name" "$limit" env "${settings[@]}" "${launcher[@]}" "$bin/${program}_perf" --device "$device" --csv "$@" "${flags[@]}" ||
    status=$?
  # Also of one that was ended: a row is printed when it is measured.
  [[ -r $stage_dir/$name.log && $status != 77 ]] || return 0
  sed --quiet --regexp-extended "s/^(\[[^]]*\] *)?((cuda|simulated),.*)/$how,$label,\2/p" "$stage_dir/$name.log" \
    >>"$stage_dir/rows.csv"
}

# A cell of the cross product.
bench() { # how, ranks, program, protocol, replays, flags...
  local how=$1 ranks=$2 program=$3 protocol=$4 replays=$5
  shift 5
  local flags=(--protocol "$protocol" -G "$replays" -T 60 "$@")
  [[ $protocol == @(window|host) ]] || ! has_ring "$program" || flags+=(--algorithm ring)
  [[ $protocol != window ]] || flags+=(-R 1)
  cell "$how" "$protocol" 90 "$ranks" "$program" "${flags[@]}"
}
has_ring() { [[ ' all_reduce all_gather reduce_scatter broadcast reduce ' == *" $1 "* ]]; }

sizes_flags() { # what: all, some, one; sets sizes
  if $rehearse; then
    sizes=(-b 8 -e 4K -f 512 -n 1 -w 0 --batches 1 --sets 1)
  else
    case $1 in
      all) sizes=(-b 8 -e 256M -f 32 -n 20 -w 5 --batches 5) ;;
      some) sizes=(-b 8 -e 64M -f 64 -n 20 -w 3 --batches 5) ;;
    esac
  fi
}

bench_all() { # how, replays, ranks...
  local how=$1 replays=$2 ranks protocol program sizes
  shift 2
  sizes_flags all
  for protocol in "${protocols[@]}"; do
    for ranks in "$@"; do bench "$how" "$ranks" all_reduce "$protocol" "$replays" "${sizes[@]}"; done
  done
  sizes_flags some
  for protocol in window simple ll ll128 push; do
    for program in "${programs[@]:1}"; do
      for ranks in "$@"; do bench "$how" "$ranks" "$program" "$protocol" "$replays" "${sizes[@]}"; done
    done
  done
}

stage_bench_threads() {
  if $rehearse; then bench_all threads 0 2; else bench_all threads 0 4 8 2 1; fi
}
stage_bench_graphs() {
  if $rehearse; then bench_all graphs 2 2; else bench_all graphs 10 4 8 2 1; fi
}
stage_bench_processes() {
  local sizes ranks protocol how
  sizes_flags some
  for how in processes mps; do
    if [[ $how == mps ]] && { $rehearse || ! start_mps; }; then
      record mps skip 0 "$($rehearse && echo 'there is no MPS on the simulated device' || echo "$obstacle")"
      return
    fi
    for ranks in 2 4; do
      # Without MPS the table takes the host's way for what is short; both ways are measured.
      for protocol in host "${protocols[@]}"; do bench "$how" "$ranks" all_reduce "$protocol" 0 "${sizes[@]}"; done
      for program in "${programs[@]:1}"; do bench "$how" "$ranks" "$program" window 0 "${sizes[@]}"; done
    done
  done
  stop_mps
}

# ---- failures ----

stage_refusal_and_abort() { run_listed gpu_failures.txt; }

# ---- training ----

stage_training() {
  local flags=(--device "$device" --data "$data")
  if [[ ! -r $data/train-images-idx3-ubyte.gz ]]; then
    record training skip 0 "no Fashion-MNIST in $data; install the package dataset-fashion-mnist"
    return
  fi
  if $rehearse; then
    flags+=(--epochs 1 --limit 1000 --min-accuracy 20)
  elif [[ $where == bundle ]]; then
    flags+=(--epochs 2 --min-accuracy 75) # a sixth of the images
  else
    flags+=(--epochs 2)
  fi
  run threads-2 240 "$bin/fashion_mnist" --threads 2 "${flags[@]}" || true
  run processes-2 240 "$bin/rondorun" --nproc-per-node 2 -- "$bin/fashion_mnist" "${flags[@]}" || true
  local name
  for name in threads-2 processes-2; do
    grep --no-filename '^\(\[[^]]*\] *\)\?result' "$stage_dir/$name.log" | sed "s/^/  $name: /" || true
  done
}

# ---- thresholds ----

# A tuning file for each world; what was measured for it stands in the log.
stage_thresholds() {
  local flags=() ranks
  ! $rehearse || flags=(--rounds 1 --only device_push_bytes)
  for ranks in $($rehearse && echo 2 || echo 4 2 8); do
    tune "threads-$ranks" --threads "$ranks" "${flags[@]}"
  done
  $rehearse || tune processes-2 --ranks 2 --only device_host_bytes
}
tune() { # name, flags...
  local name=$1
  shift
  run "$name" 180 env "$queues" "$bin/rondo-tune" --device "$device" -o "$stage_dir/$name.tuning" "$@" || true
}
