# The work of tawpipe_add_compile_fail_test: -Dcompiler -Dinclude -Dsource -Dexpected.
# Not: a link; the compiler checks syntax only.
set(ENV{LC_ALL} C)  # plain quotes in the compiler's words
set(command "${compiler}" -std=c++20 -fsyntax-only -Wall -Wextra -Werror "-I${include}" "${source}")
execute_process(COMMAND ${command} RESULT_VARIABLE result OUTPUT_VARIABLE words ERROR_VARIABLE words)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${source} must compile without TAWPIPE_MISUSE, but:\n${words}")
endif()
execute_process(COMMAND ${command} -DTAWPIPE_MISUSE RESULT_VARIABLE result OUTPUT_VARIABLE words ERROR_VARIABLE words)
if(result EQUAL 0)
  message(FATAL_ERROR "${source} compiles with TAWPIPE_MISUSE, and must not")
endif()
if(NOT words MATCHES "${expected}")
  message(FATAL_ERROR "${source} fails, but not with words like \"${expected}\":\n${words}")
endif()
