include(CMakePackageConfigHelpers)

install(TARGETS windlass EXPORT windlass-targets)
if(WINDLASS_SHARED)
  install(TARGETS windlass_c windlass_unwind EXPORT windlass-targets)
endif()
install(DIRECTORY include/windlass DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT windlass-targets NAMESPACE windlass:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/windlass)
if(TARGET windlass-cli)
  install(TARGETS windlass-cli)
endif()

configure_package_config_file(cmake/windlass-config.cmake.in ${PROJECT_BINARY_DIR}/windlass-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/windlass)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/windlass-config-version.cmake COMPATIBILITY SameMinorVersion)
# windlass is the C interface in its shared library, windlass++ all of it in the static one.
set(WINDLASS_PC_FILES)
foreach(name windlass windlass++)
  configure_file(cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  list(APPEND WINDLASS_PC_FILES ${PROJECT_BINARY_DIR}/${name}.pc)
endforeach()
install(FILES ${PROJECT_BINARY_DIR}/windlass-config.cmake ${PROJECT_BINARY_DIR}/windlass-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/windlass)
install(FILES ${WINDLASS_PC_FILES} DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
