# Debug information names sources relative to this folder, so that each folder gives the same bytes.
set(WINDLASS_RELATIVE_NAMES -ffile-prefix-map=${PROJECT_BINARY_DIR}=build -ffile-prefix-map=${PROJECT_SOURCE_DIR}=.)
if(WINDLASS_REPRODUCIBLE)
  add_compile_options(${WINDLASS_RELATIVE_NAMES})
endif()

# One interface target carries how every piece of Windlass is compiled. Code of other projects never sees it.
add_library(windlass_options INTERFACE)
target_compile_options(windlass_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wcast-align -Wunused
  $<$<COMPILE_LANGUAGE:CXX>:-Wextra-semi -Wnon-virtual-dtor -Woverloaded-virtual>
  $<$<CXX_COMPILER_ID:Clang>:-Wno-gnu-anonymous-struct -Wno-deprecated-declarations>  # the latter: libstdc++ 12's own
  -fno-omit-frame-pointer)
if(WINDLASS_WERROR)
  target_compile_options(windlass_options INTERFACE -Werror)
endif()
if(WINDLASS_SANITIZE)
  target_compile_options(windlass_options INTERFACE -fsanitize=${WINDLASS_SANITIZE} -fno-sanitize-recover=all
    -fno-sanitize=vptr)  # it wants type information, which the library leaves out
  target_link_options(windlass_options INTERFACE -fsanitize=${WINDLASS_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # What the sanitizers put in between makes GCC see it where it is not.
    target_compile_options(windlass_options INTERFACE -Wno-maybe-uninitialized)
    if(WINDLASS_SANITIZE MATCHES "thread")
      target_compile_options(windlass_options INTERFACE -Wno-tsan)  # fences: what they order is atomic besides
    endif()
  endif()
endif()
if(WINDLASS_FUZZ)
  target_compile_options(windlass_options INTERFACE -fsanitize=fuzzer-no-link)  # coverage for libFuzzer
endif()
# These sources of the folder at hand do not report what they compare. libFuzzer puts it into inputs, which magic numbers need; code
# that follows instructions compares all the time, and spent a third of a run on reports.
function(windlass_fuzz_without_comparisons)
  if(WINDLASS_FUZZ)
    set_property(SOURCE ${ARGN} TARGET_DIRECTORY windlass APPEND PROPERTY COMPILE_OPTIONS -fno-sanitize-coverage=trace-cmp)
  endif()
endfunction()
target_include_directories(windlass_options INTERFACE
  ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/bpf ${PROJECT_SOURCE_DIR}/include)
target_compile_definitions(windlass_options INTERFACE WINDLASS_VERSION="${PROJECT_VERSION}")

# The library itself neither throws nor uses RTTI.
add_library(windlass_library_options INTERFACE)
target_link_libraries(windlass_library_options INTERFACE windlass_options)
target_compile_options(windlass_library_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fno-exceptions -fno-rtti>)
