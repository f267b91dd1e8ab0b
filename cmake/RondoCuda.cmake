# SPDX-License-Identifier: Apache-2.0
# Finds nvcc and the toolkit, and says in one line what came of it. RONDO_CUDA_FOUND: the kernels are compiled for GPUs
# too, and the table of libcudart is built. Everything else builds and runs without.
set(RONDO_CUDA AUTO CACHE STRING "CUDA kernels: AUTO (when nvcc is found), ON or OFF")
set_property(CACHE RONDO_CUDA PROPERTY STRINGS AUTO ON OFF)
# As CMAKE_CUDA_ARCHITECTURES. One alone keeps a developer's build short; the preset `dist` carries all.
set(RONDO_CUDA_ARCHITECTURES 90a-real CACHE STRING "GPUs that the kernels are compiled for")
option(RONDO_CUDA_SHARED "Kernels and CUDA runtime in a library of their own, which can be built anew by itself" OFF)
mark_as_advanced(RONDO_CUDA_SHARED)
if(NOT RONDO_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "RONDO_CUDA=${RONDO_CUDA} is none of AUTO, ON and OFF.")
endif()

# What includes kernels/cuda/declarations.hpp links it.
add_library(rondo_cuda_runtime INTERFACE)
set(RONDO_CUDA_FOUND FALSE)
if(RONDO_CUDA STREQUAL "OFF")
  message(STATUS "CUDA: off (RONDO_CUDA=OFF)")
  return()
endif()

# Where nvcc is not in PATH, look where toolkits are put.
find_program(RONDO_NVCC nvcc HINTS "$ENV{CUDA_HOME}/bin" "$ENV{CUDA_PATH}/bin" PATHS /usr/local/cuda/bin)
if(NOT RONDO_NVCC)
  if(RONDO_CUDA STREQUAL "ON")
    message(FATAL_ERROR "RONDO_CUDA=ON, but nvcc is not found: put it in PATH or set CUDA_HOME, or use RONDO_CUDA=AUTO.")
  endif()
  message(STATUS "CUDA: off (no nvcc; the kernels run on the host executor alone)")
  return()
endif()

# Set before the language is enabled: what it tries then is what will be used.
set(CMAKE_CUDA_ARCHITECTURES "${RONDO_CUDA_ARCHITECTURES}")
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
set(CMAKE_CUDA_FLAGS_DEBUG_INIT -lineinfo)
set(CMAKE_CUDA_FLAGS_RELWITHDEBINFO_INIT -lineinfo)  # the device half is optimised in any case
set(ENV{CUDACXX} "${RONDO_NVCC}")
if(RONDO_CUDA STREQUAL "AUTO")  # an nvcc that does not work with this compiler is no reason to fail
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    message(STATUS "CUDA: off (${RONDO_NVCC} does not work with ${CMAKE_CXX_COMPILER}; RONDO_CUDA=ON shows why)")
    return()
  endif()
endif()
set(CMAKE_CUDA_HOST_COMPILER "${CMAKE_CXX_COMPILER}")
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.0)  # C++20
  message(FATAL_ERROR "CUDA: ${RONDO_NVCC} is version ${CMAKE_CUDA_COMPILER_VERSION}; 12.0 or newer is needed, or RONDO_CUDA=OFF.")
endif()

if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know it of every nvcc
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
set(RONDO_CUDA_FOUND TRUE)
target_compile_definitions(rondo_cuda_runtime INTERFACE RONDO_CUDA_TOOLKIT)
target_include_directories(rondo_cuda_runtime SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
message(STATUS "CUDA: on (nvcc ${CMAKE_CUDA_COMPILER_VERSION}, for ${RONDO_CUDA_ARCHITECTURES})")

# Kernels: objects that the library takes in. The host's half is generated, so its warnings tell nothing; of
# spills tools/kernel_resources tells.
function(rondo_kernel_objects target)
  add_library(${target} OBJECT ${ARGN})
  target_compile_options(
    ${target} PRIVATE --expt-relaxed-constexpr -fmad=false -Xfatbin=-compress-all -Xcompiler=-w -Xptxas=-v)
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/kernels/include")
  target_link_libraries(${target} PRIVATE rondo_cuda_runtime)
  set_target_properties(
    ${target}
    PROPERTIES CUDA_STANDARD 20
               CUDA_STANDARD_REQUIRED ON
               CUDA_VISIBILITY_PRESET hidden
               POSITION_INDEPENDENT_CODE ON
               VISIBILITY_INLINES_HIDDEN ON)
  set(launcher "${PROJECT_SOURCE_DIR}/cmake/logged")
  if(RONDO_CCACHE)
    list(APPEND launcher "${RONDO_CCACHE}")
  endif()
  set_target_properties(${target} PROPERTIES CUDA_COMPILER_LAUNCHER "${launcher}")
endfunction()
