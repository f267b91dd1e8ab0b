# SPDX-License-Identifier: Apache-2.0
# librondo.so, made of the layers, and what `cmake --install` puts where. Include it after the layers.
include(CMakePackageConfigHelpers)

set(layers base kernels simt comm proto rendezvous runtime trainer)
set(parts "")
set(header_dirs "")
foreach(layer IN LISTS layers)
  if(TARGET rondo_${layer})
    list(APPEND parts rondo_${layer})
  endif()
  if(EXISTS "${PROJECT_SOURCE_DIR}/${layer}/include")
    list(APPEND header_dirs "${PROJECT_SOURCE_DIR}/${layer}/include")
  endif()
endforeach()

# Every object of every layer is in the library, whoever refers to it; the layers are linked for what they link.
list(TRANSFORM parts REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE objects)
add_library(rondo SHARED ${objects})
add_library(rondo::rondo ALIAS rondo)
rondo_configure(rondo)
target_link_libraries(rondo PRIVATE ${parts})
set(exports "${PROJECT_SOURCE_DIR}/cmake/librondo.map")
target_link_options(rondo PRIVATE "LINKER:--version-script=${exports}")
if(TARGET rondo_cuda)  # what links librondo.so must find what that needs
  target_link_options(rondo INTERFACE "$<BUILD_INTERFACE:LINKER:-rpath-link,$<TARGET_FILE_DIR:rondo_cuda>>")
endif()
foreach(directory IN LISTS header_dirs)
  target_include_directories(rondo INTERFACE "$<BUILD_INTERFACE:${directory}>")
endforeach()
set_target_properties(rondo PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 0 LINK_DEPENDS "${exports}")

# Programs: all of tools/, and the bandwidth tests of bench/.
get_property(tools DIRECTORY "${PROJECT_SOURCE_DIR}/tools" PROPERTY BUILDSYSTEM_TARGETS)
get_property(benches DIRECTORY "${PROJECT_SOURCE_DIR}/bench" PROPERTY BUILDSYSTEM_TARGETS)
list(FILTER benches INCLUDE REGEX "_perf$")
set(programs "")
foreach(target IN LISTS tools benches)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")
    list(APPEND programs ${target})
  endif()
endforeach()

install(TARGETS rondo EXPORT rondo LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
        INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
if(programs)
  install(TARGETS ${programs} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()
foreach(directory IN LISTS header_dirs)
  install(DIRECTORY "${directory}/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.hpp")
endforeach()

# No public header includes another package's, so the config file needs no find_dependency.
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/rondo")
install(EXPORT rondo NAMESPACE rondo:: FILE rondo-config.cmake DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/rondo-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/rondo-config-version.cmake" DESTINATION "${package_dir}")
