# cmake --install puts programs into bin/ and configurations into share/lockstep/configs. env.sh, the environment module and
# batch files go into share/lockstep. It also installs a CMake package: find_package(lockstep) defines lockstep::lockstep and a
# target for each room below (lockstepConfig.cmake.in).
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)

# The rooms of lockstep.h and those that they need. The programs alone use the others.
set(rooms core json unicode program comm config store kernels tensor parameters nn models movement dist data tokenizer writing
  events metrics snapshot language huggingface job train plan)
list(TRANSFORM rooms PREPEND lockstep_ OUTPUT_VARIABLE libraries)
install(TARGETS ${libraries} EXPORT lockstep ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(EXPORT lockstep NAMESPACE lockstep:: FILE lockstepTargets.cmake
  DESTINATION ${package_folder} COMPONENT development)
# The headers are listed at each installation, because an include may change without a run of cmake.
install(CODE "
  include(${CMAKE_CURRENT_LIST_DIR}/PublicHeaders.cmake)
  set(folder ${CMAKE_INSTALL_INCLUDEDIR}/lockstep)
  cmake_path(ABSOLUTE_PATH folder BASE_DIRECTORY \${CMAKE_INSTALL_PREFIX})
  lockstep_public_headers(headers ${PROJECT_SOURCE_DIR}/src)
  foreach(header IN LISTS headers)
    cmake_path(GET header PARENT_PATH room)
    file(INSTALL ${PROJECT_SOURCE_DIR}/src/\${header} DESTINATION \${folder}/\${room})
  endforeach()" COMPONENT development)

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/lockstepConfig.cmake.in lockstepConfig.cmake
  INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(lockstepConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/lockstepConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/lockstepConfigVersion.cmake
  ${CMAKE_CURRENT_LIST_DIR}/FindNCCL.cmake
  DESTINATION ${package_folder} COMPONENT development)

get_property(programs DIRECTORY ${PROJECT_SOURCE_DIR}/apps PROPERTY BUILDSYSTEM_TARGETS)
if(programs)
  install(TARGETS ${programs} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT programs)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/configs ${PROJECT_SOURCE_DIR}/scripts/modulefiles
  DESTINATION ${CMAKE_INSTALL_DATADIR}/lockstep COMPONENT programs)
# A site's settings are not installed, because an installation has its own.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/scripts/slurm DESTINATION ${CMAKE_INSTALL_DATADIR}/lockstep COMPONENT programs
  USE_SOURCE_PERMISSIONS PATTERN site.sh EXCLUDE)
install(FILES ${PROJECT_SOURCE_DIR}/scripts/env.sh DESTINATION ${CMAKE_INSTALL_DATADIR}/lockstep COMPONENT programs)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT programs)
