#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the project with each of the named compilers and runs the tests of the CPU kernels. Prints one table row per
# compiler (docs/install.md):
#   scripts/check_compilers.sh g++-11 g++-12 clang++-14
# A compiler that .ci/run does not use may warn. Logs are kept in build/<compiler>.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
(($# > 0)) || { echo "usage: scripts/check_compilers.sh COMPILER..." >&2; exit 2; }

distribution=$(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release)
echo "| compiler | on | warnings | kernels' tests passed |"
echo "|---|---|---|---|"
failed=0
for compiler in "$@"; do
  folder=build/$compiler
  mkdir -p "$folder"
  verdict="does not build: $folder/build.log"
  if cmake --preset cpu -B "$folder" -DCMAKE_CXX_COMPILER="$compiler" >"$folder/build.log" 2>&1 &&
    cmake --build "$folder" -- -k 0 >>"$folder/build.log" 2>&1; then
    ctest --test-dir "$folder" --tests-regex '^kernels[.]' --parallel "$(nproc)" --no-tests=error >"$folder/ctest.log" 2>&1 || failed=1
    verdict=$(sed -nE 's/^[0-9]+% tests passed, ([0-9]+) tests failed out of ([0-9]+).*/\1 \2/p' "$folder/ctest.log" |
      awk '{ print $2 - $1 " of " $2 }')
  else
    failed=1
  fi
  # The compiler as CMake recognised it, for example "GNU 12.2.0".
  version=$(sed -nE 's/^set\(CMAKE_CXX_COMPILER_(ID|VERSION) "(.*)"\)$/\2/p' "$folder"/CMakeFiles/*/CMakeCXXCompiler.cmake |
    xargs || true)
  echo "| \`$compiler\` (${version:-not found}) | $distribution | $(grep -cE ':[0-9]+: warning: ' "$folder/build.log") | $verdict |"
done
exit "$failed"
