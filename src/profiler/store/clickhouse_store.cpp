#include "profiler/store/clickhouse_store.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "profiler/store/clickhouse_batch.h"
#include "profiler/store/clickhouse_query.h"
#include "profiler/store/clickhouse_schema.h"
#include "profiler/store/clickhouse_wire.h"

namespace windlass::store {

namespace {

constexpr unsigned kOldestServer = 18;
constexpr const char* kOtherSchema =
    "a store of another version of windlass. Way out: use that version, or create another database";
constexpr const char* kReadOnlyServer = "the store is open for reading only";
constexpr const char* kNoCluster = "a cluster's name has letters, digits and _";

struct ServerFacts {
  unsigned version = 0;
  bool is_cluster = false;
};

Expected<ServerFacts> facts_of(ClickhouseServer& server) {
  const auto answer = server.query(
      "SELECT version(), (SELECT count() FROM system.tables WHERE database = " + sql_text(server.address().database) +
      " AND name = 'samples_local') FORMAT RowBinary");
  if (!answer) return Failure(answer.error());
  RowReader row(*answer);
  const std::string version = row.text();
  ServerFacts facts;
  std::from_chars(version.data(), version.data() + version.size(), facts.version);
  facts.is_cluster = row.u64() != 0;
  if (!row.is_good()) return fail(ErrorCode::kUnreadable, kNotClickhouse, 0);
  if (facts.version < kOldestServer) return fail(ErrorCode::kUnsupported, kTooOldServer, 0, facts.version);
  return facts;
}

Expected<void> check_version(ClickhouseServer& server) {
  const auto answer = server.query("SELECT max(version) FROM windlass_store FORMAT RowBinary");
  if (!answer) return Failure(answer.error());
  RowReader row(*answer);
  const std::uint32_t version = row.u32();
  if (row.is_good() && version == kClickhouseVersion) return {};
  return fail(ErrorCode::kUnsupported, kOtherSchema, 0, version);
}

constexpr auto kOrdinaryPatience = std::chrono::seconds(30);

// The first that `asked` does not find away. Else the last one's error.
template <typename Asked>
Expected<ClickhouseServer> first_server(const std::string& url, std::chrono::milliseconds patience, Asked asked) {
  auto addresses = ClickhouseAddress::parse(url);
  if (!addresses) return Failure(addresses.error());
  for (std::size_t i = 0;; ++i) {
    ClickhouseServer server(std::move((*addresses)[i]), patience);
    const Expected<void> answered = asked(server);
    if (answered) return server;
    if (answered.error().code != ErrorCode::kUnreadable || i + 1 == addresses->size()) return Failure(answered.error());
  }
}

struct OpenServer {
  ClickhouseServer server;
  ServerFacts facts;
};

// With a store of this version.
Expected<OpenServer> open_server(const std::string& url, std::chrono::milliseconds patience) {
  ServerFacts known;
  auto server = first_server(url, patience, [&](ClickhouseServer& asked) -> Expected<void> {
    const auto facts = facts_of(asked);
    if (!facts) return Failure(facts.error());
    known = *facts;
    return check_version(asked);
  });
  if (!server) return Failure(server.error());
  return OpenServer{std::move(*server), known};
}

class ClickhouseStore final : public ProfileStore {
 public:
  ClickhouseStore(ClickhouseServer&& server, const ServerFacts& facts, bool write)
      : server_(std::move(server)), facts_(facts), write_(write) {}

  Expected<bool> append(const Batch& batch) override {
    if (!write_) return fail(ErrorCode::kUnsupported, kReadOnlyServer, 0);
    known_.begin(static_cast<std::uint32_t>(batch.begin_ns / kSecondNs / kPeriodSeconds));
    const auto encoded = encode(batch, known_);
    if (!encoded) return Failure(encoded.error());
    const auto is_there = has_batch(*encoded, service_id(batch.id.host));
    if (is_there && *is_there) return false;
    const auto sent = is_there ? send(*encoded) : Expected<void>(Failure(is_there.error()));
    if (!sent) {
      known_ = {};  // another server may be there now
      return Failure(sent.error());
    }
    known_.add(encoded->known_ids);
    return true;
  }
  Expected<std::optional<Extent>> extent() override { return ClickhouseQuery(server_).extent(); }
  Expected<std::vector<std::string>> labels() override { return ClickhouseQuery(server_).labels(); }
  Expected<std::vector<std::string>> values(std::string_view label) override {
    return ClickhouseQuery(server_).values(label);
  }
  Expected<std::vector<Series>> series(const Filter& filter, std::uint64_t from, std::uint64_t to,
                                       std::uint64_t step) override {
    return ClickhouseQuery(server_).series(filter, from, to, step);
  }
  Expected<std::vector<Total>> totals(std::string_view label, const Filter& filter, std::uint64_t from,
                                      std::uint64_t to) override {
    return ClickhouseQuery(server_).totals(label, filter, from, to);
  }
  Expected<Stacks> stacks(const Filter& filter, std::uint64_t from, std::uint64_t to) override {
    return ClickhouseQuery(server_).stacks(filter, from, to);
  }
  Expected<Frames> frames(std::span<const std::uint64_t> stacks) override {
    return ClickhouseQuery(server_).frames(stacks);
  }

 private:
  Expected<bool> has_batch(const ClickhouseBatch& batch, std::uint64_t host) {
    const auto answer = server_.query(fmt::format(
        "SELECT count() FROM samples WHERE level = 2 AND event = 0 AND service = {} AND hour = {} AND stack = {} "
        "FORMAT RowBinary",
        host, batch.hour, batch.id));
    if (!answer) return Failure(answer.error());
    RowReader row(*answer);
    const bool is_there = row.u64() != 0;
    if (!row.is_good() || row.has_more()) return fail(ErrorCode::kUnreadable, kNotClickhouse, 0);
    return is_there;
  }
  // On a cluster the tables of this server: the batch is one block only there.
  [[nodiscard]] std::string table(std::string_view name) const {
    return std::string(name) + (facts_.is_cluster ? "_local" : "");
  }
  Expected<void> send(const ClickhouseBatch& batch) {
    for (const ClickhouseBatch::Block& block : batch.contents)
      if (const auto sent = server_.insert(table(block.table), block.bytes); !sent) return sent;
    const std::string name = fmt::format("windlass-{:016x}", batch.id);
    ClickhouseSettings settings{{"query_id", name}};
    if (facts_.version >= kTokenServer) {
      settings.emplace_back("insert_deduplication_token", name);
      settings.emplace_back("async_insert", "0");
    }
    return server_.insert(table("samples"), batch.samples, settings);
  }

  ClickhouseServer server_;
  ServerFacts facts_;
  bool write_;
  KnownContents known_;
};

}  // namespace

Expected<std::unique_ptr<ProfileStore>> open_clickhouse(const std::string& url, const StoreOptions& options,
                                                        std::chrono::milliseconds patience) {
  auto opened = open_server(url, patience);
  if (!opened) return Failure(opened.error());
  return std::unique_ptr<ProfileStore>(
      std::make_unique<ClickhouseStore>(std::move(opened->server), opened->facts, options.write));
}

Expected<ClickhouseCreated> create_clickhouse(const std::string& url, const ClickhouseCreation& how) {
  if (!std::ranges::all_of(how.cluster, is_sql_name)) return fail(ErrorCode::kMalformed, kNoCluster, 0);
  std::string version;
  // Outside of the database, which may not be there.
  auto answering = first_server(url, kOrdinaryPatience, [&](ClickhouseServer& server) -> Expected<void> {
    const auto answer = server.run_outside("SELECT version() FORMAT RowBinary");
    if (!answer) return Failure(answer.error());
    version = RowReader(*answer).text();
    return {};
  });
  if (!answering) return Failure(answering.error());
  ClickhouseServer& server = *answering;
  ClickhouseCreated created;
  std::from_chars(version.data(), version.data() + version.size(), created.server);
  if (created.server < kOldestServer) return fail(ErrorCode::kUnsupported, kTooOldServer, 0, created.server);
  created.deletes_alone = how.keep_seconds == 0 || created.server >= kTtlServer;
  const auto statements = clickhouse_statements(
      server.address().database, {.server = created.server, .keep = how.keep_seconds, .cluster = how.cluster});
  for (const std::string& statement : statements)
    if (const auto run = server.run_outside(statement); !run) return Failure(run.error());
  if (const auto checked = check_version(server); !checked) return Failure(checked.error());
  return created;
}

Expected<std::uint64_t> prune_clickhouse(const std::string& url, std::uint64_t before) {
  auto opened = open_server(url, std::chrono::minutes(10));
  if (!opened) return Failure(opened.error());
  ClickhouseServer& server = opened->server;
  const ServerFacts& facts = opened->facts;
  std::uint64_t gone = 0;
  for (const ClickhouseTable& table : kClickhouseTables) {
    if (table.seconds.empty()) continue;
    const std::uint64_t seconds = table.name == "samples" ? kDaySeconds : kPeriodSeconds;
    const std::string name = std::string(table.name) + (facts.is_cluster ? "_local" : "");
    const auto parts =
        server.query("SELECT DISTINCT toUInt64(partition) FROM system.parts WHERE active AND database = " +
                     sql_text(server.address().database) + " AND table = " + sql_text(name) + " FORMAT RowBinary");
    if (!parts) return Failure(parts.error());
    for (RowReader row(*parts); row.has_more();) {
      const std::uint64_t part = row.u64();
      if (!row.is_good() || (part + 1) * seconds > before) continue;
      const auto dropped = server.query("ALTER TABLE " + name + " DROP PARTITION " + std::to_string(part));
      if (!dropped) return Failure(dropped.error());
      ++gone;
    }
  }
  return gone;
}

}  // namespace windlass::store
