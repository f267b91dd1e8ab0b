# SPDX-License-Identifier: Apache-2.0
# The installation as somebody else meets it. The projects in this folder see the installed package alone.
if(RONDO_SANITIZE)  # the runtime would be the consumer's to link; its sequences run sanitized in stress_test
  return()
endif()

set(here "${PROJECT_SOURCE_DIR}/tests/package")
set(prefix "${PROJECT_BINARY_DIR}/prefix")
set(consumer "${PROJECT_BINARY_DIR}/consumer")
set(launcher "$<$<BOOL:${RONDO_CCACHE}>:${RONDO_CCACHE}>")
add_test(
  NAME package_build
  COMMAND
    "${CMAKE_COMMAND}" "-DBUILD=${PROJECT_BINARY_DIR}" "-DCONSUMER=${consumer}" "-DCOMPILER=${CMAKE_CXX_COMPILER}"
    "-DLAUNCHER=${launcher}" -DFLAGS=-O1 "-DSOURCE=${here}" -P "${here}/build.cmake")
set_tests_properties(package_build PROPERTIES LABELS unit TIMEOUT 300 FIXTURES_SETUP package)
foreach(mode contract threads processes)
  add_test(NAME package_${mode} COMMAND "${consumer}/rondo_consumer" --mode ${mode})
  set_tests_properties(package_${mode} PROPERTIES LABELS conformance TIMEOUT 300 FIXTURES_REQUIRED package)
endforeach()

function(rondo_package_test name)
  add_test(NAME package_${name} COMMAND "${here}/${name}.sh" ${ARGN})
  set_tests_properties(package_${name} PROPERTIES LABELS "unit;one_thread" TIMEOUT 120 SKIP_RETURN_CODE 77)
endfunction()
set(scratch "${PROJECT_BINARY_DIR}/package")
rondo_package_test(quickstart "${PROJECT_BINARY_DIR}" "${PROJECT_SOURCE_DIR}")
rondo_package_test(embedding "${PROJECT_SOURCE_DIR}" "${scratch}/embedding" "${CMAKE_CXX_COMPILER}")
rondo_package_test(prefix "${prefix}" "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}")
rondo_package_test(compile "${prefix}" "${scratch}/compile" "${CMAKE_CXX_COMPILER}")
rondo_package_test(find "${prefix}" "${scratch}/find" "${CMAKE_CXX_COMPILER}")
rondo_package_test(torch "${prefix}" "${scratch}/torch" "${CMAKE_CXX_COMPILER}" "${launcher}" "${RONDO_TORCH_ROOT}")
set_tests_properties(package_prefix package_compile package_find package_torch PROPERTIES FIXTURES_REQUIRED package)
