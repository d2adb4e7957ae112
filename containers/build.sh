#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What containers/Dockerfile and containers/lockstep.def share: builds the programs, installs them in /opt/lockstep, and
# writes beside them which packages hold the libraries that they are linked with.
#   containers/build.sh <preset> <instruction set for -march>
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=$1
prefix=/opt/lockstep

cmake --preset "$preset" -DLOCKSTEP_ARCH="$2" -DLOCKSTEP_TESTS=OFF -DLOCKSTEP_BENCH=OFF
cmake --build --preset "$preset"
cmake --install "build/$preset" --prefix "$prefix" --component programs

# The names of packages carry versions that differ from one distribution to the next.
objdump --private-headers "$prefix"/bin/* | awk '$1 == "NEEDED" { print "*/" $2 }' | sort --unique |
  xargs dpkg-query --search | cut --delimiter=: --fields=1 | sort --unique >"$prefix/share/lockstep/packages"
