#!/bin/bash
# Opens reports in a headless Chromium and fails if the console shows an error, or if a page asks for anything on a network.
#
#     scripts/check_report.sh REPORT.html... [--keep FOLDER]
#
# With --keep it leaves screenshots of each report in the folder: for a desktop (1280 px) and a phone (390 px), light and dark.
set -euo pipefail

folder=""
reports=()
while (($# > 0)); do
  case "$1" in
    --keep) folder=${2:?"--keep needs a folder"}; shift 2 ;;
    *) reports+=("$(realpath -e -- "$1")"); shift ;;
  esac
done
((${#reports[@]} > 0)) || { echo "usage: scripts/check_report.sh REPORT.html... [--keep FOLDER]" >&2; exit 2; }
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [[ -z $browser ]]; then
  echo "skipped: no chromium is installed, such as by apt-get install chromium" >&2
  exit 0
fi

temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
shots=${folder:-$temporary/shots}
mkdir -p "$shots"
failures=0

# shoot REPORT WIDTH HEIGHT SCHEME: takes a screenshot. A window is never as narrow as a phone, so a frame in it is.
shoot() {
  local name
  name=$(basename "$(dirname "$1")")-$(basename "$1" .html)-$2-$4
  printf '<!DOCTYPE html><meta charset="utf-8"><style>body{margin:0}iframe{border:0;width:%dpx;height:%dpx}</style>
<iframe src="file://%s"></iframe>\n' "$2" "$3" "$1" >"$temporary/frame.html"
  local scheme=1
  [[ $4 == dark ]] && scheme=0
  "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$temporary/profile" \
    --blink-settings=preferredColorScheme=$scheme --allow-file-access-from-files --virtual-time-budget=2000 \
    --enable-logging=stderr --window-size="$2,$3" --screenshot="$shots/$name.png" "file://$temporary/frame.html" \
    2>"$temporary/log" || { cat "$temporary/log" >&2; failures=1; }
  if grep 'CONSOLE' "$temporary/log" >&2; then
    echo "$1: the console is not empty" >&2
    failures=1
  fi
}

for report in "${reports[@]}"; do
  if grep -nE '(src|href|url)[=(]["'"'"']?(https?:)?//|@import' "$report" >&2; then
    echo "$report: it loads something" >&2
    failures=1
  fi
  for scheme in light dark; do
    shoot "$report" 1280 "${LOCKSTEP_SHOT_HEIGHT:-3600}" $scheme
    shoot "$report" 390 "${LOCKSTEP_SHOT_HEIGHT:-6000}" $scheme
  done
done
((failures == 0)) && echo "${#reports[@]} reports have an empty console and load nothing"
exit $failures
