#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints the commit that a benchmark's row names. "-dirty" follows if a tracked file differs from it. Rows in bench/results do
# not count, because an earlier benchmark may have appended them.
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if ! commit=$(git describe --always 2>/dev/null); then
  echo unknown
  exit
fi
git diff --quiet HEAD -- . ':!bench/results' || commit+=-dirty
echo "$commit"
