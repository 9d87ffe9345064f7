// Debuginfod servers, asked through the program debuginfod-find, only if DEBUGINFOD_URLS is set.
#pragma once

#include <chrono>
#include <span>

namespace windlass::symbols {

// debuginfod-find itself gives up a download that stands still for DEBUGINFOD_TIMEOUT seconds (90).
constexpr std::chrono::milliseconds kDebuginfodPatience = std::chrono::minutes(5);

// A descriptor of what has this build id: the "debuginfo", the "executable", or a "source" file of it, by the path that
// the debug information has. -1: there is none, or no answer in time.
[[nodiscard]] int find_by_debuginfod(const char* kind, std::span<const unsigned char> build_id,
                                     std::chrono::milliseconds patience = kDebuginfodPatience,
                                     const char* source = nullptr);

}  // namespace windlass::symbols
