#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The build of the preset `smallest` must train the same bits as the full build. Its programs must name each
# missing library and the option for it.
#   tests/install/smallest.sh <folder of the full build's programs> <folder of the smallest build's programs>
set -euo pipefail
full=$(realpath "$1")
smallest=$(realpath "$2")
configuration=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../configs/quickstart.ini")
folder=$(mktemp --directory)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

train() {
  "$1/train_gpt" --config "$configuration" "log.dir=$2" train.steps=5 train.warmup_steps=1 train.sample_every=0 "${@:3}"
}
hash_of() { train "$1" "$2" data.dataset=sample snapshot.path=none 2>&1 | sed -n 's/^done: .*parameters \([0-9a-f]*\),.*/\1/p'; }

with_all=$(hash_of "$full" full)
with_nothing=$(hash_of "$smallest" smallest)
if [[ -z $with_all || $with_all != "$with_nothing" ]]; then
  echo "smallest: parameters '$with_nothing', and '$with_all' in the full build" >&2
  exit 1
fi

# refused <text> <command>...: expects exit code 2 and the text in the message.
refused() {
  local text=$1 said status=0
  shift
  said=$("$@" 2>&1) || status=$?
  if ((status != 2)) || [[ $said != *"$text"* ]]; then
    printf 'smallest: "%s" ended with %d, without "%s":\n%s\n' "$*" "$status" "$text" "$said" >&2
    exit 1
  fi
}

export XDG_CACHE_HOME=$folder/cache LOCKSTEP_DATA_DIR=
refused LOCKSTEP_CURL=ON train "$smallest" download data.dataset=shakespeare snapshot.path=none
refused "built-in text, sample" train "$smallest" download data.dataset=shakespeare snapshot.path=none
refused LOCKSTEP_OPENSSL=ON train "$smallest" address data.dataset=https://localhost/text snapshot.path=none
refused LOCKSTEP_PUGIXML=ON train "$smallest" snapshots data.dataset=sample snapshot.path=s3://bucket/run
refused LOCKSTEP_CURL=ON train "$smallest" model data.dataset=sample model.from=https://localhost/gpt snapshot.path=none
refused LOCKSTEP_OPENSSL=ON "$smallest/lockrun" --nproc 1 -- true
"$smallest/train_gpt" --version | grep -F "without MPI, PMIx, libcurl, OpenSSL, pugixml, CUDA"
echo "smallest: parameters $with_nothing, as in the full build; what it lacks is named"
