#include "cli/profile_input.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/commands.h"
#include "cli/errors.h"
#include "cli/file_kind.h"
#include "cli/profile_of_store.h"
#include "cli/say.h"
#include "cli/store_range.h"
#include "cli/symbol_places.h"
#include "profiler/import/import.h"
#include "symbols/symbolize.h"

namespace windlass::cli {

std::string shown_profile(const std::string& file) { return file == "-" ? "standard input" : file; }

int unreadable_profile(const std::string& file, std::string_view command, const Error& error) {
  const std::string subject = shown_profile(file);
  if (!say_other_kind(subject, command)) say_error(subject, error);
  return error.code == ErrorCode::kSystem || error.code == ErrorCode::kUnsupported ? kRefused : kFoundWrong;
}

std::string some_of(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 20;
  const std::size_t shown = std::min(names.size(), kMost);
  std::string text =
      fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (shown < names.size()) text += fmt::format(", {} more", names.size() - shown);
  return text;
}

void say_no_such_value(std::string_view subject, std::string_view key, std::string_view value,
                       const std::vector<std::string>& values) {
  if (values.empty()) {
    say("windlass: {}: no sample has {}={}. Way out: another file, since no sample has a value of {}\n", subject, key,
        value, key);
    return;
  }
  say("windlass: {}: no sample has {}={}. Way out: values of {} are {}\n", subject, key, value, key, some_of(values));
}

namespace {

void name_addresses(importer::Imported& imported) {
  symbols::SymbolizeOptions how;
  if (!imported.running_kernel) how.kallsyms = "/dev/null";  // of another kernel, or since another start
  symbols::symbolize(imported.profile, how);
}

}  // namespace

std::optional<profile::Profile> read_profile(const std::string& file, std::string_view command, int& status,
                                             std::vector<std::string>& only) {
  if (const auto store = store_file(file)) return read_store(*store, only, status);
  auto imported = importer::read_any_file(file);
  if (!imported) {
    status = unreadable_profile(file, command, imported.error());
    return std::nullopt;
  }
  if (imported->unnamed) name_addresses(*imported);
  name_late(imported->profile, nullptr);
  for (const std::string& note : imported->notes) say("windlass: {}\n", note);
  return std::move(imported->profile);
}

}  // namespace windlass::cli
