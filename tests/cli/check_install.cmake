# Installs BUILD into a fresh PREFIX and calls what is there from another folder. The data must come
# from the prefix: `list systems` still finds a system that exists only there.
function(call)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE err
    WORKING_DIRECTORY ${PREFIX})
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${ARGN}: exit code ${code}\n${out}${err}")
  endif()
  set(out "${out}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${PREFIX})
file(MAKE_DIRECTORY ${PREFIX})
call(${CMAKE_COMMAND} --install ${BUILD} --prefix ${PREFIX})
file(COPY_FILE ${PREFIX}/share/stepcast/models/systems/dgx-h100.json
  ${PREFIX}/share/stepcast/models/systems/only-installed.json)
file(READ ${PREFIX}/share/stepcast/models/systems/only-installed.json system)
string(REPLACE "\"dgx-h100\"" "\"only-installed\"" system "${system}")
file(WRITE ${PREFIX}/share/stepcast/models/systems/only-installed.json "${system}")
call(${PREFIX}/bin/stepcast predict --set workload=mlperf-dlrm-v2 --set system=only-installed)
string(FIND "${out}" "/step" found)
if(found EQUAL -1)
  message(FATAL_ERROR "no prediction in:\n${out}")
endif()
