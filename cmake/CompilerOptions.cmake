# Compiler options of every target of the project. Their interface target is never exported.
add_library(lockstep_options INTERFACE)
target_compile_features(lockstep_options INTERFACE cxx_std_20)

# -ffp-contract=off: the compiler uses a fused multiply-add only if the source calls it. Otherwise a loop's vector body and
# its remainder could differ. -fno-math-errno and -fno-trapping-math allow vectorised square roots and selects. They change
# no value. Fast-math is never used.
set(cxx_only "$<COMPILE_LANGUAGE:CXX>")
target_compile_options(lockstep_options INTERFACE "$<${cxx_only}:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wnon-virtual-dtor>"
  "$<${cxx_only}:-Woverloaded-virtual;-ffp-contract=off;-fno-math-errno;-fno-trapping-math>")
# Options for nvcc: no contraction to multiply-adds, constexpr functions of core/ in kernels, warnings for host and device.
target_compile_options(lockstep_options INTERFACE
  "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;-fmad=false;--expt-relaxed-constexpr;--extended-lambda;-Xcompiler=-Wall,-Wextra>")
# Warnings are errors with the compilers of .ci/run and of scripts/try_debian.sh. Other versions may have other warnings. For
# .cu files both nvcc and its compiler for host code warn.
set(covered_CXX "GNU 12.2" "Clang 14.0")
set(covered_CUDA "NVIDIA 13.0 with GNU 12.2" "NVIDIA 12.4 with GNU 13.3")
option(LOCKSTEP_WERROR "Treat warnings as errors, whatever the compilers' versions" OFF)
function(lockstep_warnings_are_errors language option)
  string(REGEX MATCH "^[0-9]+[.][0-9]+" version "${CMAKE_${language}_COMPILER_VERSION}")
  set(compiler "${CMAKE_${language}_COMPILER_ID} ${version}")
  if(language STREQUAL "CUDA")
    string(APPEND compiler " with ${LOCKSTEP_CUDA_HOST}")
  endif()
  if(LOCKSTEP_WERROR OR compiler IN_LIST covered_${language})
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
# Optimised builds also check invariants, so NDEBUG is removed from CMake's default flags. A user's flags are kept.
foreach(flags CMAKE_CXX_FLAGS_RELEASE CMAKE_CUDA_FLAGS_RELEASE CMAKE_CXX_FLAGS_RELWITHDEBINFO CMAKE_CUDA_FLAGS_RELWITHDEBINFO)
  string(REGEX REPLACE "^(-O[23]( -g)?) -DNDEBUG$" "\\1" ${flags} "${${flags}}")
endforeach()
# Some code waits for files, sockets and users more than it computes. -O1 compiles it in two thirds of the time. A user's
# flags apply to it too.
set(LOCKSTEP_COLD_OPTIONS "")
if(CMAKE_CXX_FLAGS_RELEASE STREQUAL "-O3")
  set(LOCKSTEP_COLD_OPTIONS "$<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>")
endif()

set(LOCKSTEP_SANITIZE "" CACHE STRING "Sanitizers: empty, thread or address,undefined; with ,fuzzer-no-link also the fuzz targets")
# Sanitized and emulated builds take longer to compile than to run. With sanitizers -Og needs half to two thirds of the time
# of -O1. Cold code is compiled with -O0. clang++'s -Og is its -O1. These are flags of all targets, so that a target can
# disable a sanitizer.
if(LOCKSTEP_SANITIZE OR LOCKSTEP_CUDA STREQUAL "EMULATED")
  string(APPEND CMAKE_CXX_FLAGS_RELEASE " -Og")
  set(LOCKSTEP_COLD_OPTIONS "$<$<COMPILE_LANGUAGE:CXX>:-O0>")
endif()
if(LOCKSTEP_SANITIZE)
  string(APPEND CMAKE_CXX_FLAGS_RELEASE
    " -fsanitize=${LOCKSTEP_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1")
  # gcc's maybe-uninitialized has false positives in instrumented code, for example in its own <regex>.
  target_compile_options(lockstep_options INTERFACE "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>")
endif()
# An access beyond a container's size, but within its capacity, is valid for AddressSanitizer.
if(LOCKSTEP_SANITIZE MATCHES "address")
  add_compile_definitions(_GLIBCXX_ASSERTIONS)
endif()
# Four pointer checks of UBSan take a tenth to a fifth of the compile time. AddressSanitizer reports most accesses through
# such pointers. Pointer arithmetic without an access and a wrong dynamic type are not reported.
if(LOCKSTEP_SANITIZE MATCHES "address" AND LOCKSTEP_SANITIZE MATCHES "undefined")
  string(APPEND CMAKE_CXX_FLAGS_RELEASE " -fno-sanitize=null,vptr,object-size,pointer-overflow")
endif()
option(LOCKSTEP_COVERAGE "Count executed lines for gcov" OFF)
if(LOCKSTEP_COVERAGE)
  target_compile_options(lockstep_options INTERFACE --coverage -O1)
  target_link_options(lockstep_options INTERFACE --coverage)
endif()

# ccache stores results that use precompiled headers only with these two kinds of sloppiness. clang must omit the timestamp
# from the header. In depend mode the compiler tells ccache which files it read, so ccache need not preprocess a new file.
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
