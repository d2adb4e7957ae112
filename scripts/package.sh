#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes packages of the programs and of the library in build/packages: a .tar.gz and, on Debian and Ubuntu, two .deb.
#   scripts/package.sh [INSTRUCTION SET]  the default, x86-64-v3, is that of x86 machines since 2013 to 2015
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cmake --preset cpu -B build/package -D LOCKSTEP_ARCH="${1:-x86-64-v3}" -D LOCKSTEP_TESTS=OFF -D LOCKSTEP_BENCH=OFF
cmake --build build/package
generators=TGZ
if command -v dpkg-shlibdeps >/dev/null; then generators="TGZ;DEB"; fi
cpack --config build/package/CPackConfig.cmake -G "$generators" -B build/packages
ls build/packages/lockstep*
