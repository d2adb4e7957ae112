#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds, executes the documents' commands, and writes what they print into the documents.
#   scripts/renew_documents.sh                   all documents; blocks that are shortened keep their output
#   scripts/renew_documents.sh --full            those as well, at full length, on the text in LOCKSTEP_DATA_DIR
#   scripts/renew_documents.sh --only docs/ddp.md        one document, also with --full
#   scripts/renew_documents.sh --accept docs/slurm.md    its numbers are right as they stand, and are recorded
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cmake --preset cpu --log-level=WARNING >/dev/null
target=all
if [[ ${1:-} == --accept ]]; then target=renew_documents; fi
cmake --build --preset cpu --target "$target" | tail -n 1
exec build/cpu/bin/renew_documents "$@"
