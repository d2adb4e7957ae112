#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the programs, executes the documents' commands and writes their output into the documents.
#   scripts/renew_documents.sh                   all documents; shortened blocks keep their output
#   scripts/renew_documents.sh --full            also shortened blocks, at full length, with the text in LOCKSTEP_DATA_DIR
#   scripts/renew_documents.sh --only docs/ddp.md        one document, also with --full
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cmake --preset cpu --log-level=WARNING >/dev/null
cmake --build --preset cpu | tail -n 1
exec build/cpu/bin/renew_documents "$@"
