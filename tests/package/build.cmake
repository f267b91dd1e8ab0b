# SPDX-License-Identifier: Apache-2.0
# cmake -P: installs the build into a fresh prefix, then configures and builds the consumer against that prefix alone.
foreach(name BUILD CONSUMER COMPILER LAUNCHER FLAGS SOURCE)
  if(NOT DEFINED ${name})
    message(FATAL_ERROR "package test: -D${name}= is missing")
  endif()
endforeach()
set(prefix "${BUILD}/prefix")
file(REMOVE_RECURSE "${prefix}" "${CONSUMER}/CMakeCache.txt")

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "failed with ${code}: ${ARGN}")
  endif()
endfunction()

run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${prefix}")
run("${CMAKE_COMMAND}" -G Ninja -S "${SOURCE}" -B "${CONSUMER}" "-DCMAKE_PREFIX_PATH=${prefix}" "-DCMAKE_CXX_FLAGS=${FLAGS}"
    "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}")
run("${CMAKE_COMMAND}" --build "${CONSUMER}")
