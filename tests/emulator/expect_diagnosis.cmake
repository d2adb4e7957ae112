# cmake -D PROGRAM=<tests> -D FILTER=<filter> -D CHANGE=<folder> -P expect_diagnosis.cmake: passes if the tests fail and their
# output matches the regular expression in CHANGE/diagnosis.
file(READ ${CHANGE}/diagnosis diagnosis)
execute_process(COMMAND ${PROGRAM} --gtest_filter=${FILTER} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(result EQUAL 0)
  message(FATAL_ERROR "the planted bug was not noticed:\n${output}")
endif()
if(NOT output MATCHES "${diagnosis}")
  message(FATAL_ERROR "the planted bug was noticed, but nothing that was printed matches '${diagnosis}':\n${output}")
endif()
message(STATUS "noticed: ${CMAKE_MATCH_0}")
