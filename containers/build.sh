#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the programs and installs them in /opt/lockstep, for containers/Dockerfile and containers/lockstep.def. Writes the
# names of the packages that contain their shared libraries to /opt/lockstep/share/lockstep/packages.
#   containers/build.sh <preset> <instruction set for -march>
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=$1
prefix=/opt/lockstep

cmake --preset "$preset" -DLOCKSTEP_ARCH="$2" -DLOCKSTEP_TESTS=OFF -DLOCKSTEP_BENCH=OFF
cmake --build --preset "$preset"
cmake --install "build/$preset" --prefix "$prefix" --component programs

# The package names are looked up, because they contain versions that differ between distributions.
objdump --private-headers "$prefix"/bin/* | awk '$1 == "NEEDED" { print "*/" $2 }' | sort --unique |
  xargs dpkg-query --search | cut --delimiter=: --fields=1 | sort --unique >"$prefix/share/lockstep/packages"
