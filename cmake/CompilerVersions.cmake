# The oldest compilers that work. Older ones lack parts of C++20 that the sources use.
set(least_GNU 11)
set(least_Clang 14)
if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS "${least_${CMAKE_CXX_COMPILER_ID}}")
  message(FATAL_ERROR "lockstep: ${CMAKE_CXX_COMPILER} is ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}, and the "
    "sources need GCC ${least_GNU} or Clang ${least_Clang} at least. Name another compiler with -DCMAKE_CXX_COMPILER=g++-12, "
    "or on Red Hat's systems enable a toolset first: source /opt/rh/gcc-toolset-13/enable (docs/install.md)")
endif()
