# SPDX-License-Identifier: Apache-2.0
# Cross-compiles for aarch64 with Debian's g++-aarch64-linux-gnu; programs run under qemu. The sysroot holds the
# target's libraries; tools/aarch64-check makes one.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

set(RONDO_SYSROOT "${CMAKE_CURRENT_LIST_DIR}/../build/aarch64-sysroot/root" CACHE PATH "The target's libraries")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES RONDO_SYSROOT)
get_filename_component(CMAKE_SYSROOT "${RONDO_SYSROOT}" ABSOLUTE)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static;-L;${CMAKE_SYSROOT})
