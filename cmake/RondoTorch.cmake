# SPDX-License-Identifier: Apache-2.0
# libtorch for tests, examples and benches of <rondo/torch.hpp>, and the target rondo::torch for programs built along
# with this tree. Found by its files and not by TorchConfig.cmake: that of a build with CUDA wants the whole toolkit,
# of which a module on the CPU uses nothing.
option(RONDO_TORCH "Build what needs libtorch (1.13 or later)" OFF)
if(NOT RONDO_TORCH)
  return()
endif()
set(RONDO_TORCH_ROOT "" CACHE PATH "libtorch: a folder with include/ and lib/, e.g. site-packages/torch; else Debian's")

foreach(name torch_include api_include torch_cpu c10)
  unset(RONDO_${name} CACHE)  # the root may be another one than last time
endforeach()
set(where "")
if(RONDO_TORCH_ROOT)
  set(where PATHS "${RONDO_TORCH_ROOT}" NO_DEFAULT_PATH)
endif()
find_path(RONDO_torch_include ATen/ATen.h ${where} PATH_SUFFIXES include REQUIRED)
find_path(RONDO_api_include torch/torch.h PATHS "${RONDO_torch_include}/torch/csrc/api/include" NO_DEFAULT_PATH REQUIRED)
find_library(RONDO_torch_cpu torch_cpu ${where} PATH_SUFFIXES lib REQUIRED)
find_library(RONDO_c10 c10 ${where} PATH_SUFFIXES lib REQUIRED)
message(STATUS "libtorch: ${RONDO_torch_cpu}")

add_library(rondo_torch INTERFACE)
add_library(rondo::torch ALIAS rondo_torch)
target_include_directories(rondo_torch SYSTEM INTERFACE "${RONDO_torch_include}" "${RONDO_api_include}")
# What only operators register with is found by name: the library is needed even where no symbol of it is.
target_link_libraries(rondo_torch INTERFACE rondo -Wl,--no-as-needed "${RONDO_torch_cpu}" "${RONDO_c10}" -Wl,--as-needed)
