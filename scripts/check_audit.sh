#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Plants persistent faults in one rank of runs with dist.audit_every, and audits many steps without a fault.
#   scripts/check_audit.sh [RUNS [STEPS]]    the default is 100 runs for each stage on 2, 3 and 4 ranks, and 100000 steps
# Every fault must be named in time, and no step without a fault may be reported.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cmake --preset cpu --log-level=WARNING
cmake --build --preset cpu --target dist_tests
LOCKSTEP_AUDIT_RUNS=${1:-100} LOCKSTEP_AUDIT_STEPS=${2:-100000} \
  build/cpu/bin/dist_tests --gtest_filter='GradientAudit.*'
