# In objects of all headers, nothing but what several files of a program may define: -Dnm, -Dobjects (by commas).
# Not: a test of behaviour.
string(REPLACE "," ";" objects "${objects}")
execute_process(COMMAND "${nm}" --defined-only -C ${objects} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
# Strong symbols, which a second file would define again; and data that each file has by itself.
string(REGEX MATCHALL "[^\n]* ([TDBRGSA] [^\n]*|[dbr] tawpipe::[^\n]*)" found "${symbols}")
if(found)
  list(JOIN found "\n  " found)
  message(FATAL_ERROR "these must be inline:\n  ${found}")
endif()
string(REGEX MATCH " [Wu] tawpipe::" any "${symbols}")
if(NOT any)
  message(FATAL_ERROR "${objects} have no symbol of tawpipe's: they hold no header")
endif()
