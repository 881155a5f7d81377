# Puts the files of the page of a report (include/tawpipe/report/page/) into a header, report/detail/page_files.hpp.
# Not: their check (tools/check_page.py).
set(tawpipe_generated_folder "${PROJECT_BINARY_DIR}/generated")
set(tawpipe_page_folder "${PROJECT_SOURCE_DIR}/include/tawpipe/report/page")
set(tawpipe_page_scripts "")
foreach(file IN ITEMS page.html page.css common.js figures.js iteration.js timeline.js panels.js results.js plan.js commands.js
    start.js)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${tawpipe_page_folder}/${file}")
  file(READ "${tawpipe_page_folder}/${file}" text)
  if(file MATCHES "\\.html$")
    set(tawpipe_page_html "${text}")
  elseif(file MATCHES "\\.css$")
    set(tawpipe_page_style "${text}")
  else()
    string(APPEND tawpipe_page_scripts "    R\"page(${text})page\",\n")
  endif()
endforeach()
configure_file("${PROJECT_SOURCE_DIR}/cmake/page_files.hpp.in"
  "${tawpipe_generated_folder}/tawpipe/report/detail/page_files.hpp" @ONLY)
