#include "cli/profile_input.h"

#include <utility>

#include "cli/commands.h"
#include "cli/errors.h"
#include "cli/file_kind.h"
#include "cli/say.h"
#include "profiler/import/import.h"
#include "symbols/symbolize.h"

namespace windlass::cli {

std::string shown_profile(const std::string& file) { return file == "-" ? "standard input" : file; }

int unreadable_profile(const std::string& file, std::string_view command, const Error& error) {
  const std::string subject = shown_profile(file);
  if (!say_other_kind(subject, command)) say_error(subject, error);
  return error.code == ErrorCode::kSystem || error.code == ErrorCode::kUnsupported ? kRefused : kFoundWrong;
}

namespace {

void name_addresses(importer::Imported& imported) {
  symbols::SymbolizeOptions how;
  if (!imported.running_kernel) how.kallsyms = "/dev/null";  // of another kernel, or since another start
  symbols::symbolize(imported.profile, how);
}

}  // namespace

std::optional<profile::Profile> read_profile(const std::string& file, std::string_view command, int& status) {
  auto imported = importer::read_any_file(file);
  if (!imported) {
    status = unreadable_profile(file, command, imported.error());
    return std::nullopt;
  }
  if (imported->unnamed) name_addresses(*imported);
  for (const std::string& note : imported->notes) say("windlass: {}\n", note);
  return std::move(imported->profile);
}

}  // namespace windlass::cli
