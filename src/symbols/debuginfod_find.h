// Debuginfod servers, asked through the program debuginfod-find. A static program has no dlopen(), by which libdw gets
// its own client. debuginfod_find.cpp stands in for libdw's file of that client: whichever is linked is the one that
// dwfl_standard_find_debuginfo() asks. Both ask only if DEBUGINFOD_URLS is set.
#pragma once

#include <chrono>
#include <span>

namespace windlass::symbols {

// debuginfod-find itself gives up a download that stands still for DEBUGINFOD_TIMEOUT seconds (90).
constexpr std::chrono::milliseconds kDebuginfodPatience = std::chrono::minutes(5);

// A descriptor of what has this build id: the "debuginfo" or the "executable". -1: there is none, or no answer in time.
[[nodiscard]] int find_by_debuginfod(const char* kind, std::span<const unsigned char> build_id,
                                     std::chrono::milliseconds patience = kDebuginfodPatience);

}  // namespace windlass::symbols
