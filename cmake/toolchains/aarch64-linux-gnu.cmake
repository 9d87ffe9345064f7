# Cross-compilation for AArch64 with Debian's cross compiler; programs run under qemu-user. Libraries come from the folder that
# cmake/aarch64_sysroot.sh fills, the C and C++ libraries' headers from the compiler.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

set(WINDLASS_AARCH64_SYSROOT "${CMAKE_CURRENT_LIST_DIR}/../../build/aarch64-sysroot" CACHE PATH
    "Where cmake/aarch64_sysroot.sh has put arm64 libraries")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES WINDLASS_AARCH64_SYSROOT)
get_filename_component(root "${WINDLASS_AARCH64_SYSROOT}" ABSOLUTE)
if(NOT EXISTS "${root}/complete")
  message(FATAL_ERROR "no arm64 libraries in ${root}: run cmake/aarch64_sysroot.sh ${root} first")
endif()

set(CMAKE_FIND_ROOT_PATH "${root}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_LIBDIR} "${root}/usr/lib/aarch64-linux-gnu/pkgconfig")
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${root}")
# Libraries of libraries, which only the linker looks for.
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,-rpath-link,${root}/usr/lib/aarch64-linux-gnu:${root}/lib/aarch64-linux-gnu")

set(CMAKE_CROSSCOMPILING_EMULATOR "qemu-aarch64;-L;${root}")
