# Finds the PMIx library that Open MPI uses. Sets PMIX_FOUND, PMIX_VERSION and the target PMIX::pmix. Debian keeps its headers
# apart from those of other packages. Searches PMIX_ROOT first.
set(folder lib/${CMAKE_LIBRARY_ARCHITECTURE}/pmix2)
find_path(PMIX_INCLUDE_DIR pmix_server.h HINTS ${PMIX_ROOT} PATH_SUFFIXES include ../${folder}/include
  PATHS /usr/${folder}/include)
find_library(PMIX_LIBRARY pmix HINTS ${PMIX_ROOT} PATH_SUFFIXES lib lib64)
if(PMIX_INCLUDE_DIR)
  file(STRINGS ${PMIX_INCLUDE_DIR}/pmix_version.h lines REGEX "#define PMIX_VERSION_(MAJOR|MINOR|RELEASE) ")
  string(REGEX REPLACE "[^0-9;]" "" PMIX_VERSION "${lines}")
  string(REPLACE ";" "." PMIX_VERSION "${PMIX_VERSION}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(PMIX REQUIRED_VARS PMIX_LIBRARY PMIX_INCLUDE_DIR VERSION_VAR PMIX_VERSION)
mark_as_advanced(PMIX_INCLUDE_DIR PMIX_LIBRARY)
if(PMIX_FOUND AND NOT TARGET PMIX::pmix)
  add_library(PMIX::pmix UNKNOWN IMPORTED)
  set_target_properties(PMIX::pmix PROPERTIES
    IMPORTED_LOCATION ${PMIX_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${PMIX_INCLUDE_DIR})
endif()
