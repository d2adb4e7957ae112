# Finds NCCL's header and library. Sets NCCL_FOUND, NCCL_VERSION and the target NCCL::nccl. Searches NCCL_ROOT, the CUDA
# toolkit and the system. If they lack either file it searches the Python package nvidia-nccl-cu12 or nvidia-nccl-cu13, of
# the active environment or of the python3 on PATH. That package has no libnccl.so, only libnccl.so.2.
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${NCCL_ROOT} ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 NAMES_PER_DIR HINTS ${NCCL_ROOT} ${CUDAToolkit_LIBRARY_DIR}
  PATH_SUFFIXES lib lib64)
if(NOT NCCL_INCLUDE_DIR OR NOT NCCL_LIBRARY)
  find_program(NCCL_PYTHON python3 HINTS ENV VIRTUAL_ENV ENV CONDA_PREFIX PATH_SUFFIXES bin)
  set(package "")
  if(NCCL_PYTHON)
    execute_process(COMMAND ${NCCL_PYTHON} -c
      "import importlib.util; print(importlib.util.find_spec('nvidia.nccl').submodule_search_locations[0])"
      OUTPUT_VARIABLE package ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  endif()
  # Header and library must be of one version, so the package has to have both.
  file(GLOB library "${package}/lib/libnccl.so.2")
  if(package AND library AND EXISTS "${package}/include/nccl.h")
    set(NCCL_INCLUDE_DIR "${package}/include" CACHE PATH "The folder of nccl.h" FORCE)
    set(NCCL_LIBRARY "${library}" CACHE FILEPATH "NCCL's library" FORCE)
  endif()
endif()
if(NCCL_INCLUDE_DIR)
  file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h lines REGEX "#define NCCL_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE "[^0-9;]" "" NCCL_VERSION "${lines}")
  string(REPLACE ";" "." NCCL_VERSION "${NCCL_VERSION}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR VERSION_VAR NCCL_VERSION)
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY NCCL_PYTHON)
if(NCCL_FOUND AND NOT TARGET NCCL::nccl)
  add_library(NCCL::nccl UNKNOWN IMPORTED)
  set_target_properties(NCCL::nccl PROPERTIES
    IMPORTED_LOCATION ${NCCL_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${NCCL_INCLUDE_DIR})
endif()
