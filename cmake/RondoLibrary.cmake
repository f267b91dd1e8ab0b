# SPDX-License-Identifier: Apache-2.0
# librondo, made of the layers, and what of it `cmake --install` puts where. Include it after the layers.
include(CMakePackageConfigHelpers)

set(layers base kernels simt comm proto rendezvous launchers process runtime trainer)
set(parts "")
set(header_dirs "")
foreach(layer IN LISTS layers)
  list(APPEND parts rondo_${layer})
  if(EXISTS "${PROJECT_SOURCE_DIR}/${layer}/include")
    list(APPEND header_dirs "${PROJECT_SOURCE_DIR}/${layer}/include")
  endif()
endforeach()

if(TARGET rondo_device AND NOT TARGET rondo_cuda)  # a target's objects are those that it compiles itself
  list(APPEND parts rondo_device)
endif()

# Every object of every layer is in the library, whoever refers to it; so no layer is linked, only what all of them need.
list(TRANSFORM parts REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE objects)
if(DEFINED BUILD_SHARED_LIBS AND NOT BUILD_SHARED_LIBS)
  set(kind STATIC)
  if(TARGET rondo_cuda)
    message(FATAL_ERROR "RONDO_CUDA_SHARED=ON is for the shared library: leave BUILD_SHARED_LIBS on.")
  endif()
else()
  set(kind SHARED)
endif()
add_library(rondo ${kind} ${objects})
add_library(rondo::rondo ALIAS rondo)
rondo_configure(rondo)
target_link_libraries(rondo PRIVATE ${RONDO_LIBRARY_DEPENDENCIES})
foreach(directory IN LISTS header_dirs)
  target_include_directories(rondo INTERFACE "$<BUILD_INTERFACE:${directory}>")
endforeach()
# As narrow as the promise of the version file: programs of 0.1 do not start with 0.2.
set_target_properties(rondo PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION
                                                                  ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
add_dependencies(rondo_installed rondo)

set(RONDO_FIND_DEPENDENCIES "")  # of who links the library: rondo-config.cmake
set(RONDO_PC_REQUIRES "")        # the same for pkg-config
set(RONDO_PC_LIBRARIES "")
if(kind STREQUAL "SHARED")
  set(exports "${PROJECT_SOURCE_DIR}/cmake/librondo.map")
  # Within the library its own functions are called directly.
  target_link_options(rondo PRIVATE "LINKER:--version-script=${exports}" LINKER:-Bsymbolic-functions)
  if(NOT RONDO_SANITIZE)  # a sanitizer's runtime lies in the program
    target_link_options(rondo PRIVATE LINKER:-z,defs)
  endif()
  set_target_properties(rondo PROPERTIES LINK_DEPENDS "${exports}")
  if(TARGET rondo_cuda)  # what links librondo.so must find what that needs
    target_link_libraries(rondo PRIVATE rondo_cuda)
    target_link_options(rondo INTERFACE "$<BUILD_INTERFACE:LINKER:-rpath-link,$<TARGET_FILE_DIR:rondo_cuda>>")
  endif()
else()
  # One archive; what it needs is the program's to link.
  set(RONDO_FIND_DEPENDENCIES "${RONDO_LIBRARY_FINDS}")
  set(RONDO_PC_REQUIRES "fmt, spdlog, protobuf-lite, libssl, libcrypto")
  set(RONDO_PC_LIBRARIES " -lboost_context -pthread -ldl")
endif()

install(TARGETS rondo EXPORT rondo LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
        INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
if(TARGET rondo_cuda)
  set_target_properties(rondo_cuda PROPERTIES EXPORT_NAME cuda)
  set_property(TARGET rondo APPEND PROPERTY INSTALL_RPATH "$ORIGIN")
  install(TARGETS rondo_cuda EXPORT rondo LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
endif()
foreach(directory IN LISTS header_dirs)
  install(DIRECTORY "${directory}/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.hpp")
endforeach()
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}/doc/rondo")

# For CMake.
set(package "${PROJECT_SOURCE_DIR}/cmake/package")
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/rondo")
install(EXPORT rondo NAMESPACE rondo:: FILE rondo-targets.cmake DESTINATION "${package_dir}")
configure_package_config_file("${package}/rondo-config.cmake.in" "${PROJECT_BINARY_DIR}/package/rondo-config.cmake"
                              INSTALL_DESTINATION "${package_dir}" NO_SET_AND_CHECK_MACRO)
configure_file("${package}/rondo-config-version.cmake.in" "${PROJECT_BINARY_DIR}/package/rondo-config-version.cmake" @ONLY)
install(
  FILES "${PROJECT_BINARY_DIR}/package/rondo-config.cmake" "${PROJECT_BINARY_DIR}/package/rondo-config-version.cmake"
        "${package}/rondo-torch.cmake"
  DESTINATION "${package_dir}")

# For pkg-config, as movable as the rest.
file(RELATIVE_PATH RONDO_PC_INCLUDEDIR "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_FULL_INCLUDEDIR}")
configure_file("${package}/rondo.pc.in" "${PROJECT_BINARY_DIR}/package/rondo.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/package/rondo.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
