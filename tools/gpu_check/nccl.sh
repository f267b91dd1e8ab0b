# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# NCCL beside ours: which library, how it travels, and what it takes for the same calls.

has_nccl() { [[ -r $1 || -r $1.gz ]] || compgen -G "$1.part-*" >/dev/null; } # file

# The file as it is, or made of what has travelled in its place. Prints where it lies.
whole_nccl() { # file
  if [[ -r $1 ]]; then
    echo "$1"
    return
  fi
  local whole=$nccl_scratch/libnccl.so.2
  if [[ -r $1.gz ]]; then
    gzip --decompress --stdout "$1.gz" >"$whole" || return 1
  else
    cat "$1".part-* >"$whole" || return 1
    # The parts may be of a compressed file.
    if [[ $(head --bytes=2 "$whole" | od -An -tx1) == ' 1f 8b' ]]; then
      mv "$whole" "$whole.gz" && gzip --decompress --force "$whole.gz" || return 1
    fi
  fi
  echo "$whole"
}

nccl_candidates() {
  if [[ -n $nccl ]]; then
    whole_nccl "$nccl"
    return
  fi
  ! has_nccl "$root/nccl/libnccl.so.2" || whole_nccl "$root/nccl/libnccl.so.2"
  ldconfig -p 2>/dev/null | sed --quiet 's/.*libnccl\.so\.2 .*=> //p'
  ls /usr/local/cuda/lib64/libnccl.so.2 2>/dev/null
  local python
  for python in python3 python; do
    command -v "$python" >/dev/null || continue
    timeout 20 "$python" -c 'import glob, site, sys
for folder in site.getsitepackages() + [site.getusersitepackages()] + sys.path:
    for path in glob.glob(folder + "/nvidia/nccl/lib/libnccl.so.2"):
        print(path)' 2>/dev/null
  done
}

stage_nccl() {
  local library ranks tried=0 found=false sizes
  nccl_scratch=$(mktemp --directory)
  while read -r library; do
    [[ -r $library ]] || continue
    run "version-$((++tried))" 20 "$bin/nccl_perf" --library "$library" --version || continue
    found=true
    for ranks in 2 4 8; do
      for sizes in '-b 8 -e 64K -f 8' '-b 256K -e 256M -f 32'; do
        read -r -a sizes <<<"$sizes"
        rows_of "nccl-$ranks-${sizes[1]}" 25 nccl nccl.csv env NCCL_MULTI_RANK_GPU_ENABLE=1 \
          "NCCL_MAX_CTAS=$((32 / ranks))" "$bin/nccl_perf" --library "$library" -g "$ranks" "${sizes[@]}" -G 10
      done
    done
    break
  done < <(nccl_candidates | awk '!seen[$0]++')
  rm -rf "$nccl_scratch"
  $found || record nccl skip 0 'no NCCL of version 2.30 or newer, which is the first to allow several ranks on a GPU'
}
