// The store of many machines, in a database of ClickHouse: 18.16 or later, by HTTP.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "profiler/store/clickhouse_server.h"
#include "profiler/store/open_store.h"

namespace windlass::store {

// As open_store(), of a URL (ClickhouseAddress). StoreOptions::keep is not used: the tables say what is kept. The
// tables must be there. The store asks the server anew for every answer. Times are whole seconds.
//
// A batch counts once, also if the answer to an insert is lost and the batch comes again. Its rows and its mark are one
// block. Before the insert the mark is looked for. A server that still works on the batch refuses the query of the same
// name. Where the server has tokens (version 22), it drops a second block with the token of the first.
[[nodiscard]] Expected<std::unique_ptr<ProfileStore>> open_clickhouse(
    const std::string& url, const StoreOptions& options, std::chrono::milliseconds patience = std::chrono::seconds(30));

struct ClickhouseCreation {
  std::uint64_t keep_seconds = 0;  // how long samples are kept; 0: for ever
  std::string cluster{};           // tables on all servers of a cluster, replicated; letters, digits and _
};
struct ClickhouseCreated {
  unsigned server = 0;         // its major version
  bool deletes_alone = false;  // what is too old; else prune_clickhouse() does
};
// Makes the database and the tables that are not there. Error: kUnsupported: a store of another version is there.
[[nodiscard]] Expected<ClickhouseCreated> create_clickhouse(const std::string& url, const ClickhouseCreation& how);

// Deletes whole days of samples that ended before `before` (Unix time in seconds), and contents that no later sample
// has. How many parts of tables have gone.
[[nodiscard]] Expected<std::uint64_t> prune_clickhouse(const std::string& url, std::uint64_t before);

}  // namespace windlass::store
