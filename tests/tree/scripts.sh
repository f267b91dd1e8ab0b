#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# scripts.sh ROOT: shellcheck on every bash script of the repository. Exit 77: shellcheck is not installed.
set -euo pipefail

if ! command -v shellcheck >/dev/null; then
  echo 'skipped: shellcheck is not installed'
  exit 77
fi
cd "$1"
mapfile -t scripts < <(grep --recursive --files-with-matches --exclude-dir='build*' --exclude-dir=.git \
  --max-count=1 '^#!/bin/bash' . | sort)
shellcheck --external-sources "${scripts[@]}"
echo "${#scripts[@]} scripts"
