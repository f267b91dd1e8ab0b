# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# The report's first page: is everything right, how far are short calls from their floors, where does their time go, what
# do long ones and processes reach, and what was not run.

first_page() {
  heading 'Was everything right?'
  first_right
  heading 'Short calls: 8 B all_reduce in a graph, ranks as threads, us'
  first_short
  heading 'Where their time goes: the longest steps between two places'
  first_steps
  heading 'Long calls, processes, the ring'
  first_long
  heading 'What was not run, and why'
  first_missing
}

first_right() {
  local name file
  for name in tests refusal-and-abort sanitizer-first deciding-cells; do
    file=$out/raw/$name/results.tsv
    if [[ -r $file ]]; then
      awk -F'\t' -v stage="$name" '{ n[$2]++ }
        END { printf("- %s: %d passed, %s, %d skipped\n", stage, n["pass"], (n["fail"] ? "**" n["fail"] " failed**" : "none failed"), n["skip"]) }' "$file"
    else
      echo "- $name: not run"
    fi
  done
  all_rows | awk -F, '$20 != "N/A" { rows++; if ($20 > 0) { wrong++; if (wrong < 6) where = where "; " $4 " " $2 " " $5 " ranks " $6 " B" } }
    END { printf("- results of benchmarks: %d rows checked, %s\n", rows, (wrong ? "**" wrong " wrong**" where : "none wrong")) }'
  [[ ! -d $out/raw ]] || awk -F'\t' '$2 == "fail" { split(FILENAME, path, "/raw/"); split(path[2], part, "/")
    if (++n <= 12) printf "- **failed**: %s, %s: %s\n", part[1], $1, $4 } END { if (n > 12) printf "- and %d more\n", n - 12 }' \
    "$out"/raw/*/results.tsv 2>/dev/null || true
}

first_short() {
  printf '| ranks | default R0 | default R1 | push | window R1 | window R0 | ll | default R0, not early | window R1, no domain | empty kernel | ping | default R0 / ping | NCCL | default R0 / NCCL |\n'
  printf '|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n'
  { ping_rows; nccl_rows; empty_rows; all_rows; } | awk -F, '
    $1 == "empty" { empty = $2; next }
    $1 == "ping" && $3 == 8 { ping[$2] = $4; next }
    $1 == "nccl" && $3 == 8 { nccl[$2] = $4; next }
    $1 == "graphs" && $4 == "all_reduce_perf" && $6 == 8 && $11 == 0 {
      us[$5, $2] = sprintf("%.2f", $13); if ($2 == "default-R0") ran[$5] = " (" $25 ")" }
    function times(mine, other) { return mine == "" || other == "" || other == 0 ? "" : sprintf("%.1f", mine / other) }
    END { for (n = 2; n <= 8; n *= 2)
      printf "| %d | %s%s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", n, us[n, "default-R0"], ran[n], us[n, "default-R1"],
        us[n, "push-R0"], us[n, "window-R1"], us[n, "window-R0"], us[n, "ll-R0"], us[n, "default-not-early-R0"], us[n, "window-no-domain-R1"], empty, ping[n], times(us[n, "default-R0"], ping[n]), nccl[n],
        times(us[n, "default-R0"], nccl[n]) }'
}
empty_rows() { awk -F, '$3 ~ /^empty <<<1 512>>>/ && $4 == "graph" && $5 == 1 { printf "empty,%s\n", $7 }' "$out/raw/floors/floors.csv" 2>/dev/null || true; }

# Steps of all ranks together, the mean over the ranks.
first_steps() {
  local file=$out/raw/anatomy/anatomy.csv
  [[ -s $file ]] || { echo 'not measured'; return 0; }
  awk -F, '
    $1 != "stamp" { next }
    {
      t = $3 ", " $4 " ranks"; if (!(t in seen)) { seen[t] = ++tables; name[tables] = t }
      if ($7 > 0) { step[t, $7] += ($9 - before) / $4; split($8, words, ":"); place[t, $7] = words[1]; if ($7 > last[t]) last[t] = $7 }
      before = $9
    }
    END {
      for (i = 1; i <= tables; i++) {
        t = name[i]; line = ""; sum = 0
        for (k = 1; k <= last[t]; k++) sum += step[t, k]
        for (turn = 1; turn <= 4; turn++) {
          longest = 0
          for (k = 1; k <= last[t]; k++) if (!((t, k) in told) && (longest == 0 || step[t, k] > step[t, longest])) longest = k
          if (longest == 0) break
          told[t, longest] = 1
          line = line sprintf("%s%.2f to \"%s\"", (turn > 1 ? ", " : ""), step[t, longest], place[t, longest])
        }
        printf "- %s, %.2f us in the kernel: %s\n", t, sum, line
      }
    }' "$file"
}

first_long() {
  printf '| all_reduce | us | share of the bound |\n|---|---|---|\n'
  all_rows | awk -F, '
    $4 == "all_reduce_perf" && $11 == 0 && (($1 == "graphs" && $5 == 2 && $6 >= 262144 && $2 ~ /^(default|window-64)/) ||
      ($1 ~ /^(processes|mps)$/ && $2 ~ /^default/) || $2 ~ /^ring-slots/) {
      printf "| %s, %s, %s ranks, %s B | %.2f | %s |\n", $1, $2, $5, $6, $13, ($24 >= 0.001 ? sprintf("%.0f %%", 100 * $24) : "") }'
}

# Reasons, with how often; stages that were not begun.
first_missing() {
  local name
  for name in $(list_stages | cut -d' ' -f1); do
    if [[ ! -r $out/raw/$name/results.tsv ]]; then
      echo "- $name: not begun"
      continue
    fi
    awk -F'\t' -v stage="$name" '$2 == "skip" { if (!($4 in n)) { reason[++reasons] = $4; first[$4] = $1 } n[$4]++ }
      END { for (i = 1; i <= reasons; i++)
        printf("- %s: %s%s: %s\n", stage, first[reason[i]], (n[reason[i]] > 1 ? " and " (n[reason[i]] - 1) " more" : ""), reason[i]) }' \
      "$out/raw/$name/results.tsv"
  done
}
