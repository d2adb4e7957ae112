# SPDX-License-Identifier: Apache-2.0
# Turns a solution into its exercise. A mark is a line of its own. It names the part of the code below to leave blank:
#   // blank<int>("how many ranks share the samples"): world.size()
#   // blank<void>("the optimizer's step")
# The first mark's part becomes blank<int>("how many ranks share the samples"). It must be in one of the next three lines.
# A blank<void> replaces the next line, or the next two with ", 2 lines" at its end.
# Exits with 1 for a mark of another form or a missing part.
function fail(line, what) {
  print FILENAME ":" line ": " what > "/dev/stderr"
  failed = 1
  exit 1
}
/^ *\/\/ blank</ {
  open_at = index($0, "blank<")
  close_at = match($0, /"\)(: .|, [0-9]+ lines$|$)/) + 2
  blank = substr($0, open_at, close_at - open_at)
  rest = substr($0, close_at)
  is_statement = blank ~ /^blank<void>/
  if (close_at == 2 || is_statement == (rest ~ /^:/))
    fail(FNR, "a mark is // blank<type>(\"words\"): part of the code below, or // blank<void>(\"words\")")
  if (is_statement) {
    print substr($0, 1, open_at - 4) blank ";"
    left_out = rest == "" ? 1 : substr(rest, 3) + 0
  } else {
    blank_of[substr(rest, 3)] = blank
    line_of[substr(rest, 3)] = FNR
  }
  next
}
left_out > 0 { --left_out; next }
{
  for (part in blank_of) {
    at = index($0, part)
    if (at) {
      $0 = substr($0, 1, at - 1) blank_of[part] substr($0, at + length(part))
      delete blank_of[part]
    } else if (FNR - line_of[part] >= 3) {
      fail(line_of[part], "'" part "' is in none of the next three lines")
    }
  }
  print
}
END {
  if (failed) exit 1
  for (part in blank_of) fail(line_of[part], "'" part "' is in none of the next three lines")
  if (left_out > 0) fail(FNR, "there is no line below the last mark")
}
