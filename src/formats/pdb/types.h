// The type records of a PDB file, and its id records, which have the same form: as far as names of inlined functions
// need.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "formats/pdb/format.h"
#include "formats/pdb/msf.h"

namespace windlass::pdb {

struct TypeRecord {
  TypeKind kind;
  ByteView bytes;  // behind the kind
};

// One of the two streams of records.
class TypeStream {
 public:
  // A stream that is absent or damaged has no records.
  TypeStream(const MsfFile& file, std::uint32_t number);

  // The record with a number; none: it cannot be found. `copy` holds its bytes if they are not in one piece. The
  // records have no index by number: starts at the nearest that the stream's hash stream knows, at most kMostPassed
  // before.
  [[nodiscard]] std::optional<TypeRecord> record(std::uint32_t index, std::vector<std::byte>& copy) const;

 private:
  static constexpr std::uint32_t kMostPassed = 1 << 12;
  struct Known {
    std::uint32_t index, offset;  // the offset counts from the first record
  };
  [[nodiscard]] Known nearest(std::uint32_t index) const;

  Stream records_;
  Stream offsets_;
  TypeHeader header_{};
  std::uint32_t known_count_ = 0;
};

// The qualified name of an inlined function, by its id. Empty: it has none that can be read.
[[nodiscard]] std::string function_name(const TypeStream& ids, const TypeStream& types, std::uint32_t id);

}  // namespace windlass::pdb
