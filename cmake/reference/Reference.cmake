# Writes the reference of the API by Doxygen: the headers that lockstep.h names.
#   cmake -D SOURCE=<the repository> -D FOLDER=<output> -D VERSION=<version> -P Reference.cmake
cmake_minimum_required(VERSION 3.22)

find_program(doxygen doxygen)
if(NOT doxygen)
  message(FATAL_ERROR "reference: doxygen is missing. Install its package, for example by apt-get install doxygen")
endif()
file(STRINGS ${SOURCE}/src/lockstep.h headers REGEX "^#include \"")
list(TRANSFORM headers REPLACE "^#include \"(lockstep/)?([^\"]+)\".*" "${SOURCE}/src/\\2")
set(files ${SOURCE}/cmake/reference/main.md ${headers})
list(TRANSFORM files REPLACE ".+" "\"\\0\"")
list(JOIN files " " INPUT)

# Doxygen 1.9.8 renamed the list of groups.
execute_process(COMMAND ${doxygen} --version OUTPUT_VARIABLE version)
set(GROUPS modules)
if(version VERSION_GREATER_EQUAL 1.9.8)
  set(GROUPS topics)
endif()
configure_file(${SOURCE}/cmake/reference/layout.xml.in ${FOLDER}/layout.xml @ONLY)
configure_file(${SOURCE}/cmake/reference/Doxyfile.in ${FOLDER}/Doxyfile @ONLY)
file(REMOVE_RECURSE ${FOLDER}/html)
execute_process(COMMAND ${doxygen} ${FOLDER}/Doxyfile COMMAND_ERROR_IS_FATAL ANY)
message(STATUS "reference: ${FOLDER}/html/index.html")
