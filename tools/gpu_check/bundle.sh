# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# The bundle: programs, the shared libraries they need but the C library's, data, the kernels' sources and the script.

# Of the C library: what every machine has, in its own version. The programs need one no older than this machine's.
of_the_system='^(linux-vdso|ld-linux-x86-64|libc|libm|libdl|libpthread|librt|libresolv|libutil|libnsl|libanl)\.so'

make_bundle() { # file
  set -o errtrace
  trap 'echo "gpu-check: ${BASH_SOURCE[0]##*/}, line $LINENO: $BASH_COMMAND failed" >&2' ERR
  local file=$1 build=$root/build/bundle stage program
  # shellcheck source=tools/support.sh
  source "$here/support.sh"
  make_log_dir gpu-check
  cd "$root" || return 1
  local flags=(-DRONDO_TESTS=ON)
  [[ -z $architectures ]] || flags+=("-DRONDO_CUDA_ARCHITECTURES=$architectures")
  step 'bundle: configure' cmake --preset bundle "${flags[@]}" || return 1
  step 'bundle: build' cmake --build --preset bundle --parallel "$(jobs_count)" --target gpu_check || return 1
  stage=$(mktemp --directory)/rondo-gpu-check
  mkdir -p "$stage"/{bin,lib/stdc++,data,sources,gpu_check}

  cp "$build"/bin/gpu_*.txt "$stage/bin/"
  while read -r program; do strip --strip-all -o "$stage/bin/$program" "$build/bin/$program"; done <"$build/bin/gpu_programs.txt"
  copy_libraries "$stage" "$build"
  copy_sources "$stage"
  copy_data "$stage/data"
  cp "$here/gpu-check" "$stage/"
  cp "$here"/gpu_check/{common,stages,first_stages,nccl,report,first_page}.sh "$stage/gpu_check/"
  [[ -z $nccl ]] || copy_nccl "$stage"
  git describe --always --dirty >"$stage/gpu_check/BUNDLE" 2>/dev/null || echo unknown >"$stage/gpu_check/BUNDLE"

  tar --create --owner=0 --group=0 --directory "$(dirname "$stage")" rondo-gpu-check | gzip -9 >"$file"
  rm -rf "$(dirname "$stage")"
  local bytes most=$((60 << 20))
  bytes=$(stat --format=%s "$file")
  printf '%s: %d.%d MiB; needs glibc %s or newer and an NVIDIA driver\n' "$file" $((bytes >> 20)) $(((bytes * 10 >> 20) % 10)) \
    "$(ldd --version | sed --quiet '1s/.* //p')"
  if ((bytes > most)); then
    rm -f "$file"
    die 1 "the bundle would be $bytes bytes, and 60 MiB is the limit$([[ -z $nccl ]] || echo ': leave NCCL out, or bring it in parts by itself')."
  fi
}

# Stripped, and with linked code for the bundle's architectures alone: all of it is five times what may travel.
copy_nccl() { # folder
  local library=$nccl numbers=()
  if [[ ! -r $nccl ]]; then
    nccl_scratch=$(dirname "$1")
    library=$(whole_nccl "$nccl")
  fi
  mkdir -p "$1/nccl"
  strip --strip-unneeded -o "$1/nccl/whole" "$library"
  mapfile -t numbers < <(grep --only-matching --extended-regexp '[0-9]+' <<<"${architectures:-75 80 86 90 100 120}")
  "$here/gpu_check/thin_library" --linked "$1/nccl/whole" "$1/nccl/libnccl.so.2" "${numbers[@]}"
  rm "$1/nccl/whole"
}

copy_libraries() { # folder, build folder
  local path name program own=("$2/librondo.so" "$2/kernels/librondo_cuda.so")
  while read -r program; do ldd "$2/bin/$program"; done <"$2/bin/gpu_programs.txt" | cat - <(ldd "${own[@]}") | sed --quiet 's/.* => \(\/[^ ]*\) .*/\1/p' | sort --unique |
    while read -r path; do
      name=${path##*/}
      if [[ $name =~ $of_the_system || $name == librondo* ]]; then continue; fi
      case $name in
        # Only for a machine whose own is missing or older: what the driver loads may want a newer one.
        libstdc++.so.* | libgcc_s.so.*) cp --dereference "$path" "$1/lib/stdc++/$name" ;;
        *) strip --strip-unneeded -o "$1/lib/$name" "$path" ;;
      esac
    done
  for path in "${own[@]}"; do
    path=$(readlink --canonicalize "$path")
    name=$(objdump --private-headers "$path" | sed --quiet 's/^ *SONAME *//p') # what programs ask for
    strip --strip-unneeded -o "$1/lib/$name" "$path"
  done
}

copy_sources() { # folder: what nvcc needs to build librondo_cuda.so anew
  cd "$root" || return 1
  cp --parents kernels/*.hpp kernels/algorithms/*.hpp kernels/device/* kernels/cuda/* kernels/include/rondo/*.hpp \
    tools/gpu_check/*.cu tools/gpu_check/*.cuh tools/gpu_check/kernels.hpp "$1/sources/"
  echo '-std=c++20 --expt-relaxed-constexpr -fmad=false -O3 -DRONDO_CUDA_TOOLKIT' >"$1/sources/flags"
}

# The first images of Fashion-MNIST, in the same format: a header of big-endian numbers, the second of which counts.
copy_data() { # folder
  local images=10000 tests=2000
  if [[ ! -r $data/train-images-idx3-ubyte.gz ]]; then
    echo "no training data in the bundle: the package dataset-fashion-mnist is not installed"
    return
  fi
  first_items train-images-idx3-ubyte.gz 16 784 "$images" "$1"
  first_items train-labels-idx1-ubyte.gz 8 1 "$images" "$1"
  first_items t10k-images-idx3-ubyte.gz 16 784 "$tests" "$1"
  first_items t10k-labels-idx1-ubyte.gz 8 1 "$tests" "$1"
}
first_items() { # file, bytes of its header, bytes of an item, items, folder
  local count
  count=$(printf '\\x%02x\\x%02x\\x%02x\\x%02x' $(($4 >> 24)) $(($4 >> 16 & 255)) $(($4 >> 8 & 255)) $(($4 & 255)))
  { # zcat is cut off by head, which is no failure
    { zcat "$data/$1" || true; } 2>/dev/null | head --bytes=4
    # shellcheck disable=SC2059 # the count is the format
    printf "$count"
    { zcat "$data/$1" || true; } 2>/dev/null | { tail --bytes=+9 || true; } | head --bytes=$(($2 - 8 + $3 * $4))
  } | gzip -9 >"$5/$1"
}
