// What the Writers of both Windows formats go back to where a function cannot be written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace windlass {

template <typename Written>
class WrittenMark {
 public:
  explicit WrittenMark(const Written& written)
      : entries_(written.entries.size()), bytes_(written.bytes.size()), relocations_(written.relocations.size()) {}

  void restore(Written& written, std::map<std::vector<std::byte>, std::uint32_t>& records) const {
    written.entries.resize(entries_);
    written.bytes.resize(bytes_);
    written.relocations.resize(relocations_);
    std::erase_if(records, [this](const auto& record) { return record.second >= bytes_; });
  }

 private:
  std::size_t entries_, bytes_, relocations_;
};

}  // namespace windlass
