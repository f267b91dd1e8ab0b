# SPDX-License-Identifier: Apache-2.0
# cmake -P: installs the build as for a package of a distribution (DESTDIR), moves it elsewhere, then configures and builds
# the consumer against that place alone.
foreach(name BUILD CONSUMER COMPILER LAUNCHER FLAGS SOURCE)
  if(NOT DEFINED ${name})
    message(FATAL_ERROR "package test: -D${name}= is missing")
  endif()
endforeach()
set(prefix "${BUILD}/prefix")
set(staged "${BUILD}/staged")
file(REMOVE_RECURSE "${prefix}" "${staged}" "${CONSUMER}/CMakeCache.txt")

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "failed with ${code}: ${ARGN}")
  endif()
endfunction()

run("${CMAKE_COMMAND}" -E env "DESTDIR=${staged}" "${CMAKE_COMMAND}" --install "${BUILD}" --prefix /opt/rondo)
file(RENAME "${staged}/opt/rondo" "${prefix}")
run("${CMAKE_COMMAND}" -G Ninja -S "${SOURCE}" -B "${CONSUMER}" "-DCMAKE_PREFIX_PATH=${prefix}" "-DCMAKE_CXX_FLAGS=${FLAGS}"
    "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}")
run("${CMAKE_COMMAND}" --build "${CONSUMER}")
