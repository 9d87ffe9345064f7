#include "cli/profile_input.h"

#include <utility>

#include "cli/commands.h"
#include "cli/errors.h"
#include "cli/file_kind.h"
#include "profiler/export/pprof.h"

namespace windlass::cli {

std::string shown_profile(const std::string& file) { return file == "-" ? "standard input" : file; }

int unreadable_profile(const std::string& file, std::string_view command, const Error& error) {
  const std::string subject = shown_profile(file);
  if (!say_other_kind(subject, command)) say_error(subject, error);
  return error.code == ErrorCode::kSystem || error.code == ErrorCode::kUnsupported ? kRefused : kFoundWrong;
}

std::optional<profile::Profile> read_profile(const std::string& file, std::string_view command, int& status) {
  auto profile = exporter::read_pprof_file(file);
  if (profile) return std::move(*profile);
  status = unreadable_profile(file, command, profile.error());
  return std::nullopt;
}

}  // namespace windlass::cli
