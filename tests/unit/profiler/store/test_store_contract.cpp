// Every store answers as the profiles themselves do. Another store is one more instantiation.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "profiler/store/clickhouse_store.h"
#include "profiler/store/open_store.h"
#include "support/clickhouse_process.h"
#include "support/store_contract.h"

namespace windlass::testing {

struct SqliteSubject {
  ~SqliteSubject() { std::filesystem::remove_all(folder); }
  std::unique_ptr<store::ProfileStore> make() {
    auto opened = store::open_store(folder / (std::to_string(made++) + ".db"), {.write = true, .keep = {}});
    EXPECT_TRUE(opened.has_value()) << opened.error().text();
    return std::move(*opened);
  }

  std::filesystem::path folder = store_folder("windlass-store-");
  int made = 0;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Sqlite, StoreContract, SqliteSubject);

// One server for all; each store is a database.
struct ClickhouseSubject {
  static ClickhouseProcess* server() {
    static const auto running = [] {
      auto process = std::make_unique<ClickhouseProcess>(store_folder("windlass-clickhouse-"));
      return process->start() ? std::move(process) : nullptr;
    }();
    return running.get();
  }
  static std::string not_here() { return clickhouse_program().empty() ? "no clickhouse-server, and apt has none" : ""; }
  std::unique_ptr<store::ProfileStore> make() {
    if (server() == nullptr) return nullptr;
    static int made = 0;
    const std::string url = server()->url("store" + std::to_string(made++));
    const auto created = store::create_clickhouse(url, {});
    EXPECT_TRUE(created.has_value()) << created.error().text();
    auto opened = store::open_store(url, {.write = true, .keep = {}});
    EXPECT_TRUE(opened.has_value()) << opened.error().text();
    return opened ? std::move(*opened) : nullptr;
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Clickhouse, StoreContract, ClickhouseSubject);

}  // namespace windlass::testing
