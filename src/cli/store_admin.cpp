#include "cli/store_admin.h"

#include <algorithm>
#include <chrono>
#include <cstdint>

#include <fmt/format.h>

#include "base/shown.h"
#include "cli/commands.h"
#include "cli/errors.h"
#include "cli/say.h"
#include "profiler/store/clickhouse_store.h"
#include "profiler/store/clickhouse_wire.h"

namespace windlass::cli {
namespace {

int refused(const StoreAdmin& arguments, const Error& error) {
  say_error(store::shown_place(arguments.url), error);
  return kRefused;
}

}  // namespace

std::string problem_of_store_url(const std::string& text) {
  const auto address = store::ClickhouseAddress::parse(text);
  return address ? std::string() : fmt::format("{}: {}", shown(store::shown_place(text)), address.error().what);
}

std::string problem_of_cluster(const std::string& text) {
  return !text.empty() && std::ranges::all_of(text, store::is_sql_name)
             ? std::string()
             : fmt::format("{} is no name of a cluster: letters, digits and _", shown(text));
}

int create_store(const StoreAdmin& arguments) {
  const auto keep = static_cast<std::uint64_t>(arguments.keep);
  const auto created = store::create_clickhouse(arguments.url, {.keep_seconds = keep, .cluster = arguments.cluster});
  if (!created) return refused(arguments, created.error());
  say("windlass: {} is ready for windlass agent --store\n", store::shown_place(arguments.url));
  if (!created->deletes_alone)
    say("windlass: ClickHouse {} deletes nothing by age. Way out: windlass store prune once a day\n", created->server);
  return kDone;
}

int prune_store(const StoreAdmin& arguments) {
  const auto now =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch());
  const auto now_seconds = static_cast<std::uint64_t>(now.count()), keep = static_cast<std::uint64_t>(arguments.keep);
  const auto pruned = store::prune_clickhouse(arguments.url, now_seconds - std::min(now_seconds, keep));
  if (!pruned) return refused(arguments, pruned.error());
  say("windlass: {}: partitions deleted: {}\n", store::shown_place(arguments.url), *pruned);
  return kDone;
}

}  // namespace windlass::cli
