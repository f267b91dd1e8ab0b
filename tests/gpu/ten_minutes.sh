#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ten_minutes.sh ROOT BIN: gpu-check on the simulated device when its time is short and programs hang or crash: they are
# killed with all that they started, the rest goes on, the total time holds, and whoever ends the script finds a report.
set -euo pipefail
root=$1 bin=$2
work=$(mktemp --directory)
started=() # gpu-check's own pids

# What this test left running, by the mark that gpu-check gives its runs.
clean_up() {
  local script pid left
  for script in "${started[@]}"; do
    kill -KILL "$script" 2>/dev/null || true
    mapfile -t left < <(grep --files-with-matches --null-data "^GPU_CHECK_RUN=$script\." /proc/[0-9]*/environ 2>/dev/null |
      cut -d/ -f3)
    for pid in "${left[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
  done
  rm -rf "$work"
}
trap clean_up EXIT

fail() {
  echo "$1"
  cat "$work/said" "$work/out/report.md" 2>/dev/null || true
  exit 1
}
reports() { grep --quiet --extended-regexp "$1" "$work/out/report.md" || fail "the report does not say: $1"; }
is_gone() { ! kill -0 "$1" 2>/dev/null || grep --quiet '^State:.*Z' "/proc/$1/status" 2>/dev/null; }
await() { # what for, command...: until it succeeds
  local what=$1 end=$((SECONDS + 60))
  shift
  until "$@"; do ((SECONDS < end)) || fail "waited 60 s for $what"; done
}

# Programs as built, but: one prints a row, starts a child in a session of its own, ignores SIGTERM and hangs; another
# prints a row, then more than its log may keep, a last word, and crashes.
mkdir "$work/bin"
ln -s "$bin"/* "$work/bin/"
rm "$work/bin/floors" "$work/bin/anatomy"
cat >"$work/bin/floors" <<END
#!/bin/bash
trap '' TERM
echo 'floor,simulated,empty,graph,1,0,1.5,1.5,1.5,'
setsid tail -f /dev/null &
echo \$! >"$work/child.new"
mv "$work/child.new" "$work/child"
exec tail -f /dev/null
END
cat >"$work/bin/anatomy" <<'END'
#!/bin/bash
echo 'call,simulated,window,2,8,,,,1.5,1.5,1.5'
yes 'the same again' | head --bytes=5M
printf '\nthe last word\n'
ulimit -c 0
kill -SEGV $$
END
chmod +x "$work/bin/floors" "$work/bin/anatomy"

check() { # flags and stages...: runs it to its end
  rm -rf "$work/out" "$work/child"
  status=0
  "$root/tools/gpu-check" --rehearse --bin "$work/bin" --out "$work/out" --pack "$@" >"$work/said" 2>&1 || status=$?
  ! grep --quiet --extended-regexp '^(awk|tar):' "$work/said" || fail 'a table or an archive could not be made'
}
begin() { # the same, until its program hangs; sets pid
  rm -rf "$work/out" "$work/child"
  "$root/tools/gpu-check" --rehearse --bin "$work/bin" --out "$work/out" --pack "$@" >"$work/said" 2>&1 &
  pid=$!
  started+=("$pid")
  await 'the program that hangs' test -s "$work/child"
}

# A hang, a crash, and the rest.
check --seconds 4 floors anatomy mps
((status == 1)) || fail "the exit status is $status"
is_gone "$(<"$work/child")" || fail 'the child of a program that hung is still there'
reports '^- \*\*failed\*\*: floors, floors: still running after [1-4] s, and killed'
reports '^- \*\*failed\*\*: anatomy, anatomy-2: exit status 139, by signal 11'
reports '^\| mps \| [1-9][0-9]* \| 0 \|'
reports '^\| empty \| graph \| 1 \| 0 \| 1.5 ' # what came before the hang
reports '^Simulated: '
[[ $(ls "$work/out") == $'raw.tar.gz\nreport.md\nrows.csv' ]] || fail "--pack left $(ls "$work/out")"
names=$(tar tf "$work/out/raw.tar.gz")
grep --quiet '^raw/floors/floors.log$' <<<"$names" || fail 'the logs are not in the archive'
long=$(tar xf "$work/out/raw.tar.gz" --to-stdout raw/anatomy/anatomy-2.log)
((${#long} < 3 << 20)) || fail "a log of ${#long} bytes is kept"
for words in '^call,simulated,window' 'bytes left out' '^the last word'; do
  grep --quiet "$words" <<<"$long" || fail "a long log is kept without: $words"
done
grep --quiet '^processes,default-R1,simulated,all_reduce_perf,2,8,' "$work/out/rows.csv" || fail 'no rows'
if grep --quiet ',cuda,' "$work/out/rows.csv"; then fail 'simulated rows are called cuda'; fi

# The total time: a stage that hangs has its own share of it, and what comes last finds none.
rm "$work/bin/fashion_mnist"
printf '#!/bin/bash\nexec tail -f /dev/null\n' >"$work/bin/fashion_mnist"
chmod +x "$work/bin/fashion_mnist"
SECONDS=0
check --total-seconds 16 floors deciding-cells bench-graphs training
((SECONDS < 30)) || fail "--total-seconds 16 took $SECONDS s"
is_gone "$(<"$work/child")" || fail 'the child of a program that hung is still there'
reports 'floors: still running after [1-5] s, and killed'
reports '^\| deciding-cells \| [1-9]'
reports '^- (bench-graphs|training): .*time (of this stage )?was up'

# Ended by a signal: what was under way is gone too, and the report says it.
begin floors mps
kill -TERM "$pid"
status=0
wait "$pid" || status=$?
((status == 143)) || fail "after SIGTERM the exit status is $status"
is_gone "$(<"$work/child")" || fail 'after SIGTERM the program is still there'
reports '^- \*\*failed\*\*: floors, floors: this script was ended by signal 15'
reports '^- mps: not begun'

# Killed: the report of before is there.
begin environment floors mps
kill -KILL "$pid"
wait "$pid" || true
reports '^# gpu-check, simulated'
reports '^\| environment \| [1-9]'
reports '^- mps: not begun'

# A library in parts of a compressed file is put together: the loader takes it, and misses NCCL's functions in it.
library=$(ldd "$bin/floors" | sed --quiet 's/.* => \(.*libstdc++\.so[^ ]*\) .*/\1/p')
mkdir "$work/nccl"
gzip --stdout "$library" | split --bytes=200K - "$work/nccl/libnccl.so.2.part-"
check --nccl "$work/nccl/libnccl.so.2" nccl
tar xf "$work/out/raw.tar.gz" --directory "$work"
grep --quiet 'the library has no ncclGetVersion' "$work/raw/nccl/version-1.log" || fail 'the parts are no library'
status=0
"$root/tools/gpu-check" --nccl "$work/none" >"$work/said" 2>&1 || status=$?
((status == 2)) || fail "a library that is not there: exit status $status"
grep --quiet 'there is no .*/none' "$work/said" || fail 'a library that is not there is not named'
