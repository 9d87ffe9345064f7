// Profiles as a store: one interval each.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace windlass::cli {

// A store in a folder of its own, which is deleted with this object. Samples have the label "file".
class ServedFiles {
 public:
  // Nothing: says on stderr why not, and sets `status`.
  [[nodiscard]] static std::optional<ServedFiles> read(const std::vector<std::string>& files, int& status);
  ~ServedFiles();
  ServedFiles(ServedFiles&& other) noexcept;
  ServedFiles& operator=(ServedFiles&&) = delete;

  [[nodiscard]] std::string store() const { return folder_ + "/store"; }

 private:
  explicit ServedFiles(std::string folder) : folder_(std::move(folder)) {}
  std::string folder_;
};

}  // namespace windlass::cli
