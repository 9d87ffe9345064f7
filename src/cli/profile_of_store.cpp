#include "cli/profile_of_store.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/errors.h"
#include "cli/profile_input.h"
#include "cli/say.h"
#include "cli/symbol_places.h"
#include "profiler/store/open_store.h"
#include "profiler/store/read_profile.h"

namespace windlass::cli {
namespace {

// Nothing: says why on stderr, and sets `status`.
std::optional<TimeSpan> range_of(const StoreFile& file, int& status) {
  if (file.range.empty()) return TimeSpan{};
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto now_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  const auto range = parse_range(file.range, static_cast<std::uint64_t>(now_ns));
  if (range) return range;
  say("windlass: {} is no range of times. Way out: {}@-1h, or {}@2026-11-27T14:05..2026-11-27T14:10\n", file.range,
      store::shown_place(file.path), store::shown_place(file.path));
  status = kUsage;
  return std::nullopt;
}

// Labels that a store keeps of every sample, taken out of `only`. The samples of others are not read.
store::Filter take_filter(std::vector<std::string>& only) {
  store::Filter filter;
  for (const std::string_view key : {store::kHostLabel, store::kProcessLabel}) {
    std::erase_if(only, [&](const std::string& text) {
      const std::size_t mark = text.find('=');
      if (text.substr(0, mark) != key) return false;
      filter.labels.push_back({std::string(key), text.substr(mark + 1)});
      return true;
    });
  }
  return filter;
}

// Says which of the labels no sample of the store has. False: each has some.
bool say_missing(store::ProfileStore& store, const std::string& path, const store::Filter& filter) {
  for (const store::Label& label : filter.labels) {
    const auto values = store.values(label.key);
    if (!values || std::ranges::find(*values, label.value) != values->end()) continue;
    say_no_such_value(path, label.key, label.value, *values);
    return true;
  }
  return false;
}

}  // namespace

std::optional<profile::Profile> read_store(const StoreFile& file, std::vector<std::string>& only, int& status) {
  const auto range = range_of(file, status);
  if (!range) return std::nullopt;
  const store::Filter filter = take_filter(only);
  const auto store = store::open_store(file.path);
  auto profile = store ? store::read_profile(**store, filter, range->from, range->to) : Failure(store.error());
  if (profile) {
    name_late(*profile, store->get());
    for (const store::Label& label : filter.labels)
      profile->comments.push_back(fmt::format("only {}={}", label.key, label.value));
    if (!profile->samples.empty() || !say_missing(**store, store::shown_place(file.path), filter))
      return std::move(*profile);
    status = kUsage;
    return std::nullopt;
  }
  say_error(store::shown_place(file.path), profile.error());
  status = profile.error().code == ErrorCode::kMalformed ? kFoundWrong : kRefused;
  return std::nullopt;
}

}  // namespace windlass::cli
