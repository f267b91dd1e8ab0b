# SPDX-License-Identifier: Apache-2.0
# Every dependency is a Debian package; tools/support.sh lists them.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(Boost 1.74 REQUIRED COMPONENTS context)
find_package(OpenSSL REQUIRED)
find_package(nlohmann_json REQUIRED)
# Its own files first: from release 22 on only they know the parts of Abseil that it needs. Debian's has none.
find_package(Protobuf CONFIG QUIET)
set(protobuf_mode CONFIG)
if(NOT Protobuf_FOUND)
  set(protobuf_mode MODULE)
  find_package(Protobuf MODULE REQUIRED)
  if(Protobuf_VERSION VERSION_GREATER_EQUAL 4)  # 4.22 is release 22
    message(FATAL_ERROR "protobuf ${Protobuf_VERSION} is here without protobuf-config.cmake or without Abseil's CMake files: "
                        "install them, or protobuf 21 or older.")
  endif()
endif()
message(STATUS "protobuf: ${Protobuf_VERSION}")
if(RONDO_PROGRAMS)
  find_package(CLI11 REQUIRED)
  find_package(ZLIB REQUIRED)
endif()

# What librondo needs, and how programs find it that link a static one.
set(RONDO_LIBRARY_DEPENDENCIES fmt::fmt spdlog::spdlog Boost::context protobuf::libprotobuf-lite OpenSSL::SSL OpenSSL::Crypto
                               Threads::Threads ${CMAKE_DL_LIBS})
set(RONDO_LIBRARY_FINDS
    "find_dependency(Threads)
find_dependency(fmt)
find_dependency(spdlog)
find_dependency(Boost 1.74 COMPONENTS context)
find_dependency(Protobuf ${protobuf_mode})
find_dependency(OpenSSL)")
if(RONDO_CUDA_FOUND AND NOT RONDO_CUDA_SHARED)
  list(APPEND RONDO_LIBRARY_DEPENDENCIES CUDA::cudart_static)
  string(APPEND RONDO_LIBRARY_FINDS "\nfind_dependency(CUDAToolkit)")
endif()
