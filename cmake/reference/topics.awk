# awk -f topics.awk src/lockstep.h <header>: prints the header with its declarations in a topic of the reference. The topic is the
# comment above the header's #include in lockstep.h. Deleted functions are left out. Lines keep their numbers.
FNR == 1 { ++file }
file == 1 {
  if (/^\/\/ /) topic = substr($0, 4)
  if (/^#include "/) {
    split($0, quoted, "\"")
    sub("^lockstep/", "", quoted[2])
    topics[quoted[2]] = topic
  }
  next
}
FNR == 1 {
  for (header in topics)
    if (substr(FILENAME, length(FILENAME) - length(header)) == "/" header) topic = topics[header]
  name = tolower(topic)
  gsub(/[^a-z]+/, "_", name)
}
/^namespace lockstep {$/ { $0 = $0 " /** \\addtogroup " name " " topic " */ /** @{ */" }
/^}  \/\/ namespace lockstep$/ { $0 = "/** @} */ " $0 }
/ = delete;$/ { $0 = "" }
{ print }
