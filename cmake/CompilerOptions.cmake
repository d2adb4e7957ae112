# Options of every target of the project, in one interface target that is never exported.
add_library(lockstep_options INTERFACE)
target_compile_features(lockstep_options INTERFACE cxx_std_20)

# -ffp-contract=off: a fused multiply-add happens where the source says so, never where a loop's vector body and
# its remainder might differ. -fno-math-errno and -fno-trapping-math let square roots and selects vectorise and
# change no value. No fast-math anywhere.
set(cxx_only "$<COMPILE_LANGUAGE:CXX>")
target_compile_options(lockstep_options INTERFACE "$<${cxx_only}:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wnon-virtual-dtor>"
  "$<${cxx_only}:-Woverloaded-virtual;-ffp-contract=off;-fno-math-errno;-fno-trapping-math>")
# nvcc: the same rule for multiply-adds, constexpr functions of core/ in kernels, warnings of both its halves.
target_compile_options(lockstep_options INTERFACE
  "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;-fmad=false;--expt-relaxed-constexpr;--extended-lambda;-Xcompiler=-Wall,-Wextra>")
# Warnings are errors with the compilers of .ci/run. Other versions may warn about something else.
set(covered_GNU 12.2)
set(covered_Clang 14.0)
set(covered_NVIDIA 13.0)
option(LOCKSTEP_WERROR "Treat warnings as errors, whatever the compilers' versions" OFF)
function(lockstep_warnings_are_errors language option)
  set(covered "${covered_${CMAKE_${language}_COMPILER_ID}}")
  if(LOCKSTEP_WERROR OR (covered AND "${CMAKE_${language}_COMPILER_VERSION}." MATCHES "^${covered}[.]"))
    target_compile_options(lockstep_options INTERFACE "$<$<COMPILE_LANGUAGE:${language}>:${option}>")
  endif()
endfunction()
lockstep_warnings_are_errors(CXX -Werror)
if(CMAKE_CUDA_COMPILER)
  lockstep_warnings_are_errors(CUDA -Werror=all-warnings)
endif()
if(LOCKSTEP_ARCH)
  target_compile_options(lockstep_options INTERFACE "$<${cxx_only}:-march=${LOCKSTEP_ARCH}>")
endif()

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
# Invariants stay checked in optimised builds, so NDEBUG is not among CMake's own flags. Flags of a user stay.
foreach(flags CMAKE_CXX_FLAGS_RELEASE CMAKE_CUDA_FLAGS_RELEASE CMAKE_CXX_FLAGS_RELWITHDEBINFO CMAKE_CUDA_FLAGS_RELWITHDEBINFO)
  string(REGEX REPLACE "^(-O[23]( -g)?) -DNDEBUG$" "\\1" ${flags} "${${flags}}")
endforeach()
# Code that waits for files, sockets and people more than it computes compiles in two thirds of the time with -O1. Flags of a
# user hold for it as well.
set(LOCKSTEP_COLD_OPTIONS "")
if(CMAKE_CXX_FLAGS_RELEASE STREQUAL "-O3")
  set(LOCKSTEP_COLD_OPTIONS "$<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>")
endif()

set(LOCKSTEP_SANITIZE "" CACHE STRING "Sanitizers: empty, address,undefined or thread")
# Builds that look for faults take longer to compile than to run: with sanitizers -Og takes half to two
# thirds of what -O1 takes, and cold code takes -O0. clang++'s -Og is its -O1. Flags of all targets, so that a target can
# take a sanitizer back.
if(LOCKSTEP_SANITIZE OR LOCKSTEP_CUDA STREQUAL "EMULATED")
  string(APPEND CMAKE_CXX_FLAGS_RELEASE " -Og")
  set(LOCKSTEP_COLD_OPTIONS "$<$<COMPILE_LANGUAGE:CXX>:-O0>")
endif()
if(LOCKSTEP_SANITIZE)
  string(APPEND CMAKE_CXX_FLAGS_RELEASE
    " -fsanitize=${LOCKSTEP_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1")
  # gcc's maybe-uninitialized sees ghosts in instrumented code, in its own <regex> for one.
  target_compile_options(lockstep_options INTERFACE -Wno-maybe-uninitialized)
endif()
# Four pointer checks of UBSan take a tenth to a fifth of the time to compile. AddressSanitizer reports most accesses through
# such pointers. Pointer arithmetic without an access and a wrong dynamic type go unreported.
if(LOCKSTEP_SANITIZE MATCHES "address" AND LOCKSTEP_SANITIZE MATCHES "undefined")
  string(APPEND CMAKE_CXX_FLAGS_RELEASE " -fno-sanitize=null,vptr,object-size,pointer-overflow")
endif()
option(LOCKSTEP_COVERAGE "Count executed lines for gcov" OFF)
if(LOCKSTEP_COVERAGE)
  target_compile_options(lockstep_options INTERFACE --coverage -O1)
  target_link_options(lockstep_options INTERFACE --coverage)
endif()

# ccache keeps results that use precompiled headers only with these two kinds of sloppiness, and clang must leave the time out
# of the header. In depend mode ccache asks the compiler which files it has read, and need not preprocess a new file.
find_program(CCACHE ccache)
foreach(language CXX CUDA)
  if(CCACHE AND NOT CMAKE_${language}_COMPILER_LAUNCHER)
    set(CMAKE_${language}_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_DEPEND=1 ${CCACHE})
  endif()
endforeach()
if(CCACHE)
  target_compile_options(lockstep_options INTERFACE "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>"
    "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-Xclang -fno-pch-timestamp>")
endif()
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
