# The emulator's own tests. They run correct and incorrect toy kernels and check the results or the errors.
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/emulator/*_test.cpp ${CMAKE_CURRENT_SOURCE_DIR}/emulator/*_test.cu)
lockstep_program(emulator_tests SOURCES ${sources} LIBRARIES lockstep::core GTest::gtest_main nlohmann_json::nlohmann_json)
target_compile_definitions(emulator_tests PRIVATE LOCKSTEP_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
lockstep_cuda(emulator_tests)
add_dependencies(gpu_tests emulator_tests)
gtest_discover_tests(emulator_tests TEST_PREFIX emulator. DISCOVERY_TIMEOUT 60
  PROPERTIES TIMEOUT 300 PROCESSORS ${one_core} LABELS gpu)

include(${CMAKE_CURRENT_LIST_DIR}/planted_bugs.cmake)

# A step as a table of launches, from host code whose device work is listed instead of executed.
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/step/*.cpp)
lockstep_test_program(step_tests SOURCES ${sources} LIBRARIES lockstep::train lockstep_emulator)
add_dependencies(gpu_tests step_tests)
gtest_discover_tests(step_tests TEST_PREFIX step. DISCOVERY_TIMEOUT 60
  PROPERTIES TIMEOUT 300 PROCESSORS ${one_core} LABELS gpu)
