#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what Lockstep is built with, from the packages of Debian 12 or Ubuntu 22.04 and newer.
#   scripts/install_deps.sh          compiler, CMake, MPI and libraries
#   scripts/install_deps.sh --clang  also clang, which the emulator of GPUs is built with
#   scripts/install_deps.sh --lint   also clang, clang-format and clang-tidy
# Needs root or sudo only when something is missing; asks nothing; may be run again at any time.
set -euo pipefail

packages=(g++ cmake ninja-build ccache libopenmpi-dev openmpi-bin libeigen3-dev libgtest-dev libbenchmark-dev
  libcli11-dev nlohmann-json3-dev libspdlog-dev libfmt-dev libcurl4-openssl-dev libssl-dev libxxhash-dev
  ca-certificates)
for argument in "$@"; do
  case "$argument" in
    --clang) packages+=(clang) ;;
    --lint) packages+=(clang clang-format clang-tidy) ;;
    *)
      echo "usage: scripts/install_deps.sh [--clang] [--lint]" >&2
      exit 2
      ;;
  esac
done

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  echo "install_deps: this is neither Debian nor Ubuntu. Install the equivalents of: ${packages[*]}" >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $status == installed ]] || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  echo "install_deps: all ${#packages[@]} packages are installed"
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "install_deps: needs root. Ask for: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "install_deps: installing ${missing[*]}"
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
