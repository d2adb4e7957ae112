# Installs a build into an empty folder and checks its headers. Builds a copy of the library's example with that
# installation alone, without the libraries that the component nn does not use. Trains the example's model on one
# rank and on two. Both runs must print the same lines, including the parameters' hash.
#   cmake -D BUILD=<build> -D SOURCE=<the example> -D FOLDER=<scratch> -D MPIEXEC=<mpiexec or empty> -P check.cmake
cmake_minimum_required(VERSION 3.22)

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    string(REPLACE ";" " " command "${ARGV}")
    message(FATAL_ERROR "${command}\nended with ${result}:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

# configure(<option>...): configures the copy of the example. Sets `result` and `output`.
function(configure)
  execute_process(COMMAND ${CMAKE_COMMAND} -S ${FOLDER}/my_training -B ${FOLDER}/build -G ${build_CMAKE_GENERATOR}
    -D CMAKE_BUILD_TYPE=Release -D CMAKE_CXX_COMPILER=${build_CMAKE_CXX_COMPILER} -D CMAKE_PREFIX_PATH=${FOLDER}/prefix ${ARGN}
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  set(result "${result}" PARENT_SCOPE)
  set(output "${output}" PARENT_SCOPE)
endfunction()

load_cache(${BUILD} READ_WITH_PREFIX build_ CMAKE_CXX_COMPILER CMAKE_GENERATOR)
file(REMOVE_RECURSE ${FOLDER})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${FOLDER}/prefix)
foreach(shipped share/lockstep/configs/quickstart.ini share/lockstep/modulefiles/lockstep include/lockstep/nn/module.h)
  if(NOT EXISTS ${FOLDER}/prefix/${shipped})
    message(FATAL_ERROR "the installation lacks ${shipped}")
  endif()
endforeach()

# env.sh of the installation sets up its environment.
run(bash -c "source '${FOLDER}/prefix/share/lockstep/env.sh' && command -v train_gpt")
if(NOT output STREQUAL "${FOLDER}/prefix/bin/train_gpt\n")
  message(FATAL_ERROR "after sourcing env.sh, train_gpt is ${output}")
endif()

run(${CMAKE_CURRENT_LIST_DIR}/headers.sh ${FOLDER}/prefix ${build_CMAKE_CXX_COMPILER})

file(COPY ${SOURCE}/ DESTINATION ${FOLDER}/my_training)
set(hidden "")
foreach(package CURL OpenSSL pugixml nlohmann_json CLI11)
  list(APPEND hidden -D CMAKE_DISABLE_FIND_PACKAGE_${package}=ON)
endforeach()
configure(${hidden})
if(NOT result EQUAL 0)
  message(FATAL_ERROR "the component nn needs a library that it does not use:\n${output}")
endif()
run(${CMAKE_COMMAND} --build ${FOLDER}/build)

run(${FOLDER}/build/my_training)
set(alone "${output}")
message(STATUS "1 rank:  ${alone}")
if(MPIEXEC)
  run(${MPIEXEC} -n 2 ${FOLDER}/build/my_training)
  message(STATUS "2 ranks: ${output}")
  if(NOT output STREQUAL alone)
    message(FATAL_ERROR "one rank and two ranks ended differently")
  endif()
endif()

# An unknown component is refused. Without a list all components are linked.
file(READ ${FOLDER}/my_training/CMakeLists.txt project)
string(REPLACE " nn)" " nn elastic)" changed "${project}")
file(WRITE ${FOLDER}/my_training/CMakeLists.txt "${changed}")
configure(${hidden})
string(REGEX REPLACE "[ \n]+" " " output "${output}")
if(result EQUAL 0 OR NOT output MATCHES "no component \"elastic\". Its components are nn, train and plan")
  message(FATAL_ERROR "an unknown component ended with ${result}:\n${output}")
endif()
string(REPLACE " COMPONENTS nn)" ")" changed "${project}")
file(WRITE ${FOLDER}/my_training/CMakeLists.txt "${changed}")
file(WRITE ${FOLDER}/my_training/my_training.cpp "
#include <lockstep/lockstep.h>
using namespace lockstep;
int main() {
  const char* const arguments[] = {\"my_training\", \"--help\"};
  run_training_program(2, arguments, {.make_task = [](const TaskInput&) { return std::unique_ptr<TrainingTask>(); }});
  return plan_memory([] { zeros({1000}); }).peak > 0 ? 0 : 1;
}
")
list(TRANSFORM hidden REPLACE "(CURL|OpenSSL|pugixml)=ON" "\\1=OFF")
configure(${hidden})
if(NOT result EQUAL 0)
  message(FATAL_ERROR "find_package(lockstep) without components ended with ${result}:\n${output}")
endif()
run(${CMAKE_COMMAND} --build ${FOLDER}/build)
run(${FOLDER}/build/my_training)
if(NOT output MATCHES "train.learning_rate")
  message(FATAL_ERROR "the help of all components lacks a key:\n${output}")
endif()
file(REMOVE_RECURSE ${FOLDER})
