#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the packages that Lockstep's build needs, on Debian 12, Ubuntu 22.04 and newer. On other systems it prints names.
#   scripts/install_deps.sh               compiler, CMake, MPI and libraries
#   scripts/install_deps.sh --clang       also clang, which compiles the GPU emulator
#   scripts/install_deps.sh --fuzz        also clang with the libraries of its sanitizers and of its fuzzer
#   scripts/install_deps.sh --lint        also clang, clang-format, clang-tidy and doxygen
#   scripts/install_deps.sh --cluster     also for the cluster tests: Slurm, modules, iproute2, an S3 server in .cache/
#   scripts/install_deps.sh --cuda-checks also for the checks of CUDA kernels: the packages of cuda_checks.txt in .cache/
#   scripts/install_deps.sh --prefix DIR  unpacks missing packages into DIR, without root; then: source DIR/env.sh
# Needs root or sudo only if a package is missing. It asks no questions and may be run again at any time.
# cmake/dependencies.txt lists the packages. docs/install.md explains other ways.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# packages_in COLUMN: prints the packages in a column of the table.
packages_in() {
  awk -F ' *[|] *' -v column="$1" '!/^#/ && NF == 8 { print $column }' "$root/cmake/dependencies.txt" | sort --unique
}
readonly apt=5 dnf=6

mapfile -t packages < <(packages_in $apt)
packages+=(ca-certificates procps)
cluster=false
cuda_checks=false
prefix=
while (($# > 0)); do
  case "$1" in
    --clang) packages+=(clang) ;;
    --fuzz) packages+=(clang libclang-rt-dev) ;;
    --lint) packages+=(clang clang-format clang-tidy doxygen) ;;
    --cluster)
      packages+=(slurmctld slurmd slurm-client munge environment-modules iproute2 python3-venv)
      cluster=true
      ;;
    --cuda-checks)
      packages+=(python3-venv)
      cuda_checks=true
      ;;
    --prefix)
      prefix=${2:?install_deps: --prefix needs a folder}
      shift
      ;;
    *)
      echo "usage: scripts/install_deps.sh [--clang] [--fuzz] [--lint] [--cluster] [--cuda-checks] [--prefix DIR]" >&2
      exit 2
      ;;
  esac
  shift
done

# cmake checks the dependencies later, so the caller may continue.
if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  echo "install_deps: this is neither Debian nor Ubuntu, so nothing is installed. cmake names what is missing." >&2
  if command -v dnf >/dev/null; then
    echo "install_deps: as root: dnf install $(packages_in $dnf | tr '\n' ' ')" >&2
  fi
  echo "install_deps: docs/install.md has the commands for RHEL, conda, Spack and a folder of your own" >&2
  exit 0
fi

as_root() {
  if ((EUID == 0)); then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    echo "install_deps: needs root or sudo for: $*" >&2
    echo "install_deps: without either: scripts/install_deps.sh --prefix DIR (docs/install.md)" >&2
    return 1
  fi
}

# Installing a package starts its services, unless this file forbids it. An existing file is kept.
forbid_services() {
  if [[ ! -e /usr/sbin/policy-rc.d ]]; then
    trap 'as_root rm -f /usr/sbin/policy-rc.d' EXIT
    printf '#!/bin/sh\nexit 101\n' | as_root install -m 755 /dev/stdin /usr/sbin/policy-rc.d
  fi
}

# Unpacks packages and their dependencies into a folder. env.sh in the folder sets the paths for them.
unpack() {
  local folder names debs triplet name target
  folder=$(mkdir -p "$prefix" && cd "$prefix" && pwd)
  # libopenmpi-dev depends on compilers of other languages and on web pages, which Lockstep does not need.
  names=$(apt-get --simulate --no-install-recommends install "$@" | awk '$1 == "Inst" { print $2 }' |
    grep -vE '^(gfortran|libgfortran-[0-9]+-dev|libjs-|javascript-common)') || true
  if [[ -z $names ]]; then
    echo "install_deps: apt knows no package to unpack (see above): its lists come from 'apt-get update'" >&2
    return 1
  fi
  debs=$(mktemp --directory)
  # shellcheck disable=SC2086
  (cd "$debs" && apt-get download -qq $names)
  for name in "$debs"/*.deb; do dpkg-deb --extract "$name" "$folder"; done
  rm -r "$debs"
  triplet=$(dpkg-architecture --query DEB_HOST_MULTIARCH 2>/dev/null || gcc -print-multiarch)
  # The compiler looks for an architecture's headers only in the system's folder, so they are linked into include/.
  if [[ -d $folder/usr/include/$triplet ]]; then
    cp --recursive --symbolic-link --no-clobber "$folder/usr/include/$triplet/." "$folder/usr/include/"
  fi
  # If the library itself is installed, only its development package was unpacked. Its link then points to the system's
  # library.
  find "$folder/usr/lib/$triplet" -maxdepth 1 -name '*.so' -xtype l | while read -r name; do
    target=/usr/lib/$triplet/$(readlink "$name")
    if [[ -e $target ]]; then ln -sfn "$target" "$name"; fi
  done
  # An installation would have created these names.
  for name in "$folder"/usr/bin/*.openmpi; do
    if [[ -L $name || -e $name ]]; then ln -sfn "${name##*/}" "${name%.openmpi}"; fi
  done
  cat >"$folder/env.sh" <<ENV
# Written by scripts/install_deps.sh --prefix. Source it before you run cmake or the programs.
export CMAKE_PREFIX_PATH=$folder/usr\${CMAKE_PREFIX_PATH:+:\$CMAKE_PREFIX_PATH}
export PATH=$folder/usr/bin:\$PATH
export LD_LIBRARY_PATH=$folder/usr/lib/$triplet:$folder/lib/$triplet\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}
export OPAL_PREFIX=$folder/usr
export PMIX_MCA_mca_base_component_path=$(echo "$folder/usr/lib/$triplet"/pmix*/lib/pmix)
ENV
  echo "install_deps: unpacked $(wc -w <<<"$names") packages; continue with: source $folder/env.sh"
}

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $status == installed ]] || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  echo "install_deps: all ${#packages[@]} packages are installed"
elif [[ -n $prefix ]]; then
  echo "install_deps: unpacking ${missing[*]}"
  unpack "${missing[@]}"
elif ((EUID != 0)) && [[ -n ${CMAKE_PREFIX_PATH:-}${CONDA_PREFIX:-} ]]; then
  echo "install_deps: not installed as packages: ${missing[*]}; cmake looks for them in CMAKE_PREFIX_PATH and CONDA_PREFIX"
else
  echo "install_deps: installing ${missing[*]}"
  if $cluster; then forbid_services; fi
  as_root apt-get update -qq
  # Ubuntu 22.04 has no such package. The libraries are in a package that clang needs.
  if ! apt-cache show libclang-rt-dev >/dev/null 2>&1; then missing=("${missing[@]/#libclang-rt-dev/clang}"); fi
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi

# install_python NAME PACKAGE...: installs Python packages in .cache/NAME-venv. The file `installed` is written last, so it
# marks a complete installation.
install_python() {
  local venv=$root/.cache/$1-venv
  shift
  if [[ $(cat "$venv/installed" 2>/dev/null) != "$*" ]]; then
    echo "install_deps: installing $* in $venv"
    python3 -m venv --clear "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "$@"
    echo "$*" >"$venv/installed"
  fi
}

# The S3 server of the tests.
if $cluster; then install_python cluster "moto[server]==5.2.5"; fi
if $cuda_checks; then
  mapfile -t python_packages < <(grep -v '^#' "$root/scripts/cuda_checks.txt")
  install_python cuda "${python_packages[@]}"
fi
