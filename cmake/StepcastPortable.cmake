# STEPCAST_PORTABLE: programs carry every library but the C library, so that one runs on machines that have none of
# them (scripts/package). STEPCAST_ARCHIVES: the folder with archives of what Debian ships as shared libraries only.
option(STEPCAST_PORTABLE "Link all libraries but the C library as archives" OFF)
set(STEPCAST_ARCHIVES "" CACHE PATH "Folder with libfmt.a, libsimdjson.a and libbz2.a")

# use_archives(TARGET NAME...): the imported library is linked from these archives.
function(use_archives target)
  set(files "")
  foreach(name ${ARGN})
    unset(STEPCAST_ARCHIVE_${name} CACHE)  # an archive of ours may be newer than the cache
    find_library(STEPCAST_ARCHIVE_${name} NAMES lib${name}.a HINTS ${STEPCAST_ARCHIVES} REQUIRED)
    mark_as_advanced(STEPCAST_ARCHIVE_${name})
    list(APPEND files ${STEPCAST_ARCHIVE_${name}})
  endforeach()
  get_target_property(type ${target} TYPE)
  if(type STREQUAL INTERFACE_LIBRARY)
    set_target_properties(${target} PROPERTIES INTERFACE_LINK_LIBRARIES "${files}")
    return()
  endif()
  list(POP_FRONT files first)
  get_target_property(configurations ${target} IMPORTED_CONFIGURATIONS)
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${first} INTERFACE_LINK_LIBRARIES "${files}")
  foreach(configuration ${configurations})
    set_target_properties(${target} PROPERTIES IMPORTED_LOCATION_${configuration} ${first})
  endforeach()
endfunction()

# The C library that packages ask for: on x86-64 the first that has all that packaging/older_glibc.cpp binds to, elsewhere
# (arm64) that of the machine they are made on.
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  set(STEPCAST_GLIBC 2.27)
else()
  execute_process(COMMAND getconf GNU_LIBC_VERSION OUTPUT_VARIABLE STEPCAST_GLIBC OUTPUT_STRIP_TRAILING_WHITESPACE)
  string(REGEX REPLACE "^glibc " "" STEPCAST_GLIBC "${STEPCAST_GLIBC}")
endif()

# link_older_glibc(TARGET): symbols of the C library are those of STEPCAST_GLIBC, where threads and dlopen are libraries
# of their own; the C++ library is its own.
function(link_older_glibc target)
  if(NOT CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc)
    return()
  endif()
  set(older ${PROJECT_SOURCE_DIR}/packaging/older_glibc.cpp)
  target_sources(${target} PRIVATE ${older})
  set_source_files_properties(${older} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc)
  file(STRINGS ${older} lines REGEX "^(OLDER|[a-z:_0-9 ]+REPLACED)\\(")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE ".*(OLDER|REPLACED)\\(([a-z_0-9]+)[,)].*" "\\2" name "${line}")
    target_link_options(${target} PRIVATE "-Wl,--wrap=${name}")
  endforeach()
  find_library(STEPCAST_OLD_THREADS NAMES libpthread.so.0 REQUIRED)
  find_library(STEPCAST_OLD_LOADER NAMES libdl.so.2 REQUIRED)
  mark_as_advanced(STEPCAST_OLD_THREADS STEPCAST_OLD_LOADER)
  target_link_libraries(${target} PRIVATE -Wl,--no-as-needed ${STEPCAST_OLD_THREADS} ${STEPCAST_OLD_LOADER} -Wl,--as-needed)
endfunction()

# link_portable(EXECUTABLE): modules that bring another C++ library share that of the executable as far as exceptions
# go: who throws, catches and counts them must be the same on both sides.
function(link_portable executable)
  link_older_glibc(${executable})
  foreach(symbols __cxa_* __gxx_* _ZSt*exception* _ZNSt15__exception_ptr*)
    target_link_options(${executable} PRIVATE "-Wl,--export-dynamic-symbol=${symbols}")
  endforeach()
endfunction()

# To be called once all libraries are found.
function(link_archives)
  use_archives(fmt::fmt fmt)
  use_archives(simdjson::simdjson simdjson)
  use_archives(SQLite::SQLite3 sqlite3)
  use_archives(ZLIB::ZLIB z)
  # libarchive lists a writer that needs libxml2 among all it has; nothing here asks for that format.
  add_link_options(-Wl,--defsym=archive_write_set_format_xar=0)
  use_archives(LibArchive::LibArchive archive nettle lzma bz2 zstd z)
endfunction()
