#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds train_gpt for every processor and with every compiler that this machine can use. Compares the models that these
# programs train, with scripts/compare_programs.sh. Compares their kernels too.
#   scripts/one_hash.sh [BUILD...]
# Without names it builds all builds that can run here:
#   avx2 avx512 avx512bf16     c++ for these instructions; skipped if this processor lacks them
#   O1 O2                      AVX2 with this optimisation, without unity builds
#   g++-11 ... clang++-19      AVX2 with these compilers
#   asan                       with sanitizers for addresses and undefined behaviour
#   baseline                   the first x86-64, without AVX and fused multiply-add; small models only
#   arm64                      cross-compiled without MPI, run by qemu-aarch64-static; small models only. Needs
#                              g++-aarch64-linux-gnu and qemu-user-static; downloads the distribution's arm64 libraries
# Builds are kept in build/one_hash.
set -euo pipefail
cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/.."
# The path is relative, so that it has no spaces. Commands are split at spaces.
root=build/one_hash
mkdir -p "$root"
# ccache sees the same names for CMake's unity files in every build.
export CCACHE_BASEDIR=$PWD/$root
# Open MPI does not free all its memory. The tests look for leaks instead.
export ASAN_OPTIONS=detect_leaks=0
compilers=(g++-11 g++-12 g++-13 g++-14 clang++-14 clang++-19)
all=(avx2 avx512 avx512bf16 O1 O2 "${compilers[@]}" asan baseline arm64)

has_flag() { grep -qw "$1" /proc/cpuinfo; }

# why_not NAME: prints why the build cannot be built or run here, or nothing.
why_not() {
  case $1 in
    *++*)
      command -v "$1" >/dev/null || { echo "it is not installed"; return; }
      [[ $(realpath "$(command -v "$1")") != "$(realpath "$(command -v c++)")" ]] || { echo "it is c++, which avx2 uses"; return; }
      ;;&
    avx2 | O1 | O2 | asan | *++*) has_flag avx2 || echo "this processor has no AVX2" ;;
    baseline) [[ $(uname -m) == x86_64 ]] || echo "this processor is not x86-64" ;;
    avx512) has_flag avx512f || echo "this processor has no AVX-512" ;;
    avx512bf16) has_flag avx512_bf16 || echo "this processor has no AVX512-BF16" ;;
    arm64)
      command -v aarch64-linux-gnu-g++ >/dev/null && command -v qemu-aarch64-static >/dev/null ||
        echo "g++-aarch64-linux-gnu or qemu-user-static is missing"
      ;;
  esac
}

# Downloads the arm64 libraries that the smallest build needs into a separate folder.
fetch_arm64() {
  local -r folder=$PWD/$root/arm64_packages
  [[ -f $folder/is_complete ]] && return
  mkdir -p "$folder"/{state/lists/partial,cache/archives/partial,root}
  touch "$folder/status"
  local -r apt=(-o APT::Architecture=arm64 -o APT::Architectures=arm64 -o "Dir::State=$folder/state"
    -o "Dir::State::status=$folder/status" -o "Dir::Cache=$folder/cache" -o APT::Sandbox::User=root)
  apt-get "${apt[@]}" update
  apt-get "${apt[@]}" -y --download-only --no-install-recommends install libspdlog-dev libxxhash-dev nlohmann-json3-dev libcli11-dev
  for package in "$folder"/cache/archives/*.deb; do dpkg -x "$package" "$folder/root"; done
  touch "$folder/is_complete"
}

# configure NAME: sets the options of cmake after the preset's name.
configure() {
  local -r release=-DCMAKE_CXX_FLAGS_RELEASE
  case $1 in
    avx2) options=(-DLOCKSTEP_ARCH=x86-64-v3) ;;
    avx512) options=(-DLOCKSTEP_ARCH=x86-64-v4) ;;
    avx512bf16) options=(-DLOCKSTEP_ARCH=cooperlake) ;;
    O1 | O2) options=(-DLOCKSTEP_ARCH=x86-64-v3 -DCMAKE_UNITY_BUILD=OFF "$release=-$1") ;;
    asan) options=(-DLOCKSTEP_ARCH=x86-64-v3 "-DLOCKSTEP_SANITIZE=address,undefined") ;;
    baseline) options=(-DLOCKSTEP_ARCH=x86-64) ;;
    arm64)
      local mode=-DCMAKE_FIND_ROOT_PATH_MODE
      options=(-DLOCKSTEP_ARCH= -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64
        -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ "-DCMAKE_FIND_ROOT_PATH=$PWD/$root/arm64_packages/root"
        "${mode}_PACKAGE=ONLY" "${mode}_INCLUDE=ONLY" "${mode}_LIBRARY=ONLY"
        -DLOCKSTEP_MPI=OFF -DLOCKSTEP_CURL=OFF -DLOCKSTEP_OPENSSL=OFF -DLOCKSTEP_PUGIXML=OFF)
      ;;
    *++*) options=(-DLOCKSTEP_ARCH=x86-64-v3 "-DCMAKE_CXX_COMPILER=$1") ;;
  esac
}

# build NAME: builds train_gpt, generate and kernels_bits.
build() {
  local -r folder=$root/$1
  local options
  configure "$1"
  (
    set -e
    if [[ $1 == arm64 ]]; then fetch_arm64; fi
    cmake --preset cpu -B "$folder" -DLOCKSTEP_TESTS=OFF -DLOCKSTEP_BENCH=OFF "${options[@]}"
    cmake --build "$folder" --target train_gpt generate kernels_bits
  ) >"$folder.log" 2>&1 &
  # In the condition of an if, a subshell would continue after a failed command.
  if ! wait $!; then
    tail -n 20 "$folder.log" >&2
    echo "cannot build $1" >&2
    exit 1
  fi
}

# command_of NAME PROGRAM: prints the command that starts a program of this build.
command_of() {
  local -r program=$root/$1/bin/$2
  # The loader and the C library must have the same version. Both are from the packages, not from the cross compiler.
  if [[ $1 == arm64 ]]; then echo "qemu-aarch64-static -L $root/arm64_packages/root $program"; else echo "$program"; fi
}

names=("$@")
if ((${#names[@]} == 0)); then
  for name in "${all[@]}"; do
    reason=$(why_not "$name")
    if [[ -z $reason ]]; then names+=("$name"); else echo "skipped: $name, because $reason"; fi
  done
fi
echo "$(git describe --always --dirty), $(date -u +%F), $(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release)," \
  "$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)"
fast=() slow=() kernels=
for name in "${names[@]}"; do
  build "$name"
  program=$(command_of "$name" train_gpt)
  if [[ $name =~ ^(asan|baseline|arm64)$ ]]; then slow+=("$program"); else fast+=("$program"); fi
  kernels_bits=$(command_of "$name" kernels_bits)
  hash=$($kernels_bits | sha256sum | cut -c 1-16) || { echo "the kernels of $name fail" >&2; exit 1; }
  kernels=${kernels:-$hash}
  echo "kernels $hash  $name: $($program --version)"
  [[ $hash == "$kernels" ]] || { echo "the kernels of $name have different bits" >&2; exit 1; }
done
shorten() { sed "s,qemu-aarch64-static -L [^ ]* ,,; s,$root/,,g; s,/bin/train_gpt,,g"; }
if ((${#fast[@]} > 1)); then scripts/compare_programs.sh --large "${fast[@]}" | shorten; fi
small=("${fast[@]:0:1}" "${slow[@]}")
if ((${#slow[@]} > 0 && ${#small[@]} > 1)); then scripts/compare_programs.sh "${small[@]}" | shorten; fi
