# cmake --install puts programs into bin/ and configurations into share/lockstep/configs. env.sh, the environment module and
# batch files go into share/lockstep. It also installs a CMake package: find_package(lockstep) defines lockstep::core ...
# lockstep::plan, with the headers of src/ as their include folder.
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)

set(rooms core json unicode program comm config store net hosting kernels tensor parameters nn models movement dist data tokenizer writing metrics snapshot language huggingface job train plan doctor elastic keeper)
list(TRANSFORM rooms PREPEND lockstep_ OUTPUT_VARIABLE libraries)
install(TARGETS ${libraries} EXPORT lockstep ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(EXPORT lockstep NAMESPACE lockstep:: FILE lockstepTargets.cmake
  DESTINATION ${package_folder} COMPONENT development)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/src/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/lockstep COMPONENT development
  FILES_MATCHING PATTERN *.h PATTERN kernels/cpu EXCLUDE PATTERN kernels/cuda EXCLUDE
  PATTERN tensor/ops EXCLUDE PATTERN cuda_check.h EXCLUDE PATTERN memory_pool.h EXCLUDE)

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
