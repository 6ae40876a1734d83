# stepcast_palette(FILE): a source with the colours of the page for browsers, which reports have too: the first block of its style.
function(stepcast_palette file)
  set(style ${PROJECT_SOURCE_DIR}/bindings/web/page/style.css)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${style})
  file(READ ${style} STEPCAST_PALETTE)
  string(REGEX REPLACE "^:root {\n([^}]*)}.*" "\\1" STEPCAST_PALETTE "${STEPCAST_PALETTE}")
  configure_file(${PROJECT_SOURCE_DIR}/cli/report/palette.cpp.in ${file} @ONLY)
endfunction()
