#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs two builds of kernels_bits and compares their output. Prints the lines that differ, and exits with 1.
#   tests/kernels/bits/compare.sh <program> <other program>
set -euo pipefail
one=$("$1")
other=$("$2")
if [[ $(wc -l <<<"$one") -lt 1000 ]]; then
  echo "$1 printed less than a line for each of 1000 cases" >&2
  exit 1
fi
diff <(echo "$one") <(echo "$other")
echo "$(wc -l <<<"$one") cases have the same bits"
