# SPDX-License-Identifier: Apache-2.0
# libtorch for <rondo/torch.hpp>: the target rondo::torch, in this tree and for the installed package. Found by its files
# and not by TorchConfig.cmake: that of a build with CUDA, PyPI's among them, wants the whole toolkit, of which a module on
# the CPU uses nothing.
set(RONDO_TORCH_ROOT "" CACHE PATH "libtorch: a folder with include/ and lib/, e.g. site-packages/torch; else Debian's")

# Sets `reason` to the empty text, or to one sentence that says why there is no rondo::torch.
function(rondo_find_torch reason)
  set(${reason} "" PARENT_SCOPE)
  if(TARGET rondo::torch)
    return()
  endif()
  foreach(name IN ITEMS torch_include api_include torch_cpu c10)
    unset(RONDO_${name} CACHE)  # the root may be another one than last time
  endforeach()
  set(where "")
  set(place "where CMake looks (CMAKE_PREFIX_PATH, the system)")
  if(RONDO_TORCH_ROOT)
    set(where PATHS "${RONDO_TORCH_ROOT}" NO_DEFAULT_PATH)
    set(place "in RONDO_TORCH_ROOT=${RONDO_TORCH_ROOT}")
  else()
    foreach(prefix IN LISTS CMAKE_PREFIX_PATH)  # torch.utils.cmake_prefix_path leads to torch/share/cmake
      if(prefix MATCHES "^(.*)/share/cmake/?$")
        list(APPEND where HINTS "${CMAKE_MATCH_1}")
      endif()
    endforeach()
  endif()
  find_path(RONDO_torch_include ATen/ATen.h ${where} PATH_SUFFIXES include)
  find_path(RONDO_api_include torch/torch.h PATHS "${RONDO_torch_include}/torch/csrc/api/include" NO_DEFAULT_PATH)
  find_library(RONDO_torch_cpu torch_cpu ${where} PATH_SUFFIXES lib)
  find_library(RONDO_c10 c10 ${where} PATH_SUFFIXES lib)
  mark_as_advanced(RONDO_torch_include RONDO_api_include RONDO_torch_cpu RONDO_c10)
  foreach(name IN ITEMS torch_include api_include torch_cpu c10)
    if(NOT RONDO_${name})
      set(${reason} "libtorch is not ${place}: install libtorch-dev, or set RONDO_TORCH_ROOT to the folder `torch` of a wheel."
          PARENT_SCOPE)
      return()
    endif()
  endforeach()

  add_library(rondo::torch INTERFACE IMPORTED GLOBAL)
  target_include_directories(rondo::torch INTERFACE "${RONDO_torch_include}" "${RONDO_api_include}")
  # What only operators register with is found by name: the library is needed even where no symbol of it is.
  target_link_libraries(rondo::torch INTERFACE rondo::rondo -Wl,--no-as-needed "${RONDO_torch_cpu}" "${RONDO_c10}"
                                               -Wl,--as-needed)
  message(STATUS "libtorch: ${RONDO_torch_cpu}")
endfunction()
