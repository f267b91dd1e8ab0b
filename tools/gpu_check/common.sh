# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the stages of gpu-check share: where the programs are, one run with its limit and its log, the counts.

rehearse=false pack=false out='' built='' obstacle='' where=checkout device=cuda gpu='' architecture=''
passed=0 failed=0 skipped=0
stage_seconds=450 # of a stage, at most
total_seconds=0   # of the whole call; 0: no limit
nccl=''           # the library that is asked for; otherwise it is looked for
packed=''         # where report, rows and an archive of the logs go
root=$(dirname "$here")
bin=$root/build/cuda/bin data=/usr/share/datasets/fashion-mnist
if [[ -f $here/gpu_check/BUNDLE ]]; then
  where=bundle root=$here bin=$here/bin data=$here/data
fi

die() { # code, sentence
  echo "${0##*/}: $2" >&2
  exit "$1"
}

# Sets device, gpu and architecture; or obstacle.
find_device() {
  if $rehearse; then
    device=sim gpu=simulated
    [[ $where == bundle ]] || bin=$root/build/release/bin
    return 0
  fi
  command -v nvidia-smi >/dev/null || { obstacle='no nvidia-smi, so no NVIDIA driver'; return 1; }
  local line
  line=$(nvidia-smi --query-gpu=name,compute_cap --format=csv,noheader 2>/dev/null | head -n 1) || line=''
  [[ $line == *,* ]] || { obstacle='nvidia-smi finds no GPU'; return 1; }
  gpu=${line%%,*} architecture=${line##*, }
  gpu=$(tr ' /' '--' <<<"${gpu#NVIDIA }")
}

# Programs that can run: built in a checkout; in a bundle looked at, and the kernels rebuilt where none fits the GPU.
prepare() {
  if [[ -n $built ]]; then
    bin=$built
  elif [[ $where == checkout ]]; then
    prepare_checkout
  else
    prepare_bundle
  fi
}

prepare_checkout() {
  # shellcheck source=tools/support.sh
  source "$here/support.sh"
  make_log_dir gpu-check
  cd "$root" || return 1
  local preset=cuda flags=(-DRONDO_TESTS=ON)
  if $rehearse; then preset=release; else flags+=("-DRONDO_CUDA_ARCHITECTURES=${architecture/./}-real"); fi
  step "$preset: configure" cmake --preset "$preset" "${flags[@]}" || return 1
  step "$preset: build" cmake --build --preset "$preset" --parallel "$(jobs_count)" --target gpu_check
}

prepare_bundle() {
  local said
  if ! said=$("$bin/on_gpu" --help 2>&1); then
    # The C++ library of this machine is missing or too old.
    export LD_LIBRARY_PATH=$root/lib/stdc++
    said=$("$bin/on_gpu" --help 2>&1) || { echo "the bundle does not run here: $said"; return 1; }
  fi
  $rehearse && return 0
  "$bin/on_gpu" --describe >/dev/null 2>&1 && return 0
  echo "no prebuilt code for this GPU ($("$bin/on_gpu" --describe 2>&1 | tail -n 1)); building it with this machine's nvcc"
  rebuild_kernels
}

rebuild_kernels() {
  local nvcc
  nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null) || { echo 'nvcc is not found'; return 1; }
  mkdir -p "$root/lib/prebuilt" && mv "$root/lib/librondo_cuda.so" "$root/lib/prebuilt/"
  # The words after the quoted name are flags, one a word.
  # shellcheck disable=SC2046
  timeout "$(total_left)" "$nvcc" --threads 0 $(cat "$root/sources/flags") -gencode "arch=compute_${architecture/./},code=sm_${architecture/./}" \
    -shared -Xcompiler=-fPIC -I "$root/sources" -I "$root/sources/kernels/include" -cudart static \
    "$root"/sources/kernels/device/kernels.cu "$root"/sources/tools/gpu_check/*.cu "$root/sources/kernels/cuda/libcudart.cpp" \
    -o "$root/lib/librondo_cuda.so" || return 1
  "$bin/on_gpu" --describe
}

open_report() {
  if [[ -z $out ]]; then
    if ! $rehearse; then
      out=$root/bench/results/$(date +%F)-$gpu
    elif [[ $where == checkout ]]; then
      out=$root/build/gpu-check-rehearsal
    else
      out=$root/rehearsal
    fi
  fi
  mkdir -p "$out"
  out=$(cd "$out" && pwd)
  if $pack; then
    packed=$out
    out=$(mktemp --directory)
  fi
  mkdir -p "$out/raw" # what is packed before the first stage, too
}

# ---- time ----

reserve=5 # seconds of the total that are kept for the report
total_left() { echo $((total_seconds == 0 ? 1000000 : total_seconds - SECONDS - reserve)); }

# What the stage may take. The first ones have short limits of their own, which shrink together when too little is left
# for all; the others share what is left.
share_of_stage() { # the stage, then those still to come
  local name limit part own=0 own_part='' sum=0 count=0 left
  left=$(total_left)
  for name in "$@"; do
    read -r limit part < <(limits_of "$name")
    ((limit < stage_seconds)) || limit=$stage_seconds
    [[ -n $own_part ]] || own=$limit own_part=$part
    [[ $part == "$own_part" ]] || continue
    sum=$((sum + limit)) count=$((count + 1))
  done
  if ((total_seconds > 0)); then
    local share=$((own_part == 1 ? left * own / sum : left / count))
    ((own < share)) || own=$share
  fi
  echo "$own"
}

run_stage() { # name, those still to come...
  local seconds
  seconds=$(share_of_stage "$@")
  stage=$1
  stage_dir=$out/raw/$stage
  stage_end=$((SECONDS + seconds))
  hung=0
  rm -rf "$stage_dir"
  mkdir -p "$stage_dir"
  : >"$stage_dir/results.tsv"
  printf '%s\n' "== $stage"
  if ((seconds < 2)); then
    record "$stage" skip 0 'the total time was up'
  else
    local start=$SECONDS
    "stage_${stage//-/_}"
    echo $((SECONDS - start)) >"$stage_dir/seconds"
  fi
  publish
}

seconds_left() { echo $((stage_end - SECONDS)); }

# The report as far as it goes: whoever ends this script in the middle leaves that. With --pack the folder for it gets
# three files; elsewhere everything lies in it already.
published=0
publish() {
  published=$SECONDS
  write_report || echo 'the report could not be written; the next one may be' >&2
  [[ -n $packed ]] || return 0
  tar --create --gzip --file "$packed/raw.tar.gz.new" --directory "$out" raw && mv "$packed/raw.tar.gz.new" "$packed/raw.tar.gz"
  all_rows >"$packed/rows.csv"
  cp "$out/report.md" "$packed/report.md.new" && mv "$packed/report.md.new" "$packed/report.md"
}

record() { # name, pass|fail|skip, seconds, note
  printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$4" >>"$stage_dir/results.tsv"
  case $2 in
    pass) passed=$((passed + 1)) ;;
    fail) failed=$((failed + 1)) ;;
    skip) skipped=$((skipped + 1)) ;;
  esac
  [[ $2 == pass && -z $4 ]] || printf '  %-4s %s: %s\n' "$2" "$1" "$4"
  ((SECONDS - published < 15)) || publish
}

# ---- one run ----

run_pid='' run_mark='' run_number=0

# What bears the mark of a run in its environment and is still there: children of children in sessions of their own
# too. One that may not be looked at is not ours.
kill_marked() { # mark
  local pids=() pid round
  for round in {1..20}; do
    mapfile -t pids < <(grep --files-with-matches --null-data --line-regexp --fixed-strings "GPU_CHECK_RUN=$1" \
      /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3)
    ((${#pids[@]} > 0)) || return 0
    for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
    ((round == 1)) || sleep 0.1 # the kernel takes them away
  done
}

# Of a log that is longer, the beginning and the end: all of them travel in one archive.
most_of_log=$((2 << 20)) # bytes
shorten() { # file
  local bytes part=$((most_of_log / 2))
  bytes=$(stat --format=%s "$1")
  ((bytes > most_of_log)) || return 0
  {
    head --bytes="$part" "$1"
    printf '\n... %d bytes left out ...\n' $((bytes - 2 * part))
    tail --bytes="$part" "$1"
  } >"$1.short" && mv "$1.short" "$1"
}

# A run with a limit; output and all into raw/STAGE/NAME.log. Status 77: it said why it was skipped.
run() { # name, limit in seconds, command...
  local name=$1 limit=$2 start=$SECONDS status=0 log note='' left
  shift 2
  log=$stage_dir/$name.log
  left=$(seconds_left)
  if ((left < 2)); then
    record "$name" skip 0 'the time of this stage was up'
    return 77
  elif ((hung >= 3)); then
    record "$name" skip 0 'three runs of this stage had not ended by themselves'
    return 77
  fi
  ((limit < left)) || limit=$left
  printf '$ %s\n' "$*" >"$log"
  run_mark=$$.$((++run_number))
  set -m # a process group of its own, which a signal to this script does not end unseen
  GPU_CHECK_RUN=$run_mark timeout --kill-after=3 "$limit" "$@" >>"$log" 2>&1 </dev/null &
  run_pid=$!
  set +m
  wait "$run_pid" || status=$?
  run_pid=''
  ((status == 0 || status == 77)) || kill_marked "$run_mark"
  shorten "$log"
  left=$((SECONDS - start)) # that it took
  ((status != 137 || left < limit)) || status=124
  case $status in
    0) record "$name" pass "$left" '' ;;
    77)
      note=$(grep --only-matching 'skipped: .*' "$log" | head -n 1) || note='skipped without a reason'
      record "$name" skip "$left" "${note#skipped: }"
      ;;
    124)
      hung=$((hung + 1))
      record "$name" fail "$left" "still running after $limit s, and killed; see raw/$stage/$name.log"
      ;;
    *)
      note=''
      ((status <= 128)) || note=", by signal $((status - 128))"
      record "$name" fail "$left" "exit status $status$note; see raw/$stage/$name.log"
      ;;
  esac
  return "$status"
}

# What is under way is killed, and the report says how far it went.
stop_all() { # signal's number
  trap - TERM INT HUP
  if [[ -n $run_pid ]]; then
    kill -KILL -- "-$run_pid" 2>/dev/null || true
    kill_marked "$run_mark"
  fi
  stop_mps
  [[ -z ${stage_dir:-} ]] || record "$stage" fail 0 "this script was ended by signal $1"
  publish
  exit $((128 + $1))
}

# MPS lets processes share the GPU without time slices. Ours lives in a folder of its own and ends with this script.
mps_dir=''
start_mps() {
  command -v nvidia-cuda-mps-control >/dev/null || { obstacle='no nvidia-cuda-mps-control'; return 1; }
  mps_dir=$(mktemp --directory)
  export CUDA_MPS_PIPE_DIRECTORY=$mps_dir/pipe CUDA_MPS_LOG_DIRECTORY=$mps_dir/log
  mkdir "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
  if ! timeout 20 nvidia-cuda-mps-control -d >"$stage_dir/mps.log" 2>&1; then
    obstacle="MPS does not start: $(tail -n 1 "$stage_dir/mps.log")"
    stop_mps
    return 1
  fi
}
stop_mps() {
  [[ -n $mps_dir ]] || return 0
  echo quit | timeout 20 nvidia-cuda-mps-control >/dev/null 2>&1 || true
  local pid_file=$mps_dir/pipe/nvidia-cuda-mps-control.pid pid=''
  [[ ! -r $pid_file ]] || pid=$(<"$pid_file")
  for _ in {1..20}; do
    [[ -n $pid ]] && kill -0 "$pid" 2>/dev/null || break
    sleep 0.5
  done
  if [[ -n $pid ]] && kill -0 "$pid" 2>/dev/null; then
    pkill -KILL --parent "$pid" || true # its server
    kill -KILL "$pid"
  fi
  rm -rf "$mps_dir"
  unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
  mps_dir=''
}
