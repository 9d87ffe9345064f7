// Debuginfod servers, asked through the program debuginfod-find, only if DEBUGINFOD_URLS is set.
#pragma once

#include <chrono>
#include <span>
#include <string>

namespace windlass::symbols {

// debuginfod-find itself gives up a download that stands still for DEBUGINFOD_TIMEOUT seconds (90).
constexpr std::chrono::milliseconds kDebuginfodPatience = std::chrono::minutes(5);

[[nodiscard]] bool asks_debuginfod();  // DEBUGINFOD_URLS names a server

// A descriptor of what has this build id: the "debuginfo" or the "executable". -1: there is none, or no answer in time.
[[nodiscard]] int find_by_debuginfod(const char* kind, std::span<const unsigned char> build_id,
                                     std::chrono::milliseconds patience = kDebuginfodPatience);
// The same of a source file, by the build id's digits and the full path that the debug information has.
[[nodiscard]] int find_source_by_debuginfod(const std::string& build_id, const std::string& path);

}  // namespace windlass::symbols
