cmake_policy(VERSION 3.22)  # installation scripts set none

# lockstep_public_headers(<variable> <folder>): lists the headers that users include: lockstep.h, the contracts of the kernels, and
# all headers that these include. Names are relative to the folder.
function(lockstep_public_headers variable folder)
  file(GLOB queue RELATIVE ${folder} ${folder}/kernels/*.h)
  list(APPEND queue lockstep.h)
  set(headers "")
  while(queue)
    list(POP_FRONT queue header)
    if(NOT header IN_LIST headers)
      list(APPEND headers ${header})
      file(STRINGS ${folder}/${header} includes REGEX "^#include \"")
      list(TRANSFORM includes REPLACE "^#include \"(lockstep/)?([^\"]+)\".*" "\\2")
      list(APPEND queue ${includes})
    endif()
  endwhile()
  list(SORT headers)
  set(${variable} ${headers} PARENT_SCOPE)
endfunction()
