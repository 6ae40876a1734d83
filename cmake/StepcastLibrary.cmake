# stepcast_files(VARIABLE "ENDINGS" [FILES ...] [EXCEPT ...]): the sorted files of this folder and of those beneath it that have no
# CMakeLists.txt of their own, or those that patterns FILES match. A build sees by itself that one came or went.
function(stepcast_files variable endings)
  cmake_parse_arguments(PARSE_ARGV 2 ARG "" "" "FILES;EXCEPT")
  if(ARG_FILES)
    file(GLOB files CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} ${ARG_FILES})
    string(REPLACE ";" "|" choice "${endings}")
    list(FILTER files INCLUDE REGEX "[.](${choice})$")
  else()
    list(TRANSFORM endings PREPEND "*.")
    file(GLOB_RECURSE files CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} ${endings})
    file(GLOB_RECURSE others RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} */CMakeLists.txt)
    foreach(other ${others})
      string(REPLACE "CMakeLists.txt" "" folder ${other})
      list(FILTER files EXCLUDE REGEX "^${folder}")
    endforeach()
  endif()
  list(REMOVE_ITEM files ${ARG_EXCEPT})
  set(${variable} ${files} PARENT_SCOPE)
endfunction()

# stepcast_library(NAME [PIC] [PYTHON] [FILES ...] [EXCEPT ...] PUBLIC ... PRIVATE ...)
#
# Declares the library of one component, `stepcast::NAME`. Every component is declared with this one function, so that its
# dependency list reads as documentation. It has the sources and headers of stepcast_files; headers outside internal/ form a file set:
# `all_verify_interface_header_sets` compiles each alone.
# PIC: the modules loaded at run time link it too. PYTHON: Python's module does, and the library has references into a shared libfmt
# that only position-independent code may have there.
function(stepcast_library name)
  cmake_parse_arguments(ARG "PIC;PYTHON" "" "FILES;EXCEPT;PUBLIC;PRIVATE" ${ARGN})
  stepcast_files(sources "cpp;cu" FILES ${ARG_FILES} EXCEPT ${ARG_EXCEPT})
  stepcast_files(headers "h" FILES ${ARG_FILES} EXCEPT ${ARG_EXCEPT})
  list(FILTER headers EXCLUDE REGEX "internal/")
  set(target stepcast_${name})
  add_library(${target} STATIC ${sources})
  add_library(stepcast::${name} ALIAS ${target})
  stepcast_warnings(${target})
  if(ARG_PYTHON OR (ARG_PIC AND STEPCAST_HAVE_CUDA))
    stepcast_pic(${target})
    stepcast_precompiled(${target} pic_rooms)
  else()
    stepcast_precompiled(${target} rooms)
  endif()
  target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${headers})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
endfunction()

# Nobody replaces these functions at run time: calls inside a file may still be inlined.
function(stepcast_pic target)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-semantic-interposition>)
endfunction()

# stepcast_precompiled(TARGET LIKE): headers that most files include are read once for all targets that are compiled alike
# (rooms, pic_rooms, commands, page, tests). Presets dev, asan and tidy do without, so that a file names what it needs. ccache
# takes such files where CCACHE_SLOPPINESS has pch_defines and time_macros.
function(stepcast_precompiled target like)
  set(read headers_of_${like})
  if(NOT TARGET ${read})
    set(headers <algorithm> <array> <charconv> <cmath> <filesystem> <fstream> <functional> <map> <memory> <numeric> <optional> <random> <set>
      <span> <sstream> <string> <tuple> <unordered_map> <variant> <vector> <fmt/format.h>)
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/${read}.cpp CONTENT "")
    add_library(${read} OBJECT EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/generated/${read}.cpp)
    target_compile_features(${read} PRIVATE cxx_std_20)
    target_compile_options(${read} PRIVATE "$<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>")  # for ccache
    target_link_libraries(${read} PRIVATE fmt::fmt)
    if(like STREQUAL "pic_rooms")
      stepcast_pic(${read})
    elseif(like STREQUAL "commands")
      stepcast_cold(${read})
      set_target_properties(${read} PROPERTIES POSITION_INDEPENDENT_CODE ON)
      list(APPEND headers <nlohmann/json.hpp> <CLI/CLI.hpp>)
    elseif(like STREQUAL "page")
      list(APPEND headers <nlohmann/json.hpp> <CLI/CLI.hpp>)
    elseif(like STREQUAL "tests")
      stepcast_cold(${read})
      list(APPEND headers <catch2/catch.hpp>)
    endif()
    target_precompile_headers(${read} PRIVATE ${headers})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${read})
endfunction()

# Warnings are private to our own targets; STEPCAST_WERROR (presets dev, asan, tidy) turns them into errors.
# -Wrestrict, -Wstringop-overflow and -Warray-bounds are left out: g++ 12 reports false positives on std::string concatenation (GCC bugs
# 105651, 105329).
function(stepcast_warnings target)
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow;-Wnon-virtual-dtor;-Wold-style-cast>"
    "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wzero-as-null-pointer-constant;-Wno-restrict;-Wno-stringop-overflow;-Wno-array-bounds>"
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${STEPCAST_WERROR}>>:-Werror>
    "$<$<COMPILE_LANGUAGE:CUDA>:-lineinfo;-Xcompiler=-Wall,-Wextra,-Wshadow>"
    "$<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${STEPCAST_WERROR}>>:-Werror=all-warnings;-Xcompiler=-Werror>")
endfunction()

# What runs once, commands and tests: compiled in a third less time, while the components they call stay fully optimised.
function(stepcast_cold target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# stepcast_test(NAME SOURCES ... [ALONE ...] LINK ... [LABEL L] [TAGGED ...] [PROPERTIES ...]): the Catch2 executable test_NAME of a
# component, found by ctest case by case. Cases have the label L (unit); those with a tag of TAGGED have the tag for a label instead.
# PROPERTIES are those of ctest for every case. ALONE: sources with names that others of the folder have too; unity builds
# leave them out.
set(properties_of_long TIMEOUT 7200)
set(properties_of_mpi RESOURCE_LOCK ranks)  # ranks wait for each other: those of one test at a time
# The longest: begun first, so that no core waits for them at the end. Tables: tests/CMakeLists.txt.
set(properties_of_accuracy COST 60 FIXTURES_REQUIRED measured_tables)
function(stepcast_test name)
  cmake_parse_arguments(ARG "" "LABEL" "SOURCES;ALONE;LINK;TAGGED;PROPERTIES" ${ARGN})
  set_source_files_properties(${ARG_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  add_executable(test_${name} ${ARG_SOURCES} ${ARG_ALONE})
  stepcast_warnings(test_${name})
  stepcast_cold(test_${name})
  stepcast_precompiled(test_${name} tests)
  target_link_libraries(test_${name} PRIVATE ${ARG_LINK} Catch2::Catch2WithMain)
  target_compile_definitions(test_${name} PRIVATE
    STEPCAST_SOURCE_DIR="${PROJECT_SOURCE_DIR}" STEPCAST_SHARED_DATA="${STEPCAST_SHARED_DATA}"
    STEPCAST_EXECUTABLE="${CMAKE_BINARY_DIR}/bin/stepcast")
  # A test that lacks its data or its tool warns "skipped: ..." before it does anything else.
  set(properties TIMEOUT 600 SKIP_REGULAR_EXPRESSION "skipped: " ${ARG_PROPERTIES})
  set(others "")
  foreach(tag ${ARG_TAGGED})
    catch_discover_tests(test_${name} TEST_SPEC "[${tag}]${others}"
      PROPERTIES LABELS ${tag} ${properties} ${properties_of_${tag}})
    string(APPEND others "~[${tag}]")
  endforeach()
  if(others)  # a filter that only excludes would find hidden cases too
    string(PREPEND others "~[.]")
  endif()
  catch_discover_tests(test_${name} TEST_SPEC "${others}" PROPERTIES LABELS ${ARG_LABEL} ${properties} ${properties_of_${ARG_LABEL}})
endfunction()

# stepcast_fuzzer(NAME SOURCE COMPONENTS ... LINK ... [CORPUS FOLDER]): fuzz_NAME, run by scripts/fuzz (clang, STEPCAST_FUZZ).
# The components' sources are built again, instrumented, once for all. corpus/ beside the source, or CORPUS, holds the seeds.
function(stepcast_fuzzer name source)
  cmake_parse_arguments(ARG "" "CORPUS" "COMPONENTS;LINK" ${ARGN})
  if(NOT ARG_CORPUS)
    set(ARG_CORPUS corpus)
  endif()
  set(checks address,undefined -fno-sanitize-recover=undefined)
  set(objects)
  foreach(component ${ARG_COMPONENTS})
    list(APPEND objects $<TARGET_OBJECTS:fuzzed_${component}>)
    if(NOT TARGET fuzzed_${component})
      get_target_property(files stepcast_${component} SOURCES)
      get_target_property(folder stepcast_${component} SOURCE_DIR)
      list(FILTER files INCLUDE REGEX "[.]cpp$")
      list(TRANSFORM files PREPEND ${folder}/ REGEX "^[^/]")
      add_library(fuzzed_${component} OBJECT EXCLUDE_FROM_ALL ${files})
      target_include_directories(fuzzed_${component} PRIVATE ${PROJECT_SOURCE_DIR})
      target_compile_options(fuzzed_${component} PRIVATE -fsanitize=fuzzer-no-link,${checks})
      target_link_libraries(fuzzed_${component} PRIVATE fmt::fmt ${ARG_LINK})
      target_compile_definitions(fuzzed_${component} PRIVATE STEPCAST_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    endif()
  endforeach()
  set(target fuzz_${name})
  add_executable(${target} EXCLUDE_FROM_ALL ${source} ${objects})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(${target} PRIVATE -fsanitize=fuzzer,${checks})
  target_compile_definitions(${target} PRIVATE STEPCAST_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_options(${target} PRIVATE -fsanitize=fuzzer,${checks})
  target_link_libraries(${target} PRIVATE fmt::fmt ${ARG_LINK})
  add_custom_command(TARGET ${target} POST_BUILD COMMAND ${CMAKE_COMMAND} -E copy_directory
    ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_CORPUS} ${CMAKE_BINARY_DIR}/corpus-${target})
  if(NOT TARGET fuzzers)
    add_custom_target(fuzzers)
  endif()
  add_dependencies(fuzzers ${target})
endfunction()
