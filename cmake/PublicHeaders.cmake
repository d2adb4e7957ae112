cmake_policy(VERSION 3.22)  # installation scripts set none

# lockstep_public_headers(<variable> <folder>): lists lockstep.h and all headers that it leads to. Names are relative to the folder.
function(lockstep_public_headers variable folder)
  set(queue lockstep.h)
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
