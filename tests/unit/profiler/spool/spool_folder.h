// A folder for a spool, deleted with its owner.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "profiler/spool/spool.h"

namespace windlass::testing {

class SpoolFolder {
 public:
  SpoolFolder() {
    std::string pattern = ::testing::TempDir() + "/windlass-spool-XXXXXX";
    above_ = ::mkdtemp(pattern.data());
  }
  SpoolFolder(const SpoolFolder&) = delete;
  SpoolFolder& operator=(const SpoolFolder&) = delete;
  ~SpoolFolder() { std::filesystem::remove_all(above_); }

  [[nodiscard]] std::string path() const { return above_ + "/spool"; }
  [[nodiscard]] spool::Spool open(std::uint64_t most_bytes = std::uint64_t{1} << 20) const {
    auto spool = spool::Spool::open(path(), most_bytes);
    EXPECT_TRUE(spool.has_value()) << spool.error().text();
    return std::move(*spool);
  }
  // The files of batches, oldest first; unfinished ones as well.
  [[nodiscard]] std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> all;
    for (const auto& entry : std::filesystem::directory_iterator(path()))
      if (const std::string name = entry.path().filename(); name != "lock" && name != "openings")
        all.push_back(entry.path());
    std::ranges::sort(all);
    return all;
  }

 private:
  std::string above_;
};

// The bytes of all batches that wait, which are acknowledged.
inline std::vector<std::string> take_all(spool::Spool& spool) {
  std::vector<std::string> all;
  for (;;) {
    auto batch = spool.oldest();
    if (!batch || !*batch) return all;
    EXPECT_TRUE(spool.acknowledge((*batch)->sequence));
    all.push_back(std::move((*batch)->bytes));
  }
}

}  // namespace windlass::testing
