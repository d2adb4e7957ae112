# Configures while installed libraries are hidden. One message must name all missing libraries, and options
# must leave them out. A version that is too old counts as missing. The conda and Spack files and the page
# must name the same packages.
#   cmake -D SOURCE=<the repository> -D FOLDER=<scratch> -D GENERATOR=<generator> -D COMPILER=<C++ compiler> -P dependencies.cmake
cmake_minimum_required(VERSION 3.22)

# configure(<result> <options>...): sets `output`, and fails unless the configuration ends with the given
# result.
function(configure expected)
  execute_process(COMMAND ${CMAKE_COMMAND} -S ${SOURCE} -B ${FOLDER}/build -G ${GENERATOR} -D CMAKE_CXX_COMPILER=${COMPILER}
    -D LOCKSTEP_CUDA=OFF ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if((expected STREQUAL "succeeds" AND NOT result EQUAL 0) OR (expected STREQUAL "fails" AND result EQUAL 0))
    message(FATAL_ERROR "cmake ${ARGN}\nended with ${result}:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

function(expect_text text)
  string(FIND "${output}" "${text}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "\"${text}\" is missing in:\n${output}")
  endif()
endfunction()

function(expect_count pattern expected)
  string(REGEX MATCHALL "${pattern}" found "${output}")
  list(LENGTH found count)
  if(NOT count EQUAL expected)
    message(FATAL_ERROR "\"${pattern}\" comes ${count} times, not ${expected}, in:\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE ${FOLDER})
set(hidden "")
foreach(package CURL OpenSSL pugixml MPI GTest)
  list(APPEND hidden -D CMAKE_DISABLE_FIND_PACKAGE_${package}=ON)
endforeach()
configure(fails ${hidden})
message(STATUS "five hidden:\n${output}")
expect_count("CMake (Error|Warning)" 1)
foreach(name libcurl OpenSSL pugixml MPI GoogleTest)
  expect_count("\n +${name} >= [0-9.]+ " 1)
endforeach()
expect_count("\n +[A-Za-z0-9_]+ >= " 5)

# Tests the minimum version with a package that has none of its files.
file(WRITE ${FOLDER}/old/pugixmlConfig.cmake "set(pugixml_FOUND TRUE)\n")
file(WRITE ${FOLDER}/old/pugixmlConfigVersion.cmake "set(PACKAGE_VERSION 1.0)\n")
configure(fails -D CMAKE_DISABLE_FIND_PACKAGE_pugixml=OFF -D pugixml_DIR=${FOLDER}/old
  -D LOCKSTEP_CURL=OFF -D LOCKSTEP_OPENSSL=OFF -D LOCKSTEP_MPI=OFF -D LOCKSTEP_TESTS=OFF -D LOCKSTEP_BENCH=OFF)
expect_count("\n +[A-Za-z0-9_]+ >= " 1)
expect_text("(not 1.0)")

configure(succeeds -D LOCKSTEP_PUGIXML=OFF)
expect_text("without MPI, PMIx, libcurl, OpenSSL, pugixml, CUDA\n")
expect_count("CMake Warning" 0)

configure(succeeds -D LOCKSTEP_MPI=AUTO)
expect_count("CMake Warning" 1)
expect_text("ONE RANK")

# All lists of packages must agree.
file(READ ${SOURCE}/packaging/environment.yml environment)
file(READ ${SOURCE}/packaging/spack/spack_repo/lockstep/packages/lockstep/package.py recipe)
file(READ ${SOURCE}/docs/install.md page)
file(STRINGS ${SOURCE}/cmake/dependencies.txt rows REGEX "^[^#]")
foreach(row IN LISTS rows)
  string(REGEX REPLACE " *\\| *" ";" row "${row}")
  list(GET row 0 name)
  list(GET row 1 least)
  list(GET row 6 conda)
  list(GET row 7 spack)
  set(bound "")
  if(NOT least STREQUAL "-")  # for MPI it is the version of the standard
    set(bound " >=${least}")
  endif()
  set(output "${environment}")
  if(name STREQUAL "MPI")
    expect_text("\n  - ${conda}\n")
  else()
    expect_text("\n  - ${conda}${bound}\n")
  endif()
  set(output "${page}")
  expect_text("\n| ${name} | ${least} | ")
  if(NOT name MATCHES "^(C.. compiler|ccache|elfutils)$")
    string(REPLACE " >=" "@" bound "${bound}")
    set(output "${recipe}")
    expect_text("depends_on(\"${spack}${bound}")
  endif()
endforeach()
file(REMOVE_RECURSE ${FOLDER})
