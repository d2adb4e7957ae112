# Installs a build into an empty folder. Builds a copy of the README's example with that installation alone.
# Trains the example's model on one rank and on two. Both runs must print the same lines, including the
# parameters' hash.
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

load_cache(${BUILD} READ_WITH_PREFIX build_ CMAKE_CXX_COMPILER CMAKE_GENERATOR)
file(COPY ${SOURCE}/ DESTINATION ${FOLDER}/my_training)
run(${CMAKE_COMMAND} -S ${FOLDER}/my_training -B ${FOLDER}/build -G ${build_CMAKE_GENERATOR} -D CMAKE_BUILD_TYPE=Release
  -D CMAKE_CXX_COMPILER=${build_CMAKE_CXX_COMPILER} -D CMAKE_PREFIX_PATH=${FOLDER}/prefix)
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
file(REMOVE_RECURSE ${FOLDER})
