# SPDX-License-Identifier: Apache-2.0
# libtorch for tests, examples and benches of <rondo/torch.hpp>, found as programs that use the installed package find it.
option(RONDO_TORCH "Build what needs libtorch (1.13 or later)" OFF)
if(NOT RONDO_TORCH)
  return()
endif()
include("${CMAKE_CURRENT_LIST_DIR}/package/rondo-torch.cmake")
rondo_find_torch(no_torch)
if(no_torch)
  message(FATAL_ERROR "RONDO_TORCH=ON, but ${no_torch}")
endif()
