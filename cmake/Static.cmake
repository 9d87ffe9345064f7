# The command as one file that needs no other: windlass-static is linked from the objects of windlass-cli, and from archives in place of
# shared libraries. WINDLASS_STATIC: AUTO makes it if all that it takes is here; with ON it is an error if something is missing.
# WINDLASS_STATIC_MISSING then says what is missing, and is empty otherwise.
set(WINDLASS_STATIC_MISSING "")

# The archives, and the Debian package of each.
set(static_archives dw libdw-dev elf libelf-dev bpf libbpf-dev iberty libiberty-dev z zlib1g-dev lzma liblzma-dev zstd libzstd-dev
    lz4 liblz4-dev bz2 libbz2-dev ncursesw libncurses-dev tinfo libncurses-dev)
set(static_libraries "")
while(static_archives)
  list(POP_FRONT static_archives name package)
  find_library(WINDLASS_STATIC_${name} lib${name}.a)
  if(WINDLASS_STATIC_${name})
    list(APPEND static_libraries ${WINDLASS_STATIC_${name}})
  else()
    list(APPEND WINDLASS_STATIC_MISSING "lib${name}.a (package ${package})")
  endif()
endwhile()
foreach(name c stdc++)  # where the compiler has its own
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=lib${name}.a OUTPUT_VARIABLE path OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT IS_ABSOLUTE "${path}")
    list(APPEND WINDLASS_STATIC_MISSING "lib${name}.a (a package of the compiler)")
  endif()
endforeach()

# Zydis, compiled from the sources of the version whose headers are installed.
set(zydis_version 4.0.0)
set(zydis_hash e990107f80c62afc1deb51de230023a1098db801b8ea6bf483e296d45459e234)
set(zydis_sources ${PROJECT_BINARY_DIR}/zydis)
file(STRINGS ${ZYDIS_INCLUDE}/Zydis/Zydis.h installed REGEX "define ZYDIS_VERSION ")
set(present "")
if(EXISTS ${zydis_sources}/.hash)
  file(STRINGS ${zydis_sources}/.hash present LIMIT_COUNT 1)
endif()
if(NOT installed MATCHES "0x0004000000000000")
  list(APPEND WINDLASS_STATIC_MISSING "headers of Zydis ${zydis_version}, whose sources cmake/Static.cmake knows")
elseif(NOT present STREQUAL zydis_hash AND NOT WINDLASS_STATIC_MISSING)
  execute_process(COMMAND sh ${PROJECT_SOURCE_DIR}/cmake/fetch_zydis.sh ${zydis_version} ${zydis_hash} ${zydis_sources}
    RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE text OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(status EQUAL 2)
    message(FATAL_ERROR "${text}")
  elseif(NOT status EQUAL 0)
    list(APPEND WINDLASS_STATIC_MISSING "Zydis's sources (${text})")
  endif()
endif()

if(WINDLASS_STATIC_MISSING)
  list(JOIN WINDLASS_STATIC_MISSING ", " WINDLASS_STATIC_MISSING)
  if(NOT WINDLASS_STATIC STREQUAL "AUTO")
    message(FATAL_ERROR "no static command: there is no ${WINDLASS_STATIC_MISSING}")
  endif()
  message(STATUS "no static command: there is no ${WINDLASS_STATIC_MISSING}")
  return()
endif()

add_library(windlass_static_zydis STATIC EXCLUDE_FROM_ALL)
foreach(name Decoder DecoderData Formatter FormatterBase FormatterBuffer FormatterIntel FormatterATT MetaInfo Mnemonic Register SharedData
        String Utils Zydis)
  target_sources(windlass_static_zydis PRIVATE ${zydis_sources}/src/${name}.c)
endforeach()
target_include_directories(windlass_static_zydis SYSTEM PRIVATE ${zydis_sources}/include ${zydis_sources}/src ${ZYDIS_INCLUDE})
target_compile_definitions(windlass_static_zydis PRIVATE ZYDIS_STATIC_BUILD ZYCORE_STATIC_BUILD)

# Not taken from windlass-cli: what it says of the linkage, which src/cli/linkage_static.cpp says here.
add_executable(windlass-static $<FILTER:$<TARGET_OBJECTS:windlass-cli>,EXCLUDE,linkage_shared> $<TARGET_OBJECTS:windlass_commands>
  $<TARGET_OBJECTS:windlass_mcp>
  ${PROJECT_SOURCE_DIR}/src/cli/linkage_static.cpp
  ${PROJECT_SOURCE_DIR}/src/cli/terminate_static.cpp ${PROJECT_SOURCE_DIR}/src/symbols/few_machines.cpp
  ${PROJECT_SOURCE_DIR}/src/symbols/debuginfod_find.cpp ${PROJECT_SOURCE_DIR}/src/profiler/annotate/aarch64_as_words.cpp)
# SQLite would be more than a megabyte of this file, which is to stay below ten: it has no store.
target_sources(windlass-static PRIVATE $<TARGET_OBJECTS:windlass_no_stores>)
# Nor has it libcurl, which would have to be opened, or the compressor of zstd.
target_sources(windlass-static PRIVATE ${PROJECT_SOURCE_DIR}/src/profiler/transport/no_libcurl.cpp
  ${PROJECT_SOURCE_DIR}/src/profiler/transport/no_zstd.cpp)
set(static_parts "")
foreach(part windlass_store windlass_spool windlass_transport windlass_agent windlass_labels windlass_kernel_side windlass_annotate windlass_import windlass_export windlass_symbols windlass)
  list(APPEND static_parts $<TARGET_FILE:${part}>)
  add_dependencies(windlass-static ${part})
endforeach()
# By files, not by targets: with these come the shared libraries that windlass-cli is linked with.
target_link_libraries(windlass-static PRIVATE windlass_options
  -Wl,--start-group ${static_parts} windlass_static_zydis ${static_libraries} -Wl,--end-group)
target_include_directories(windlass-static PRIVATE $<TARGET_PROPERTY:fmt::fmt,INTERFACE_INCLUDE_DIRECTORIES>)
# Relative relocations are most of a quarter of a megabyte, and a hundredth of that when packed.
# The GNU linker does that for x86-64 only; for others it warns.
include(CheckLinkerFlag)
check_linker_flag(CXX -Wl,-z,pack-relative-relocs WINDLASS_PACKS_RELOCATIONS)
if(WINDLASS_PACKS_RELOCATIONS AND CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  target_link_options(windlass-static PRIVATE -Wl,-z,pack-relative-relocs)
endif()
target_link_options(windlass-static PRIVATE -static-pie -Wl,--gc-sections -Wl,-z,relro,-z,now -Wl,--fatal-warnings)
set_target_properties(windlass-static PROPERTIES OUTPUT_NAME windlass RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/static)
# The file that is copied has no names and lines of its own; windlass.debug beside it has.
add_custom_command(TARGET windlass-static POST_BUILD
  COMMAND ${CMAKE_OBJCOPY} --only-keep-debug windlass windlass.debug
  COMMAND ${CMAKE_OBJCOPY} --strip-all --add-gnu-debuglink=windlass.debug windlass
  WORKING_DIRECTORY ${PROJECT_BINARY_DIR}/static)
