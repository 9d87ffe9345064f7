// What `windlass store` does. The static file has none of it.
#pragma once

#include <string>

namespace windlass::cli {

struct StoreAdmin {
  std::string action, url, cluster;
  double keep = 30 * 86400.0;  // seconds
};

// Empty: it is one.
[[nodiscard]] std::string problem_of_store_url(const std::string& text);
[[nodiscard]] std::string problem_of_cluster(const std::string& text);
// The exit status; what failed is said on stderr.
[[nodiscard]] int create_store(const StoreAdmin& arguments);
[[nodiscard]] int prune_store(const StoreAdmin& arguments);

}  // namespace windlass::cli
