# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# report.md from everything under raw/, whichever call of gpu-check wrote it: a first page on which a reader can act
# (first_page.sh), then all that was measured.

write_report() {
  {
    report_head
    first_page
    report_stages
    report_floors
    report_deciding
    report_anatomy
    $rehearse || report_goals
    report_tables
    report_nccl
    report_thresholds
  } >"$out/report.md.new"
  mv "$out/report.md.new" "$out/report.md"
}

heading() { printf '\n## %s%s\n\n' "$1" "$(! $rehearse || echo ' (simulated)')"; }

report_head() {
  printf '# gpu-check, %s\n\n' "$gpu"
  ! $rehearse ||
    printf 'Simulated: GPU code run by the CPU. No time below says anything about a GPU, and no goal is judged.\n\n'
  printf -- '- %s, host %s, commit %s\n' "$(date '+%F %H:%M %Z')" "$(uname -n)" "$(commit)"
  ! command -v nvidia-smi >/dev/null ||
    timeout 10 nvidia-smi --query-gpu=name,memory.total,driver_version,clocks.sm,clocks.mem --format=csv,noheader |
    sed 's/^/- /' || true
  local describe=$out/raw/environment/describe.log
  [[ ! -r $describe ]] || grep --invert-match '^\$' "$describe" | sed 's/^/- /'
  printf -- '- NCCL: %s\n' "$(nccl_found)"
}
commit() {
  if [[ $where == bundle ]]; then
    cat "$here/gpu_check/BUNDLE"
  else
    git -C "$root" describe --always --dirty 2>/dev/null || echo unknown
  fi
}
nccl_found() {
  local found
  found=$(cat "$out"/raw/nccl/version-*.log 2>/dev/null | sed --quiet 's/^\(skipped: \)\?\(.*: NCCL .*\)$/\2/p' | paste -sd ';') || found=''
  if [[ -n $found ]]; then echo "$found"; elif [[ -d $out/raw/nccl ]]; then echo 'none found'; else echo 'not looked for'; fi
}

report_stages() {
  heading Stages
  printf '| stage | passed | failed | skipped | seconds |\n|---|---|---|---|---|\n'
  local name file
  for name in $(list_stages | cut -d' ' -f1); do
    file=$out/raw/$name/results.tsv
    if [[ -r $file ]]; then
      awk -F'\t' -v stage="$name" -v ended="$(cat "$out/raw/$name/seconds" 2>/dev/null || true)" '{ n[$2]++; s += $3 }
        END { printf("| %s | %d | %d | %d | %s |\n", stage, n["pass"], n["fail"], n["skip"],
                     (ended != "" ? ended : s + 0 " so far: not at its end when this was written")) }' "$file"
    else
      printf '| %s | not run | | | |\n' "$name"
    fi
  done
  printf '\n'
  for name in $(list_stages | cut -d' ' -f1); do
    file=$out/raw/$name/results.tsv
    [[ ! -r $file ]] || awk -F'\t' -v stage="$name" '$2 != "pass" { printf "- %s, %s, %s: %s\n", $2, stage, $1, $4 }' "$file"
  done
}

all_rows() { cat "$out"/raw/*/rows.csv 2>/dev/null || true; }

report_floors() {
  local file=$out/raw/floors/floors.csv
  [[ -s $file ]] || return 0
  heading 'Floors: what no kernel is faster than'
  printf 'One call, hop, fence or copy. Ping: an all_reduce by lines {data, flag, data, flag} and nothing else, a stream a rank.\n\n'
  printf '| what | how | streams | bytes | median us | least | most | GB/s read + written |\n|---|---|---|---|---|---|---|---|\n'
  awk -F, '{ printf "| %s | %s | %s | %s | %s | %s | %s | %s |\n", $3, $4, $5, $6, $7, $8, $9, $10 }' "$file"
}

# Columns: what was asked for. The kernel that ran stands behind the time, where the tuner chose it.
report_deciding() {
  [[ -s $out/raw/deciding-cells/rows.csv ]] || return 0
  heading 'Cells that decide: all_reduce from graphs, ranks as threads'
  printf 'Median in us, out of place. default: what the library chose, in brackets. R0: ordinary buffers, R1: from '
  printf 'Communicator::allocate. Behind them the floor (ping) and NCCL, and how many times as long the default R0 takes.\n'
  { ping_rows; nccl_rows; cat "$out/raw/deciding-cells/rows.csv"; } | awk -F, '
    $1 == "ping" { floor[$2, $3] = $4; next }
    $1 == "nccl" { nccl[$2, $3] = $4; next }
    $1 == "graphs" && $11 == 0 {
      t = $5
      if (!(t in seen)) { seen[t] = ++tables; ranks[tables] = t }
      if (!((t, $2) in column)) { column[t, $2] = ++columns[t]; head[t, columns[t]] = $2 }
      if (!((t, $6) in line)) { line[t, $6] = ++lines[t]; size[t, lines[t]] = $6 }
      cell[t, $6, $2] = sprintf("%.2f%s%s", $13, ($2 ~ /^default/ ? " (" $25 " " $21 ")" : ""), ($24 >= 0.05 ? sprintf(", %.0f %%", 100 * $24) : ""))
      us[t, $6, $2] = $13
    }
    function times(mine, other) { return mine == "" || other == "" || other == 0 ? "" : sprintf("%.1f x", mine / other) }
    END {
      for (i = 1; i <= tables; i++) {
        t = ranks[i]
        printf "\n### %s ranks; with a share of the bound where it is 5 %% or more\n\n| bytes |", t
        for (c = 1; c <= columns[t]; c++) printf " %s |", head[t, c]
        printf " ping | default / ping | NCCL | default / NCCL |\n|---|---|---|---|---|"
        for (c = 1; c <= columns[t]; c++) printf "---|"
        printf "\n"
        for (l = 1; l <= lines[t]; l++) {
          b = size[t, l]
          printf "| %s |", b
          for (c = 1; c <= columns[t]; c++) printf " %s |", cell[t, b, head[t, c]]
          mine = us[t, b, "default-R0"]
          printf " %s | %s | %s | %s |\n", floor[t, b], times(mine, floor[t, b]), nccl[t, b], times(mine, nccl[t, b])
        }
      }
    }'
}
ping_rows() { awk -F, '$3 == "ping" && $4 == "graph" { printf "ping,%s,%s,%s\n", $5, $6, $7 }' "$out/raw/floors/floors.csv" 2>/dev/null || true; }
nccl_rows() { awk -F, '{ printf "nccl,%s,%s,%s\n", $3, $4, $5 }' "$out/raw/nccl/nccl.csv" 2>/dev/null || true; }

# One table per kernel and world: places down, ranks across.
report_anatomy() {
  local file=$out/raw/anatomy/anatomy.csv
  [[ -s $file ]] || return 0
  heading 'Anatomy: us since the rank'\''s kernel began'
  printf 'Thread 0 of block 0, median over the latest launches of graphs of 20 calls of 8 B. Stamps make a call longer; how '
  printf 'long one with them takes stands in the title. late: how much later than the first rank'\''s a kernel begins.\n'
  awk -F, '
    { t = $3 ", " $4 " ranks"; if (!(t in seen)) { seen[t] = ++tables; name[tables] = t } }
    $1 == "call" { call[t] = $9; next }
    $1 == "late" { late[t, $6] = $9; next }
    $1 == "stamp" {
      ranks[t] = $4
      if ($6 == 0) { place[t, $7] = $8; if ($7 + 1 > lines[t]) lines[t] = $7 + 1 }
      at[t, $6, $7] = $9
    }
    END {
      for (i = 1; i <= tables; i++) {
        t = name[i]
        printf "\n### %s, %s us a call\n\n| place |", t, call[t]
        for (r = 0; r < ranks[t]; r++) printf " rank %d |", r
        printf "\n|---|"
        for (r = 0; r < ranks[t]; r++) printf "---|"
        printf "\n| late |"
        for (r = 0; r < ranks[t]; r++) printf " %s |", late[t, r]
        printf "\n"
        for (l = 0; l < lines[t]; l++) {
          printf "| %s |", place[t, l]
          for (r = 0; r < ranks[t]; r++) printf " %s |", at[t, r, l]
          printf "\n"
        }
      }
    }' "$file"
}

# share_of_bound (column 24) is of the 2nS bytes that any all_reduce must move, for the ring of the (6n-4)S of its links.
report_goals() {
  heading Goals
  printf '| goal | measured | met |\n|---|---|---|\n'
  all_rows | awk -F, '
    function judge(name, key, want, less, unit) {
      if (!(key in best)) { printf "| %s | not measured | |\n", name; return }
      met = less ? best[key] <= want : best[key] >= want
      printf "| %s | %.1f %s (%s) | %s |\n", name, best[key], unit, who[key], met ? "yes" : "**no**"
    }
    function keep(key, value, less, from) {
      if (!(key in best) || (less ? value < best[key] : value > best[key])) { best[key] = value; who[key] = from }
    }
    $4 == "all_reduce_perf" && $3 == "cuda" && $11 == 0 && ($1 == "threads" || $1 == "graphs") {
      n = $5; from = $21 ", " $2 ", " $1
      if ($24 != "" && $25 == "window") keep("window" n "," $6, 100 * $24, 0, from)
      if ($6 >= 134217728 && $24 != "" && $25 == "simple" && $21 ~ /ring/)
        keep("ring" n, 100 * $24, 0, from)
      if ($1 == "graphs") keep("short" n "," $6, $13, 1, from)
    }
    $4 == "all_reduce_perf" && $3 == "cuda" && $11 == 0 && $1 == "mps" && $6 == 8 { keep("mps" $5, $13, 1, $21 ", " $2) }
    END {
      for (n = 2; n <= 8; n *= 2) judge("8 B, " n " ranks as threads, in a graph: 4 us", "short" n ",8", 4, 1, "us")
      judge("256 KiB, 2 ranks as threads, in a graph: 8 us", "short2,262144", 8, 1, "us")
      judge("8 MiB, 2 ranks as threads, over windows: 60 % of the 2nS bound", "window2,8388608", 60, 0, "%")
      for (n = 2; n <= 8; n *= 2)
        judge("256 MiB, " n " ranks as threads, over windows: 85 % of the 2nS bound", "window" n ",268435456", 85, 0, "%")
      for (n = 2; n <= 8; n *= 2)
        judge("128 MiB or more by the ring, " n " ranks as threads: 50 % of the (6n-4)S bound", "ring" n, 50, 0, "%")
      for (n = 2; n <= 4; n *= 2) judge("8 B, " n " processes under MPS: 20 us", "mps" n, 20, 1, "us")
    }'
}

# One table per program, kind of run and world: sizes down, protocols across; median and share of the bound.
report_tables() {
  heading 'Medians, out of place'
  printf 'Median in us, bus bandwidth in GB/s, and where copies were measured the share '
  printf 'of the bound that copying the same bytes sets.\n'
  all_rows | awk -F, '
    $11 == 0 {
      table = $4 "\t" $1 "\t" $5
      if (!(table in seen)) { seen[table] = ++tables; name[tables] = $4 ", " $1 ", " $5 " ranks" }
      t = seen[table]
      if (!((t, $2) in column)) { column[t, $2] = ++columns[t]; head[t, columns[t]] = $2 }
      if (!((t, $6) in line)) { line[t, $6] = ++lines[t]; size[t, lines[t]] = $6 }
      cell[t, line[t, $6], column[t, $2]] = sprintf("%.2f, %.1f%s", $13, $19, $24 == "" ? "" : sprintf(", %.0f %%", 100 * $24))
    }
    END {
      for (t = 1; t <= tables; t++) {
        printf "\n### %s\n\n| bytes |", name[t]
        for (c = 1; c <= columns[t]; c++) printf " %s |", head[t, c]
        printf "\n|---|"
        for (c = 1; c <= columns[t]; c++) printf "---|"
        printf "\n"
        for (l = 1; l <= lines[t]; l++) {
          printf "| %s |", size[t, l]
          for (c = 1; c <= columns[t]; c++) printf " %s |", cell[t, l, c]
          printf "\n"
        }
      }
    }'
}

report_nccl() {
  local file=$out/raw/nccl/nccl.csv
  [[ -s $file ]] || return 0
  heading 'NCCL on the same GPU, in graphs, ranks as threads'
  printf '| version | ranks | bytes | median us | busbw GB/s |\n|---|---|---|---|---|\n'
  awk -F, '{ printf "| %s | %s | %s | %s | %s |\n", $2, $3, $4, $5, $6 }' "$file"
}

# What rondo-tune made of each world. The files lie beside the logs, which have a line for every size.
report_thresholds() {
  local logs=("$out"/raw/thresholds/*.log)
  [[ -r ${logs[0]} ]] || return 0
  heading 'Thresholds that rondo-tune found'
  grep --with-filename --extended-regexp '^device_[a-z_]+ (stays|becomes) ' "${logs[@]}" | sed 's/.*\/\([^/]*\)\.log:/- \1: /' || true
}
