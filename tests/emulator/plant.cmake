# cmake -D FROM=<file> -D TO=<file> -D CHANGE=<folder> -P plant.cmake: copies FROM to TO. Replaces the text in CHANGE/text by
# the text in CHANGE/becomes. Fails unless FROM contains the text exactly once.
file(READ ${FROM} source)
file(READ ${CHANGE}/text text)
file(READ ${CHANGE}/becomes becomes)
string(FIND "${source}" "${text}" first)
string(FIND "${source}" "${text}" last REVERSE)
if(first EQUAL -1 OR NOT first EQUAL last)
  message(FATAL_ERROR "tests/emulator/planted_bugs.cmake: this must stand in ${FROM} exactly once:\n${text}")
endif()
string(REPLACE "${text}" "${becomes}" source "${source}")
file(WRITE ${TO} "${source}")
