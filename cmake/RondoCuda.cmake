# SPDX-License-Identifier: Apache-2.0
# One line says whether CUDA is in. This version has no CUDA kernels, so nvcc changes nothing but that line.
set(RONDO_CUDA AUTO CACHE STRING "CUDA kernels: AUTO (when nvcc is found), ON or OFF")
set_property(CACHE RONDO_CUDA PROPERTY STRINGS AUTO ON OFF)
if(NOT RONDO_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "RONDO_CUDA=${RONDO_CUDA} is none of AUTO, ON and OFF.")
endif()

if(RONDO_CUDA STREQUAL "OFF")
  message(STATUS "CUDA: off (RONDO_CUDA=OFF)")
  return()
endif()

find_program(RONDO_NVCC nvcc HINTS "$ENV{CUDA_HOME}/bin" "$ENV{CUDACXX}" /usr/local/cuda/bin)
if(RONDO_NVCC AND RONDO_CUDA STREQUAL "ON")
  message(WARNING "CUDA: off. RONDO_CUDA=ON found ${RONDO_NVCC}, but this version of Rondo has no CUDA kernels.")
elseif(RONDO_NVCC)
  message(STATUS "CUDA: off (${RONDO_NVCC} is found, but this version of Rondo has no CUDA kernels)")
elseif(RONDO_CUDA STREQUAL "ON")
  message(FATAL_ERROR "RONDO_CUDA=ON, but nvcc is not found: put it in PATH or set CUDA_HOME, or use RONDO_CUDA=AUTO.")
else()
  message(STATUS "CUDA: off (no nvcc; this version of Rondo has no CUDA kernels either)")
endif()
