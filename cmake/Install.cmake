include(CMakePackageConfigHelpers)

install(TARGETS windlass EXPORT windlass-targets)
if(WINDLASS_SHARED)
  install(TARGETS windlass_c windlass_unwind EXPORT windlass-targets)
endif()
if(TARGET windlass_symbols)  # apart, so that users of the library need no libdw
  install(TARGETS windlass_symbols EXPORT windlass-symbols-targets)
  if(WINDLASS_SHARED)
    install(TARGETS windlass_symbols_c EXPORT windlass-symbols-targets)
  endif()
  install(EXPORT windlass-symbols-targets NAMESPACE windlass:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/windlass)
endif()
install(DIRECTORY include/windlass DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT windlass-targets NAMESPACE windlass:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/windlass)
if(TARGET windlass-cli)
  install(TARGETS windlass-cli)
endif()

configure_package_config_file(cmake/windlass-config.cmake.in ${PROJECT_BINARY_DIR}/windlass-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/windlass)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/windlass-config-version.cmake COMPATIBILITY SameMinorVersion)
# windlass is the C interface in its shared library, windlass++ all of it in the static one; windlass-symbols likewise.
set(WINDLASS_PC_NAMES windlass windlass++)
if(TARGET windlass_symbols)
  list(APPEND WINDLASS_PC_NAMES windlass-symbols windlass-symbols++)
endif()
# Relative, because `cmake --install --prefix` names a folder that is not known here.
file(RELATIVE_PATH WINDLASS_PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" WINDLASS_PC_PREFIX "${WINDLASS_PC_PREFIX}")
set(WINDLASS_PC_FILES)
foreach(name IN LISTS WINDLASS_PC_NAMES)
  configure_file(cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  list(APPEND WINDLASS_PC_FILES ${PROJECT_BINARY_DIR}/${name}.pc)
endforeach()
install(FILES ${PROJECT_BINARY_DIR}/windlass-config.cmake ${PROJECT_BINARY_DIR}/windlass-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/windlass)
install(FILES ${WINDLASS_PC_FILES} DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
