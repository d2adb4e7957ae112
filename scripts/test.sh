#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs missing packages, builds one preset and runs its tests. The last line of the output counts them.
#   scripts/test.sh [preset] [ctest options]     the default preset is cpu; see CMakePresets.json
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=cpu
if (($# > 0)) && [[ $1 != -* ]]; then
  preset=$1
  shift
fi

options=()
if [[ $preset == emulated ]]; then options=(--clang); fi
if [[ $preset == asan ]]; then options=(--fuzz); fi
scripts/install_deps.sh "${options[@]}"
cmake --preset "$preset"
cmake --build --preset "$preset"

log=build/$preset/ctest.log
status=0
ctest --preset "$preset" "$@" 2>&1 | tee "$log" || status=$?

# ctest counts skipped tests as passed and lists them below the total. A run without a summary counts as one failure.
awk -v status="$status" '
  match($0, /[0-9]+ tests? failed out of [0-9]+/) {
    split(substr($0, RSTART, RLENGTH), word, " ")
    failed = word[1]
    total = word[6]
  }
  /^The following tests did not run:/ { listing = 1 }
  listing && /^[ \t]+[0-9]+ - .* \(Skipped\)$/ { skipped++ }
  END {
    if (status != 0 && failed == 0) {
      failed = 1
      if (total == 0) total = 1
    }
    printf "%d passed, %d failed, %d skipped\n", total - failed - skipped, failed, skipped
  }' "$log"
exit "$status"
