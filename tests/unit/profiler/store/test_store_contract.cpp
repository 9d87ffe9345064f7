// Every store answers as the profiles themselves do. Another store is one more instantiation.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "profiler/store/open_store.h"
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

}  // namespace windlass::testing
