# cmake -Dprogram=P -Dexpected=FILE -P: runs P; it must exit 0 and, where FILE exists, print exactly that.
# Not: for programs with arguments.
execute_process(COMMAND "${program}" OUTPUT_VARIABLE output ERROR_VARIABLE errors RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${program} ended with ${result}\n${output}${errors}")
endif()
if(EXISTS "${expected}")
  file(READ "${expected}" wanted)
  if(NOT output STREQUAL wanted)
    message(FATAL_ERROR "${program} printed\n${output}\nbut ${expected} holds\n${wanted}")
  endif()
endif()
