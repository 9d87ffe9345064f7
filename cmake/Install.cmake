include(CMakePackageConfigHelpers)

install(TARGETS windlass EXPORT windlass-targets)
install(DIRECTORY include/windlass DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES bpf/windlass_layout.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/windlass)
install(EXPORT windlass-targets NAMESPACE windlass:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/windlass)
if(TARGET windlass-cli)
  install(TARGETS windlass-cli)
endif()

configure_package_config_file(cmake/windlass-config.cmake.in ${PROJECT_BINARY_DIR}/windlass-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/windlass)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/windlass-config-version.cmake COMPATIBILITY SameMinorVersion)
configure_file(cmake/windlass.pc.in ${PROJECT_BINARY_DIR}/windlass.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/windlass-config.cmake ${PROJECT_BINARY_DIR}/windlass-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/windlass)
install(FILES ${PROJECT_BINARY_DIR}/windlass.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
