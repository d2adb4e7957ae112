#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes a minimal Debian with debootstrap and checks the files of HEAD in it.
#   scripts/try_debian.sh [--log FILE] [RELEASE]            runs README's two commands, in trixie by default. The second
#                                                           command includes lockrun's tests on one host
#   scripts/try_debian.sh --cuda [--log FILE] [RELEASE]     with the CUDA toolkit and the NCCL of Debian's non-free: builds the
#                                                           preset cuda and runs the tests of the preset emulated
# Needs root, a Debian or Ubuntu host, and about 6 GB in /var/tmp, with --cuda 14 GB. LOCKSTEP_DATA_DIR may contain
# tinyshakespeare.txt. Writes the summary to FILE (docs/logs/debian_RELEASE.log, or docs/logs/cuda_VERSION.log). Whole logs and
# a compiler cache are in build/try_debian_RELEASE or build/try_cuda_RELEASE. Exits with the exit code of the first failed
# command.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

log=
kind=debian
while [[ ${1:-} == --* ]]; do
  case "$1" in
    --cuda) kind=cuda ;;
    --log)
      log=${2:?--log needs a file}
      shift
      ;;
    *)
      echo "usage: scripts/try_debian.sh [--cuda] [--log FILE] [RELEASE]" >&2
      exit 2
      ;;
  esac
  shift
done
release=${1:-trixie}
if ((EUID != 0)); then
  echo "try_debian: needs root for debootstrap and chroot" >&2
  exit 2
fi
command -v debootstrap >/dev/null || apt-get install -y -qq --no-install-recommends debootstrap

commit=$(git describe --always)
folder=build/try_${kind}_$release
rm -f "$folder"/*.log
mkdir -p "$folder/ccache"
root=$(mktemp --directory /var/tmp/lockstep-debian-XXXXXX)
trap 'rm -rf --one-file-system "$root"' EXIT
# Some tests run as another user, who must be able to enter the root folder.
chmod 755 "$root"
# Uses this machine's mirror of Debian, if it has one.
mirror=$(grep -rhoE 'https?://[^ ]+/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null | head -n 1 || true)
debootstrap --variant=minbase --components=main,contrib,non-free "$release" "$root" ${mirror:+"${mirror% }"} \
  >"$folder/debootstrap.log" 2>&1 || { tail -n 5 "$folder/debootstrap.log" >&2; exit 1; }
cp /etc/resolv.conf "$root/etc/"
grep -lsi proxy /etc/apt/apt.conf.d/* | xargs -r cp --target-directory "$root/etc/apt/apt.conf.d/" || true
# Open MPI 5 looks up this host's name.
printf '127.0.0.1 localhost\n::1 localhost\n127.0.1.1 %s\n' "$(hostname)" >"$root/etc/hosts"
mkdir -p "$root/root/lockstep" "$root/root/data" "$root/root/.cache/ccache"
git archive HEAD | tar --extract --directory "$root/root/lockstep"
if [[ -f ${LOCKSTEP_DATA_DIR:-}/tinyshakespeare.txt ]]; then cp "$LOCKSTEP_DATA_DIR/tinyshakespeare.txt" "$root/root/data/"; fi

# inside <commands>: runs the commands in the Debian. Its mounts are in their own namespace and end with the commands.
inside() {
  # shellcheck disable=SC2016
  unshare --mount --propagation private bash -c '
    for place in proc sys dev; do mount --rbind "/$place" "$0/$place"; done
    mount --bind "$2" "$0/root/.cache/ccache"
    exec env -i HOME=/root TERM=dumb PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
      CCACHE_BASEDIR=/root/lockstep/build LOCKSTEP_DATA_DIR=/root/data \
      chroot "$0" bash -c "cd /root/lockstep && $1"' "$root" "$1" "$folder/ccache"
}

status=0
# step <name> <commands>: runs the commands unless a step failed. Their output goes to the log of that name.
step() {
  if ((status == 0)); then inside "$2" >"$folder/$1.log" 2>&1 </dev/null || status=$?; fi
}

# counts <log> <expression>: prints tests whose lines match, for example "core.File.AName Passed 0.59 sec", and the count.
counts() {
  sed -nE "/$2/s/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: ([^ ]+) [.]+[ *]*/\1 /p; /^[0-9]+ passed/p" "$1" 2>/dev/null || true
}

if [[ $kind == debian ]]; then
  step quickstart scripts/quickstart.sh
  step test scripts/test.sh
else
  step packages "export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq && apt-get install -y -qq --no-install-recommends nvidia-cuda-toolkit libnccl-dev &&
    scripts/install_deps.sh --clang"
  # The kernels of both default architectures, translated without optimisation. No GPU runs them here.
  step cuda "cmake --preset cuda -DCMAKE_BUILD_TYPE=None -DCMAKE_CUDA_FLAGS=-Xptxas=-O0 -DCMAKE_UNITY_BUILD=ON \
    -DLOCKSTEP_TESTS=OFF && cmake --build --preset cuda"
  step version "ldd build/cuda/bin/train_gpt | grep -E 'libcu(da|blas)|nccl' && build/cuda/bin/train_gpt --version"
  step emulated "scripts/test.sh emulated"
  cuda=$(sed -nE 's/.*headers of CUDA ([0-9]+)[.]([0-9]+).*/\1_\2/p' "$folder/emulated.log" 2>/dev/null || true)
fi

# summary_debian: README's commands, lockrun's tests, failed tests and the count.
summary_debian() {
  echo "\$ scripts/quickstart.sh"
  grep -E '^(ranks|[0-9]+ replicas|model:|training:|done:|error)' "$folder/quickstart.log" || tail -n 5 "$folder/quickstart.log"
  echo
  echo "\$ scripts/test.sh"
  counts "$folder/test.log" 'elastic[.]Lockrun|[*][*][*]'
}

# summary_cuda: what was built, warnings, the libraries of train_gpt, failed tests and the count.
summary_cuda() {
  local name
  # shellcheck disable=SC2016
  inside 'nvcc --version | sed -n 4p; dpkg-query --show libnccl-dev; clang++ --version | head -n 1'
  echo
  echo "\$ cmake --preset cuda, without optimisation by ptxas; cmake --build --preset cuda"
  sed -n 's/^-- lockstep: GPUs/GPUs/p' "$folder/cuda.log"
  echo "CUDA sources compiled: $(grep -c 'Building CUDA object' "$folder/cuda.log" || true)"
  echo "programs linked: $(grep -c 'Linking CXX executable' "$folder/cuda.log" || true)"
  for name in cuda emulated; do
    if [[ -s $folder/$name.log ]]; then
      echo "warnings of the build $name: $(grep -cE ': warning[: #]|^ptxas warning' "$folder/$name.log" || true)"
    fi
  done
  if ((status != 0)); then grep -E -A 3 'error:|CMake Error|FAILED:' "$folder/cuda.log" | head -n 20 || true; fi
  echo
  echo "\$ ldd build/cuda/bin/train_gpt; build/cuda/bin/train_gpt --version"
  sed -E 's/^\t//; s/ \(0x[0-9a-f]+\)$//' "$folder/version.log" 2>/dev/null || true
  echo
  echo "\$ scripts/test.sh emulated"
  counts "$folder/emulated.log" '[*][*][*]'
}

name=debian_$release
title=$release
if [[ $kind == cuda ]]; then
  name=cuda_${cuda:-unknown}
  title="--cuda $release"
fi
log=${log:-docs/logs/$name.log}
{
  echo "# scripts/try_debian.sh $title, $(date -u +%Y-%m-%d), $commit"
  # shellcheck disable=SC2016
  inside '. /etc/os-release; echo "$PRETTY_NAME"; g++ --version | head -n 1; cmake --version | head -n 1; mpirun --version | head -n 1'
  if [[ $kind == debian ]]; then
    echo
    summary_debian
  else
    summary_cuda
  fi
} >"$log"
cat "$log"
exit "$status"
