#include "profiler/store/clickhouse_schema.h"

namespace windlass::store {

namespace {

constexpr unsigned kHasCodecs = 20, kHasBlockSizes = 22;

// By default a compressed block has 64 KiB of a column: 8192 ids, most of which occur once in so few rows. In a block
// of 1 MiB ids are repeated.
constexpr const char* kBlockSizes = ", min_compress_block_size = 1048576, max_compress_block_size = 4194304";

// Ids repeat in runs, times and sums are small. ZSTD(1) finds fewer of the repeated ids than ZSTD(3).
std::string with_codecs(std::string_view columns) {
  std::string text(columns);
  text += ',';
  std::string made;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t comma = text.find(", ", at) == text.npos ? text.size() - 1 : text.find(", ", at);
    made += text.substr(at, comma - at) + " CODEC(ZSTD(3)), ";
    at = comma + 2;
  }
  return made.substr(0, made.size() - 2);
}

std::string engine_of(const ClickhouseTable& table, const ClickhouseLayout& layout, const std::string& database) {
  std::string engine(table.engine);
  if (layout.cluster.empty()) return engine;
  const std::string place =
      "'/clickhouse/tables/{shard}/" + database + "/" + std::string(table.name) + "', '{replica}'";
  const std::size_t open = engine.find('(');
  if (open == engine.npos) return "Replicated" + engine + "(" + place + ")";
  return "Replicated" + engine.substr(0, open + 1) + place + ", " + engine.substr(open + 1);
}

}  // namespace

// NOLINTBEGIN(performance-inefficient-string-concatenation): once a store
std::vector<std::string> clickhouse_statements(const std::string& database, const ClickhouseLayout& layout) {
  const std::string on = layout.cluster.empty() ? "" : " ON CLUSTER " + layout.cluster;
  std::vector<std::string> statements{"CREATE DATABASE IF NOT EXISTS " + database + on};
  for (const ClickhouseTable& table : kClickhouseTables) {
    const bool is_samples = table.name == "samples";
    const std::string local = std::string(table.name) + (layout.cluster.empty() ? "" : "_local");
    std::string sql = "CREATE TABLE IF NOT EXISTS " + database + "." + local + on + " (" +
                      (layout.server >= kHasCodecs ? with_codecs(table.columns) : std::string(table.columns)) +
                      ") ENGINE = " + engine_of(table, layout, database) + " PARTITION BY " +
                      std::string(table.partition) + " ORDER BY " + std::string(table.order);
    if (layout.server >= kTtlServer && layout.keep != 0 && !table.seconds.empty())
      sql +=
          " TTL toDateTime(" + std::string(table.seconds) + ") + toIntervalSecond(" + std::to_string(layout.keep) + ")";
    sql += " SETTINGS index_granularity = 8192";
    if (is_samples && layout.server >= kHasBlockSizes) sql += kBlockSizes;
    if (is_samples && layout.server >= kTokenServer && layout.cluster.empty())
      sql += ", non_replicated_deduplication_window = 10000";
    statements.push_back(std::move(sql));
    if (layout.cluster.empty()) continue;
    // To read from. A batch is inserted on one server, whose block it is.
    statements.push_back("CREATE TABLE IF NOT EXISTS " + database + "." + std::string(table.name) + on + " AS " +
                         database + "." + local + " ENGINE = Distributed(" + layout.cluster + ", " + database + ", " +
                         local + ")");
  }
  statements.push_back("INSERT INTO " + database + ".windlass_store" + (layout.cluster.empty() ? "" : "_local") +
                       " VALUES (" + std::to_string(kClickhouseVersion) + ", toUInt32(now()))");
  return statements;
}
// NOLINTEND(performance-inefficient-string-concatenation)

}  // namespace windlass::store
