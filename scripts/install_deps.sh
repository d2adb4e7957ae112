#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what Lockstep is built with, from the packages of Debian 12 or Ubuntu 22.04 and newer.
#   scripts/install_deps.sh            compiler, CMake, MPI and libraries
#   scripts/install_deps.sh --clang    also clang, which the emulator of GPUs is built with
#   scripts/install_deps.sh --lint     also clang, clang-format and clang-tidy
#   scripts/install_deps.sh --cluster  also what the cluster tests run: Slurm, modules, iproute2, an S3 server in .cache/
# Needs root or sudo only when something is missing; asks nothing; may be run again at any time.
set -euo pipefail

packages=(g++ cmake ninja-build ccache libopenmpi-dev openmpi-bin libeigen3-dev libgtest-dev libbenchmark-dev
  libcli11-dev nlohmann-json3-dev libspdlog-dev libfmt-dev libcurl4-openssl-dev libssl-dev libxxhash-dev
  libpugixml-dev ca-certificates procps)
cluster=false
for argument in "$@"; do
  case "$argument" in
    --clang) packages+=(clang) ;;
    --lint) packages+=(clang clang-format clang-tidy) ;;
    --cluster)
      packages+=(slurmctld slurmd slurm-client munge environment-modules iproute2 python3-venv)
      cluster=true
      ;;
    *)
      echo "usage: scripts/install_deps.sh [--clang] [--lint] [--cluster]" >&2
      exit 2
      ;;
  esac
done

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  echo "install_deps: this is neither Debian nor Ubuntu. Install the equivalents of: ${packages[*]}" >&2
  exit 1
fi

as_root() {
  if ((EUID == 0)); then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    echo "install_deps: needs root for: $*" >&2
    return 1
  fi
}

# Packages of services start them when installed, unless this file forbids it. One that is there already decides.
forbid_services() {
  if [[ ! -e /usr/sbin/policy-rc.d ]]; then
    trap 'as_root rm -f /usr/sbin/policy-rc.d' EXIT
    printf '#!/bin/sh\nexit 101\n' | as_root install -m 755 /dev/stdin /usr/sbin/policy-rc.d
  fi
}

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $status == installed ]] || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  echo "install_deps: all ${#packages[@]} packages are installed"
else
  echo "install_deps: installing ${missing[*]}"
  if $cluster; then forbid_services; fi
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi

# The S3 server of the tests. The last line written says that all of it is there.
if $cluster; then
  moto="moto[server]==5.2.5"
  venv=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/.cache/cluster-venv
  if [[ $(cat "$venv/installed" 2>/dev/null) != "$moto" ]]; then
    echo "install_deps: installing $moto in $venv"
    python3 -m venv --clear "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "$moto"
    echo "$moto" >"$venv/installed"
  fi
fi
