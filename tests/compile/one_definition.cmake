# In an object of every header, nothing but what several files of a program may define: -Dnm, -Dobject.
# Not: a test of behaviour.
execute_process(COMMAND "${nm}" --defined-only -C "${object}" OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
# Strong symbols, which a second file would define again; and data that each file has by itself.
string(REGEX MATCHALL "[^\n]* ([TDBRGSA] [^\n]*|[dbr] tawpipe::[^\n]*)" found "${symbols}")
if(found)
  list(JOIN found "\n  " found)
  message(FATAL_ERROR "these must be inline:\n  ${found}")
endif()
string(REGEX MATCH " [Wu] tawpipe::" any "${symbols}")
if(NOT any)
  message(FATAL_ERROR "${object} has no symbol of tawpipe's: it holds no header")
endif()
