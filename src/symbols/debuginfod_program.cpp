#include "symbols/debuginfod_program.h"

#include <algorithm>
#include <cctype>
#include <climits>
#include <cstdlib>
#include <string>

#include <fmt/format.h>

#include "os/child_program.h"
#include "os/mapped_files.h"

namespace windlass::symbols {
namespace {

int find(const char* kind, const std::string& digits, std::chrono::milliseconds patience, const char* source) {
  if (!asks_debuginfod() || digits.empty()) return -1;
  os::ChildProgram program{
      .arguments = {"debuginfod-find", kind, digits.c_str()}, .patience = patience, .most_bytes = PATH_MAX};
  if (source != nullptr) program.arguments.push_back(source);
  const auto end = os::run_program(program);
  if (!end || end->status != 0) return -1;
  std::string path = end->output;
  if (path.ends_with('\n')) path.pop_back();
  if (!path.starts_with('/')) return -1;
  return os::open_regular(path);
}

}  // namespace

bool asks_debuginfod() {
  const char* servers = std::getenv("DEBUGINFOD_URLS");
  return servers != nullptr && *servers != '\0';
}

int find_by_debuginfod(const char* kind, std::span<const unsigned char> build_id, std::chrono::milliseconds patience) {
  std::string digits;
  for (const unsigned char byte : build_id) digits += fmt::format("{:02x}", byte);
  return find(kind, digits, patience, nullptr);
}

int find_source_by_debuginfod(const std::string& build_id, const std::string& path) {
  const auto is_digit = [](unsigned char digit) { return std::isxdigit(digit) != 0; };
  // Servers know full paths. Neither text may be an option.
  if (!std::ranges::all_of(build_id, is_digit) || !path.starts_with('/')) return -1;
  return find("source", build_id, kDebuginfodPatience, path.c_str());
}

}  // namespace windlass::symbols
