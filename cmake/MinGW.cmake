# What MinGW has no packages for, from what there is for every machine: fmt as headers, GoogleTest from Debian's sources.
find_path(FMT_HEADERS fmt/format.h PATHS /usr/include NO_CMAKE_FIND_ROOT_PATH REQUIRED)
# Not /usr/include itself, which has this machine's C library.
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/headers)
file(CREATE_LINK ${FMT_HEADERS}/fmt ${PROJECT_BINARY_DIR}/headers/fmt SYMBOLIC)
add_library(fmt::fmt INTERFACE IMPORTED GLOBAL)
target_include_directories(fmt::fmt INTERFACE ${PROJECT_BINARY_DIR}/headers)
target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY)

if(WINDLASS_TESTS)
  set(GOOGLETEST_SOURCES /usr/src/googletest/googletest CACHE PATH "GoogleTest's sources")
  set(BUILD_GMOCK OFF)
  set(INSTALL_GTEST OFF)
  add_subdirectory(${GOOGLETEST_SOURCES} ${PROJECT_BINARY_DIR}/googletest EXCLUDE_FROM_ALL)
  if(NOT TARGET GTest::gtest)
    add_library(GTest::gtest ALIAS gtest)
    add_library(GTest::gtest_main ALIAS gtest_main)
  endif()
endif()
