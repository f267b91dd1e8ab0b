# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# The stages that come first and are short: each answers a question on which the next change of the kernels depends.

# A program of ours that prints rows of commas; they go into FILE.csv as they are.
rows_of() { # name, limit, rows' first words as an expression, file, command...
  local name=$1 limit=$2 words=$3 file=$4 status=0
  shift 4
  run "$name" "$limit" "$@" || status=$?
  ((status == 77)) || grep --extended-regexp "^($words)," "$stage_dir/$name.log" >>"$stage_dir/$file" || true
}

# A queue of the GPU for each stream: kernels that wait for one another must not stand behind one another.
queues=CUDA_DEVICE_MAX_CONNECTIONS=32

stage_floors() { rows_of floors 40 floor floors.csv env "$queues" "$bin/floors" $($rehearse && echo --sim); }

stage_anatomy() {
  local ranks
  for ranks in 2 1 8; do
    rows_of "anatomy-$ranks" 15 'call|late|stamp' anatomy.csv env "$queues" "$bin/anatomy" $($rehearse && echo --sim) \
      -g "$ranks"
  done
}

# ---- the cells that decide ----

# label: default (the tuner's own choice), window, ll, push; -R0: ordinary buffers, -R1: from Communicator::allocate.
deciding() { # label, ranks, flags...
  local label=$1 ranks=$2 protocol=()
  shift 2
  [[ $label == default-* ]] || protocol=(--protocol "${label%%-*}")
  cell graphs "$label" 20 "$ranks" all_reduce "${protocol[@]}" -R "${label##*-R}" -T 5 "$@"
}

stage_deciding_cells() {
  local label ranks program worlds=(2 4 8) short long checked
  settings=()
  if $rehearse; then
    short=(-b 8 -e 512 -f 64 -n 1 -w 0 --batches 1 --sets 1 -G 1)
    long=(-b 4K -e 4K -n 1 -w 0 --batches 1 --sets 1 -G 1)
    checked=(-b 8 -e 512 -f 64 -n 1 -w 0 --batches 1 --sets 1)
    worlds=(2 4)
  else
    short=(-b 8 -e 64K -f 8 -n 20 -w 5 --batches 5 -G 10)
    long=(-b 256K -e 256M -f 32 -n 20 -w 2 --batches 3 -G 5)
    checked=(-b 8 -e 16M -f 128 -n 2 -w 1 --batches 1 -T 5)
  fi
  # What a user gets, then the kernels that it was chosen from; then messages for which bandwidth counts.
  for label in default-R0 default-R1 window-R1 ll-R0 window-R0 push-R0; do
    for ranks in "${worlds[@]}"; do deciding "$label" "$ranks" "${short[@]}"; done
  done
  for label in default-R1 default-R0; do deciding "$label" 2 "${long[@]}"; done
  without_attributes
  settings=(RONDO_DEVICE_BLOCKS=64)
  deciding window-64-blocks-R1 2 "${long[@]}"
  settings=()
  for program in "${programs[@]}"; do
    for ranks in 2 4; do
      if $rehearse && ((ranks == 4)); then continue; fi
      cell threads checked 20 "$ranks" "$program" "${checked[@]}" -c 1 -R 0
    done
  done
  sweep_slots
}

# What the attributes of launches bring: the same without. Labels as above; of bash's scope: worlds, short, long.
without_attributes() {
  local ranks
  ! $rehearse || worlds=(2)
  for ranks in "${worlds[@]}"; do
    settings=(RONDO_DEVICE_EARLY_LAUNCH=off)
    deciding default-not-early-R0 "$ranks" "${short[@]}"
    settings=(RONDO_DEVICE_SYNC_DOMAIN=off)
    deciding window-no-domain-R1 "$ranks" "${short[@]}"
  done
  deciding default-no-domain-R1 2 "${long[@]}"
  settings=()
}

# The ring: do larger slots help? And does its own domain?
sweep_slots() {
  local bytes sweep=(-b 8M -e 128M -f 16 -n 5 -w 1 --batches 3 -G 2) all=(32768 131072 262144 524288 1048576) ranks=(2 4)
  if $rehearse; then sweep=(-b 4K -e 4K -n 1 -w 0 --batches 1 --sets 1 -G 1) all=(4096 8192) ranks=(2); fi
  local world
  settings=(RONDO_DEVICE_SYNC_DOMAIN=off)
  cell graphs ring-slots-default-no-domain 20 2 all_reduce --protocol simple --algorithm ring -T 5 "${sweep[@]}"
  settings=()
  cell graphs ring-slots-default 20 2 all_reduce --protocol simple --algorithm ring -T 5 "${sweep[@]}"
  for world in "${ranks[@]}"; do
    for bytes in "${all[@]}"; do
      settings=("RONDO_DEVICE_SLOT_BYTES=$bytes" RONDO_DEVICE_SLOTS=4 RONDO_DEVICE_BYTES=1073741824)
      cell graphs "ring-slots-$((bytes / 1024))K" 20 "$world" all_reduce --protocol simple --algorithm ring -T 5 "${sweep[@]}"
    done
  done
  settings=()
}

# ---- processes, MPS ----

stage_mps() {
  local how ranks label flags sizes=(-b 8 -e 8M -f 1048576 -n 20 -w 2 --batches 3)
  ! $rehearse || sizes=(-b 8 -e 4K -f 512 -n 1 -w 0 --batches 1 --sets 1)
  for how in processes mps; do
    if [[ $how == mps ]]; then
      if $rehearse; then
        record mps skip 0 'there is no MPS on the simulated device'
        return
      elif ! start_mps; then
        record mps skip 0 "$obstacle"
        return
      fi
    fi
    for ranks in 2 4; do
      # By default processes that take turns go by host memory; a window's kernels are the other way.
      for label in default-R1 default-R0 window-R0; do
        flags=(-R "${label##*-R}" -T 5 "${sizes[@]}")
        [[ $label == default-* ]] || flags+=(--protocol window)
        cell "$how" "$label" 15 "$ranks" all_reduce "${flags[@]}"
      done
    done
  done
  stop_mps
}

# ---- compute-sanitizer ----

stage_sanitizer_first() {
  local sanitizer tool ranks=2 protocol
  find_sanitizer || return 0
  for tool in racecheck memcheck; do
    for protocol in window ll push; do sanitize all_reduce; done
  done
}
