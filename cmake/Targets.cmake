include(GNUInstallDirs)

# lockstep_library(<room> [PUBLIC targets...] [PRIVATE targets...]): the library lockstep_<room> from every source
# below the calling folder. PUBLIC names the rooms whose headers this room's headers include.
function(lockstep_library room)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "PUBLIC;PRIVATE")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  add_library(lockstep_${room} STATIC ${sources})
  add_library(lockstep::${room} ALIAS lockstep_${room})
  set_target_properties(lockstep_${room} PROPERTIES EXPORT_NAME ${room} POSITION_INDEPENDENT_CODE ON)
  target_compile_features(lockstep_${room} PUBLIC cxx_std_20)
  target_include_directories(lockstep_${room} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/lockstep>)
  target_link_libraries(lockstep_${room} PUBLIC ${arg_PUBLIC} PRIVATE ${arg_PRIVATE} $<BUILD_INTERFACE:lockstep_options>)
endfunction()

# lockstep_program(<name> SOURCES ... LIBRARIES ...): an executable in bin/.
function(lockstep_program program)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBRARIES")
  add_executable(${program} ${arg_SOURCES})
  target_link_libraries(${program} PRIVATE ${arg_LIBRARIES} lockstep_options)
endfunction()
