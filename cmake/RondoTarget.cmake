# SPDX-License-Identifier: Apache-2.0
# One place for the standard, the warnings and the sanitizers; no global flags.

include(CheckLinkerFlag)
find_program(RONDO_CCACHE ccache)
find_program(RONDO_LLD ld.lld) # a third of the time; used with sanitizers
# Line numbers are two thirds of a program; compressed they are a quarter of that.
set(RONDO_COMPRESS_DEBUG "LINKER:--compress-debug-sections=zlib")
check_linker_flag(CXX "${RONDO_COMPRESS_DEBUG}" RONDO_CAN_COMPRESS_DEBUG)

# All that `cmake --install` takes from the build; tools/quickstart builds it.
add_custom_target(rondo_installed)

# Where CMAKE_UNITY_BUILD is on, the sources of a folder are compiled together.
function(rondo_group_sources target)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources EXCLUDE REGEX "\\$<")
  foreach(source IN LISTS sources)
    cmake_path(GET source PARENT_PATH folder)
    string(MAKE_C_IDENTIFIER "in_${folder}" group)
    set_property(SOURCE "${source}" PROPERTY UNITY_GROUP ${group})
  endforeach()
endfunction()

function(rondo_configure target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow -Wconversion -Werror=switch -ffp-contract=off)
  if(NOT CMAKE_CURRENT_SOURCE_DIR MATCHES "/tests(/|$)")  # tests need not deal with every collective and type
    target_compile_options(${target} PRIVATE -Werror=switch-enum)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # GCC 12 at -O3 sees fmt 9's fmt::join of integers write into a buffer of no bytes, and a std::string overlap itself.
    target_compile_options(${target} PRIVATE -Wno-stringop-overflow -Wno-restrict)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_UNITY_BUILD)
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)  # it takes an included source for a header
  endif()
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}")
  set_target_properties(
    ${target}
    PROPERTIES CXX_EXTENSIONS OFF
               CXX_VISIBILITY_PRESET hidden
               VISIBILITY_INLINES_HIDDEN ON
               UNITY_BUILD_MODE GROUP)
  cmake_language(EVAL CODE "cmake_language(DEFER CALL rondo_group_sources ${target})") # when all of them are known
  if(RONDO_CCACHE)
    set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER "${RONDO_CCACHE}")
  endif()
  if(RONDO_CAN_COMPRESS_DEBUG AND NOT RONDO_SANITIZE)
    target_link_options(${target} PRIVATE "${RONDO_COMPRESS_DEBUG}")
  endif()
  if(RONDO_SANITIZE)
    # What clang checks beyond GCC: clang 14 cannot compile coroutines with the one; the other minds an offset added to
    # the null pointer of a buffer that this rank does not have, which nobody reads through.
    target_compile_options(${target} PRIVATE -fsanitize=${RONDO_SANITIZE} -fno-omit-frame-pointer
                                             -fno-sanitize-recover=all
                                             $<$<CXX_COMPILER_ID:Clang>:-fno-sanitize=function,pointer-overflow>)
    target_link_options(${target} PUBLIC -fsanitize=${RONDO_SANITIZE} $<$<BOOL:${RONDO_LLD}>:-fuse-ld=lld>)
    target_compile_definitions(${target} PRIVATE RONDO_SANITIZED)
  endif()
endfunction()

# A layer of the library: a static target rondo_<name> whose public headers lie in <folder>/include/rondo.
function(rondo_layer name)
  add_library(rondo_${name} STATIC ${ARGN})
  rondo_configure(rondo_${name})
  set_target_properties(rondo_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  if(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/include")
    target_include_directories(rondo_${name} PUBLIC "$<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>")
  endif()
endfunction()

function(rondo_program name)
  add_executable(${name} ${ARGN})
  rondo_configure(${name})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
  # Most tests hold the library's layers themselves. Line numbers would be a third of them; those of dev have them.
  if(CMAKE_CURRENT_SOURCE_DIR MATCHES "/tests(/|$)" AND NOT RONDO_SANITIZE)
    target_link_options(${name} PRIVATE LINKER:--strip-debug)
  endif()
endfunction()

# A part of programs that includes headers of the layers. What they define is linked by the program: the layers by tests,
# librondo by what is installed, with the layers behind it for the few small functions that it hides.
function(rondo_use_internals target)
  foreach(property INCLUDE_DIRECTORIES COMPILE_DEFINITIONS)
    set_property(TARGET ${target} APPEND PROPERTY ${property} $<TARGET_PROPERTY:rondo_comm,INTERFACE_${property}>)
    set_property(TARGET ${target} APPEND PROPERTY INTERFACE_${property} $<TARGET_PROPERTY:rondo_comm,INTERFACE_${property}>)
  endforeach()
  target_link_libraries(${target} PUBLIC rondo_cuda_runtime)
endfunction()

# What such a program links: librondo, and of the layers `hidden`. Under sanitizers the layers alone, since ASan reports a
# class that lies in both.
function(rondo_link_library target scope hidden)
  if(RONDO_SANITIZE)
    target_link_libraries(${target} ${scope} rondo_runtime)
  else()
    target_link_libraries(${target} ${scope} rondo::rondo ${hidden})
  endif()
endfunction()

# A program that is installed. It finds the library beside itself, wherever both are put.
function(rondo_install_program name)
  file(RELATIVE_PATH to_library "${CMAKE_INSTALL_FULL_BINDIR}" "${CMAKE_INSTALL_FULL_LIBDIR}")
  set_property(TARGET ${name} APPEND PROPERTY INSTALL_RPATH "$ORIGIN/${to_library}")
  install(TARGETS ${name} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
  add_dependencies(rondo_installed ${name})
endfunction()

# Programs whose time goes into waiting, or into a library: optimising them takes the compiler twice as long.
function(rondo_cold_targets)
  foreach(target IN LISTS ARGN)
    target_compile_options(${target} PRIVATE -O1)
  endforeach()
endfunction()

# Sources that read a command line once: optimising and checking CLI11's thousands of inline functions takes the compiler
# longer than everything else in them.
function(rondo_cold_sources)
  set(options "$<IF:$<CONFIG:Debug>,-O0,-O1>")
  if(RONDO_SANITIZE)
    list(APPEND options -fno-sanitize=undefined)
  endif()
  set_property(
    SOURCE ${ARGN}
    APPEND
    PROPERTY COMPILE_OPTIONS ${options})
endfunction()

# Sources with Asio coroutines. clang before 15 has them but does not say so, and Asio 1.74 then leaves them out.
function(rondo_coroutine_sources)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 15)
    set_property(
      SOURCE ${ARGN}
      APPEND
      PROPERTY COMPILE_DEFINITIONS __cpp_impl_coroutine=201902L BOOST_ASIO_HAS_CO_AWAIT BOOST_ASIO_HAS_STD_COROUTINE)
  endif()
endfunction()
