#include "formats/pdb/publics.h"

namespace windlass::pdb {

Publics::Publics(const MsfFile& file, const DbiHeader& header)
    : map_(file.stream(header.publics_stream)), records_(file.stream(header.symbols_stream)) {
  const auto publics = map_.at<PublicsHeader>(0);
  if (!publics) return;
  map_offset_ = sizeof(PublicsHeader) + std::uint64_t{publics->hash_size};
  if (map_offset_ + publics->address_map_size <= map_.size()) count_ = publics->address_map_size / 4;
}

std::optional<PublicSymbol> Publics::symbol(std::uint32_t index, bool with_name) const {
  const auto at = map_.at<std::uint32_t>(map_offset_ + std::uint64_t{index} * 4);
  if (!at) return std::nullopt;
  const auto header = records_.at<RecordHeader>(*at);
  const auto record = records_.at<PublicRecord>(std::uint64_t{*at} + sizeof(RecordHeader));
  if (!header || !record || static_cast<SymbolKind>(header->kind) != SymbolKind::kPublic) return std::nullopt;
  PublicSymbol found{{record->section, record->offset}, record->flags, {}};
  if (with_name) found.name = records_.string_at(std::uint64_t{*at} + sizeof(RecordHeader) + kPublicName);
  return found;
}

std::optional<PublicSymbol> Publics::nearest(SectionOffset place, bool any) const {
  std::uint32_t begin = 0, end = count_;
  while (begin < end) {
    const std::uint32_t middle = begin + (end - begin) / 2;
    const auto found = symbol(middle, false);
    if (!found) return std::nullopt;
    if (found->place <= place)
      begin = middle + 1;
    else
      end = middle;
  }
  // Several symbols may be at one address: the first is named. Data between functions (jump tables) is passed.
  constexpr std::uint32_t kMostPassed = 64;
  std::optional<std::uint32_t> best;
  SectionOffset best_place;
  for (std::uint32_t passed = 0; begin > 0 && passed < kMostPassed; ++passed, --begin) {
    const auto found = symbol(begin - 1, false);
    if (!found || found->place > place || found->place.section != place.section || (best && found->place != best_place))
      break;
    if (!any && (found->flags & (kPublicCode | kPublicFunction)) == 0) continue;
    best = begin - 1;
    best_place = found->place;
  }
  return best ? symbol(*best, true) : std::nullopt;
}

void Publics::each_place(FunctionRef<void(SectionOffset)> add) const {
  for (std::uint32_t i = 0; i < count_; ++i)
    if (const auto found = symbol(i, false)) add(found->place);
}

}  // namespace windlass::pdb
