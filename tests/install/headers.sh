#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks the headers of an installation. Each must compile alone and without warnings. The compiler must read exactly these
# headers if a file includes lockstep.h.
#   tests/install/headers.sh <prefix> <C++ compiler>
set -euo pipefail
cd "$1/include/lockstep"
compiler=("$2" -std=c++20 -Wall -Wextra -Werror -I .. -x c++)

read_by_compiler() {
  echo '#include "lockstep/lockstep.h"' | "${compiler[@]}" -MM - | grep -o '[^ ]*\.h' | sed 's,^../lockstep/,,' | sort -u
}
if ! diff <(read_by_compiler) <(find -- * -name '*.h' | sort); then
  echo "headers: '>' marks headers that are installed, and that lockstep.h does not include" >&2
  exit 1
fi
find -- * -name '*.h' -print0 | xargs -0 -P 2 -I '{}' "${compiler[@]}" -fsyntax-only -include '{}' /dev/null
