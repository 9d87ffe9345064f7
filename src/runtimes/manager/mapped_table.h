// A code manager's table that is mapped here by its memfd.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "windlass/jit/code_manager.h"

namespace windlass::manager {

class MappedTable {
 public:
  // The descriptor stays the caller's, and is not needed after this call. kUnsupported: the file may shrink under its
  // readers. kSystem: it cannot be mapped. Other errors are those of CodeManagerReader::open.
  [[nodiscard]] static Expected<std::shared_ptr<const MappedTable>> open(int memfd);
  MappedTable(std::span<const std::byte> mapping, const CodeManagerReader& reader)
      : mapping_(mapping), reader_(reader) {}
  ~MappedTable();
  MappedTable(const MappedTable&) = delete;
  MappedTable& operator=(const MappedTable&) = delete;

  [[nodiscard]] const CodeManagerReader& reader() const { return reader_; }

 private:
  std::span<const std::byte> mapping_;
  CodeManagerReader reader_;
};

}  // namespace windlass::manager
