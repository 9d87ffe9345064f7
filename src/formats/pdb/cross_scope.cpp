#include "formats/pdb/cross_scope.h"

#include "formats/pdb/format.h"
#include "formats/pdb/subsections.h"

namespace windlass::pdb {

CrossScope::CrossScope(ByteView subsections) {
  each_subsection(subsections, [&](std::uint32_t kind, ByteView bytes) {
    if (kind == kCrossScopeImports) imports_ = bytes;
    if (kind == kCrossScopeExports) exports_ = bytes;
  });
}

std::optional<CrossScope::Import> CrossScope::import(std::uint32_t id) const {
  const std::uint32_t module = id >> 20 & 0x7ff, index = id & 0xf'ffff;
  ByteCursor cursor(imports_);
  for (std::uint32_t i = 0;; ++i) {
    const auto name = cursor.read<std::uint32_t>();
    const auto count = cursor.read<std::uint32_t>();
    if (!name || !count) return std::nullopt;
    const auto ids = cursor.bytes(std::uint64_t{*count} * 4);
    if (!ids) return std::nullopt;
    if (i != module) continue;
    const auto found = ids->at<std::uint32_t>(std::uint64_t{index} * 4);
    return found ? std::optional(Import{*name, *found}) : std::nullopt;
  }
}

std::optional<std::uint32_t> CrossScope::exported(std::uint32_t id) const {
  struct Pair {
    std::uint32_t local, global;
  };
  for (std::uint64_t at = 0; const auto pair = exports_.at<Pair>(at); at += sizeof(Pair))
    if (pair->local == id) return pair->global;
  return std::nullopt;
}

}  // namespace windlass::pdb
