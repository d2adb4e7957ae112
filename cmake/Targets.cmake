include(GNUInstallDirs)

# Includes begin with lockstep/, in the project and in those of users. In a build this folder leads to src/.
set(LOCKSTEP_INCLUDE ${PROJECT_BINARY_DIR}/include)
file(MAKE_DIRECTORY ${LOCKSTEP_INCLUDE})
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/src ${LOCKSTEP_INCLUDE}/lockstep SYMBOLIC)

# lockstep_choose_twins(<variable>): removes sources of disabled libraries from the list in the variable.
# <name>_curl.cpp, <name>_openssl.cpp and <name>_pugixml.cpp are compiled with that library, <name>_none.cpp without it.
# A <name>_none.cpp without such a twin is compiled in builds without CUDA. *_cuda.cpp is compiled in builds with CUDA.
function(lockstep_choose_twins variable)
  set(sources ${${variable}})
  set(chosen "")
  foreach(library curl openssl pugixml)
    string(TOUPPER ${library} key)
    set(twins ${sources})
    list(FILTER twins INCLUDE REGEX "_${library}\\.cpp$")
    foreach(twin IN LISTS twins)
      string(REGEX REPLACE "_${library}\\.cpp$" "_none.cpp" none ${twin})
      list(REMOVE_ITEM sources ${twin} ${none})
      if(LOCKSTEP_${key})
        list(APPEND chosen ${twin})
      elseif(EXISTS ${none})
        list(APPEND chosen ${none})
      endif()
    endforeach()
  endforeach()
  if(LOCKSTEP_HAVE_CUDA)
    list(FILTER sources EXCLUDE REGEX "_none\\.cpp$")
  else()
    list(FILTER sources EXCLUDE REGEX "_cuda\\.cpp$|/cuda/|\\.cu$")
  endif()
  list(APPEND sources ${chosen})
  list(SORT sources)
  set(${variable} ${sources} PARENT_SCOPE)
endfunction()

# lockstep_library(<room> [COLD] [PUBLIC targets...] [PRIVATE targets...]): makes the library lockstep_<room> from every
# source below the calling folder. PUBLIC names the rooms whose headers this room's headers include. COLD is for rooms that
# wait for files, sockets and users. Their loops over tensors or tokens are limited by memory or a disk.
function(lockstep_library room)
  cmake_parse_arguments(PARSE_ARGV 1 arg "COLD" "" "PUBLIC;PRIVATE")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp ${CMAKE_CURRENT_SOURCE_DIR}/*.cu)
  lockstep_choose_twins(sources)
  add_library(lockstep_${room} STATIC ${sources})
  add_library(lockstep::${room} ALIAS lockstep_${room})
  set_target_properties(lockstep_${room} PROPERTIES EXPORT_NAME ${room} POSITION_INDEPENDENT_CODE ON)
  target_compile_features(lockstep_${room} PUBLIC cxx_std_20)
  target_include_directories(lockstep_${room} PUBLIC
    $<BUILD_INTERFACE:${LOCKSTEP_INCLUDE}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  # No public header includes a library of headers alone. So programs that use an installed copy need none of them.
  list(TRANSFORM arg_PRIVATE REPLACE "^(nlohmann_json|CLI11)::.*" "$<BUILD_INTERFACE:\\0>")
  target_link_libraries(lockstep_${room} PUBLIC ${arg_PUBLIC} PRIVATE ${arg_PRIVATE} $<BUILD_INTERFACE:lockstep_options>)
  # Fuzzing runs cold code for most of its time.
  if(arg_COLD AND NOT LOCKSTEP_SANITIZE MATCHES "fuzzer")
    target_compile_options(lockstep_${room} PRIVATE ${LOCKSTEP_COLD_OPTIONS})
  endif()
endfunction()

# lockstep_cuda(<target>): lets the sources of a target call CUDA or its emulation. nvcc compiles *.cu. In emulated builds
# the C++ compiler does, with the race checker's hooks at each memory access.
function(lockstep_cuda target)
  if(NOT LOCKSTEP_HAVE_CUDA)
    return()
  endif()
  if(LOCKSTEP_CUDA STREQUAL "EMULATED")
    target_include_directories(${target} BEFORE PRIVATE ${LOCKSTEP_EMULATOR_SHADOW})
    target_include_directories(${target} SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
    target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:lockstep_emulator>)
    get_target_property(sources ${target} SOURCES)
    list(FILTER sources INCLUDE REGEX "\\.cu$")
    lockstep_emulated_sources(${sources})
    return()
  endif()
  target_link_libraries(${target} PRIVATE CUDA::cudart CUDA::cublasLt)
endfunction()

# lockstep_emulated_sources(<source>...): compiles .cu files as C++ with the race checker's hooks. Call it in the folder of
# their target.
function(lockstep_emulated_sources)
  if(ARGN)
    set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "${LOCKSTEP_EMULATOR_OPTIONS}")
  endif()
endfunction()

# lockstep_program(<name> SOURCES ... LIBRARIES ...): makes an executable in bin/.
function(lockstep_program program)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBRARIES")
  add_executable(${program} ${arg_SOURCES})
  target_link_libraries(${program} PRIVATE ${arg_LIBRARIES} lockstep_options)
  # Programs spend their time in the libraries, so their own code is compiled as cold code.
  target_compile_options(${program} PRIVATE ${LOCKSTEP_COLD_OPTIONS})
  if(LOCKSTEP_SANITIZE MATCHES "address")
    target_sources(${program} PRIVATE ${PROJECT_SOURCE_DIR}/tests/support/keep_plugins.cpp)
    target_link_options(${program} PRIVATE -Wl,--export-dynamic-symbol=dlclose)
  endif()
endfunction()
