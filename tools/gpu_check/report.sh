# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# report.md from everything under raw/, whichever call of gpu-check wrote it.

write_report() {
  {
    report_head
    report_stages
    if $rehearse; then
      printf '\nSimulated: GPU code run by the CPU. No time below says anything about a GPU, and no goal is judged.\n'
    else
      report_goals
    fi
    report_tables
    report_nccl
  } >"$out/report.md"
}

report_head() {
  printf '# gpu-check, %s\n\n' "$gpu"
  printf -- '- %s, host %s, commit %s\n' "$(date '+%F %H:%M %Z')" "$(uname -n)" "$(commit)"
  ! command -v nvidia-smi >/dev/null ||
    nvidia-smi --query-gpu=name,memory.total,driver_version,clocks.sm,clocks.mem --format=csv,noheader | sed 's/^/- /'
  local describe=$out/raw/environment/describe.log
  [[ ! -r $describe ]] || grep --invert-match '^\$' "$describe" | sed 's/^/- /'
}
commit() {
  if [[ $where == bundle ]]; then
    cat "$here/gpu_check/BUNDLE"
  else
    git -C "$root" describe --always --dirty 2>/dev/null || echo unknown
  fi
}

report_stages() {
  printf '\n## Stages\n\n| stage | passed | failed | skipped | seconds |\n|---|---|---|---|---|\n'
  local name file
  for name in $(list_stages | cut -d' ' -f1); do
    file=$out/raw/$name/results.tsv
    if [[ -r $file ]]; then
      awk -F'\t' -v stage="$name" '{ n[$2]++; s += $3 }
        END { printf "| %s | %d | %d | %d | %d |\n", stage, n["pass"], n["fail"], n["skip"], s }' "$file"
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

# The goals. share_of_bound (column 24) is of the 2nS bytes that any all_reduce must move; a ring's links move
# (6n-4)S, so its own bound is that much larger.
report_goals() {
  printf '\n## Goals\n\n| goal | measured | met |\n|---|---|---|\n'
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
      if ($6 == 268435456 && $24 != "" && $2 == "window") keep("window" n, 100 * $24, 0, from)
      if ($6 == 268435456 && $24 != "" && $2 != "window" && $21 ~ /ring/)
        keep("ring" n, 100 * $24 * (6 * n - 4) / (2 * n), 0, from)
      if ($6 == 8 && n == 4 && $1 == "graphs") keep("small", $13, 1, from)
    }
    END {
      for (n = 2; n <= 8; n *= 2)
        judge("window all_reduce, 256 MiB, " n " ranks in a process: 85 % of the 2nS bound", "window" n, 85, 0, "%")
      for (n = 2; n <= 8; n *= 2)
        judge("ring all_reduce, 256 MiB, " n " ranks in a process: 70 % of the (6n-4)S bound", "ring" n, 70, 0, "%")
      judge("8-byte all_reduce, 4 ranks, in a graph: 4 us", "small", 4, 1, "us")
    }'
}

# One table per program, kind of run and world: sizes down, protocols across; median and share of the bound.
report_tables() {
  printf '\n## Medians, out of place\n\nMedian in us, bus bandwidth in GB/s, and where copies were measured the share '
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
  printf '\n## NCCL on the same GPU, in graphs, ranks as threads\n\n| version | ranks | bytes | median us | busbw GB/s |\n'
  printf '|---|---|---|---|---|\n'
  awk -F, '{ printf "| %s | %s | %s | %s | %s |\n", $2, $3, $4, $5, $6 }' "$file"
}
