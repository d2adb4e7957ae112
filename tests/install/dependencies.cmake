# Configures without libraries that are installed: one message names all that are missing, options leave them out, and a
# version that is too old counts as missing.
#   cmake -D SOURCE=<the repository> -D FOLDER=<scratch> -D GENERATOR=<generator> -D COMPILER=<C++ compiler> -P dependencies.cmake
cmake_minimum_required(VERSION 3.22)

# configure(<result> <options>...): sets `output`, and fails unless the configuration ends as the result says.
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

# The test of the least version, with a package that has none of its files.
file(WRITE ${FOLDER}/old/pugixmlConfig.cmake "set(pugixml_FOUND TRUE)\n")
file(WRITE ${FOLDER}/old/pugixmlConfigVersion.cmake "set(PACKAGE_VERSION 1.0)\n")
configure(fails -D CMAKE_DISABLE_FIND_PACKAGE_pugixml=OFF -D pugixml_DIR=${FOLDER}/old
  -D LOCKSTEP_CURL=OFF -D LOCKSTEP_OPENSSL=OFF -D LOCKSTEP_MPI=OFF -D LOCKSTEP_TESTS=OFF -D LOCKSTEP_BENCH=OFF)
expect_count("\n +[A-Za-z0-9_]+ >= " 1)
expect_text("(not 1.0)")

configure(succeeds -D LOCKSTEP_PUGIXML=OFF)
expect_text("without MPI, libcurl, OpenSSL, pugixml, CUDA\n")
expect_count("CMake Warning" 0)

configure(succeeds -D LOCKSTEP_MPI=AUTO)
expect_count("CMake Warning" 1)
expect_text("ONE RANK")

file(REMOVE_RECURSE ${FOLDER})
