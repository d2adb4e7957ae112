#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Kills, stops and resizes training runs at random moments and compares each with an undisturbed run. Writes the report
# docs/chaos.md (or --report FILE). Needs a build in build/cpu, or in the folder BUILD.
#   scripts/chaos.sh [--runs 50] [--resizes 10] [--seed 7] [--steps 300] [--report docs/chaos.md]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

chaos=${BUILD:-build/cpu}/bin/chaos
[[ -x $chaos ]] || { echo "$chaos does not exist: build it with cmake --preset cpu && cmake --build --preset cpu" >&2; exit 2; }
# shellcheck disable=SC1091
LOCKSTEP_BIN=${chaos%/*} source scripts/start_ranks.sh
exec "$chaos" "$@"
