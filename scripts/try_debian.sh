#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes a minimal Debian with debootstrap and runs README's two commands in it, with the files of HEAD. The second command
# includes lockrun's tests on one host.
#   scripts/try_debian.sh [--log FILE] [RELEASE]      e.g. trixie
# Needs root, a Debian or Ubuntu host, and about 6 GB in /var/tmp. LOCKSTEP_DATA_DIR may contain tinyshakespeare.txt. Writes
# the summary to FILE (docs/logs/debian_RELEASE.log) and whole logs to build/try_debian_RELEASE. Exits with the exit code of
# the first failed command.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

log=
if [[ ${1:-} == --log ]]; then
  log=$2
  shift 2
fi
release=${1:-trixie}
log=${log:-docs/logs/debian_$release.log}
if ((EUID != 0)); then
  echo "try_debian: needs root for debootstrap and chroot" >&2
  exit 2
fi
command -v debootstrap >/dev/null || apt-get install -y -qq --no-install-recommends debootstrap

folder=build/try_debian_$release
rm -f "$folder"/*.log
mkdir -p "$folder"
root=$(mktemp --directory /var/tmp/lockstep-debian-XXXXXX)
trap 'rm -rf --one-file-system "$root"' EXIT
# Some tests run as another user, who must be able to enter the root folder.
chmod 755 "$root"
# Uses this machine's mirror of Debian, if it has one.
mirror=$(grep -rhoE 'https?://[^ ]+/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null | head -n 1 || true)
debootstrap --variant=minbase "$release" "$root" ${mirror:+"${mirror% }"} >"$folder/debootstrap.log" 2>&1 ||
  { tail -n 5 "$folder/debootstrap.log" >&2; exit 1; }
cp /etc/resolv.conf "$root/etc/"
grep -lsi proxy /etc/apt/apt.conf.d/* | xargs -r cp --target-directory "$root/etc/apt/apt.conf.d/" || true
# Open MPI 5 looks up this host's name.
printf '127.0.0.1 localhost\n::1 localhost\n127.0.1.1 %s\n' "$(hostname)" >"$root/etc/hosts"
mkdir -p "$root/root/lockstep" "$root/root/data"
git archive HEAD | tar --extract --directory "$root/root/lockstep"
if [[ -f ${LOCKSTEP_DATA_DIR:-}/tinyshakespeare.txt ]]; then cp "$LOCKSTEP_DATA_DIR/tinyshakespeare.txt" "$root/root/data/"; fi

# inside <commands>: runs the commands in the Debian. Its mounts are in their own namespace and end with the commands.
inside() {
  # shellcheck disable=SC2016
  unshare --mount --propagation private bash -c '
    for place in proc sys dev; do mount --rbind "/$place" "$0/$place"; done
    exec env -i HOME=/root TERM=dumb PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
      LOCKSTEP_DATA_DIR=/root/data chroot "$0" bash -c "cd /root/lockstep && $1"' "$root" "$1"
}

status=0
inside scripts/quickstart.sh >"$folder/quickstart.log" 2>&1 </dev/null || status=$?
if ((status == 0)); then inside scripts/test.sh >"$folder/test.log" 2>&1 </dev/null || status=$?; fi
{
  echo "# scripts/try_debian.sh $release, $(date -u +%Y-%m-%d), $(git describe --always)"
  # shellcheck disable=SC2016
  inside '. /etc/os-release; echo "$PRETTY_NAME"; g++ --version | head -n 1; cmake --version | head -n 1; mpirun --version | head -n 1'
  echo
  echo "\$ scripts/quickstart.sh"
  grep -E '^(ranks|[0-9]+ replicas|model:|training:|done:|error)' "$folder/quickstart.log" || tail -n 5 "$folder/quickstart.log"
  echo
  echo "\$ scripts/test.sh"
  # Prints lockrun's tests, failed tests and the count, for example "elastic.Lockrun.ARank... Passed 0.59 sec".
  sed -nE '/elastic[.]Lockrun|[*][*][*]/s/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: ([^ ]+) [.]+[ *]*/\1 /p; /^[0-9]+ passed/p' \
    "$folder/test.log" 2>/dev/null || true
} >"$log"
cat "$log"
exit "$status"
