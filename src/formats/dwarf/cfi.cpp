#include "formats/dwarf/cfi.h"

#include <algorithm>

#include "formats/dwarf/cfi_entry.h"
#include "formats/dwarf/misplaced_epilogue.h"

namespace windlass::dwarf {
namespace {

// Against FDEs that each name another "CIE": the largest programs have one a compilation unit, tens of thousands.
constexpr std::size_t kMaxCies = std::size_t{1} << 20;

}  // namespace

EntryParser CfiReader::parser() const { return EntryParser(section_); }

CfiReader::Step CfiReader::next_header(EntryHeader& header) {
  const std::uint64_t size = section_.bytes.size();
  const std::uint8_t* base = section_.bytes.u8();
  while (size - position_ >= 4 && load<std::uint32_t>(base + position_) == 0) {
    // A terminator. Linkers put crtend.o's terminator last, but `ld -r` and concatenation leave some in the middle. If
    // the section's size is known, everything behind a terminator counts, as in readelf and gimli. Otherwise the
    // terminator is the only known end.
    position_ += 4;
    if (section_.stop_at_terminator) {
      position_ = size;
      return Step::kEnd;
    }
  }
  if (position_ >= size) return Step::kEnd;
  if (size - position_ >= 8 && !section_.is_debug_frame) [[likely]] {
    // What header_at would say of nearly every entry.
    const std::uint64_t length = load<std::uint32_t>(base + position_);
    if (length >= 4 && length < 0xfffffff0 && length <= size - position_ - 4) [[likely]] {
      const std::uint64_t id = load<std::uint32_t>(base + position_ + 4);
      header = EntryHeader{position_, position_ + 4, position_ + 8, position_ + 4 + length, id, false, id == 0};
      position_ = header.end;
      return Step::kEntry;
    }
  }
  auto parsed = parser().header_at(position_);
  if (parsed) {
    header = *parsed;
    position_ = header.end;
    return Step::kEntry;
  }
  // Too short an entry still says where the next one is; the other errors leave no way to find it.
  if (parsed.error().code == ErrorCode::kMalformed && parsed.error().detail < 8) {
    const bool is_64bit = load<std::uint32_t>(base + position_) == 0xffffffff;
    position_ += parsed.error().detail + (is_64bit ? 12 : 4);
  } else {
    const bool padding =
        size - position_ < 4 && std::all_of(base + position_, base + size, [](auto b) { return b == 0; });
    position_ = size;
    if (padding) return Step::kEnd;
  }
  report_(parsed.error());
  return Step::kError;
}

Expected<const Cie*> CfiReader::cached_cie(std::uint64_t offset) {
  if (const auto found = by_offset_.find(offset); found != by_offset_.end()) {
    if (found->second == nullptr) return parser().error(ErrorCode::kMalformed, "the CIE is malformed", offset);
    last_cie_ = found->second;
    return last_cie_;
  }
  if (by_offset_.size() >= kMaxCies) return parser().error(ErrorCode::kLimit, "too many CIEs", offset, kMaxCies);
  const auto header = parser().header_at(offset);
  auto parsed = !header          ? Expected<Cie>(Failure(header.error()))
                : header->is_cie ? parser().parse_cie(*header)
                                 : Expected<Cie>(parser().error(ErrorCode::kMalformed, "not a CIE", offset));
  if (!parsed) {
    by_offset_.emplace(offset, nullptr);
    return Failure(parsed.error());
  }
  parsed->index = static_cast<std::uint32_t>(cies_.size());
  last_cie_ = &cies_.emplace_back(*parsed);
  by_offset_.emplace(offset, last_cie_);
  return last_cie_;
}

bool CfiReader::parse_fde(const EntryHeader& header, Fde& fde, Error& problem) {
  std::uint64_t cie_offset = 0;
  if (!parser().cie_offset(header, cie_offset, problem)) return false;
  if (last_cie_ == nullptr || last_cie_->offset != cie_offset) {
    if (!cached_cie(cie_offset)) {
      problem = parser().error(ErrorCode::kMalformed, "FDE without a usable CIE", header.offset, cie_offset).error();
      return false;
    }
  }
  if (!parser().parse_fde(header, *last_cie_, fde, problem, report_)) return false;
  if (!section_.text.empty()) fde.instructions = without_misplaced_epilogue(section_, fde);
  return true;
}

// The next entry that is sound; `cie` is null where it is an FDE.
bool CfiReader::next(const Cie*& cie, Fde& fde) {
  for (;;) {
    EntryHeader header;
    const Step step = next_header(header);
    if (step == Step::kEnd) return false;
    if (step == Step::kError) continue;
    Error problem;
    if (!header.is_cie) {
      cie = nullptr;
      if (parse_fde(header, fde, problem)) return true;
    } else if (const auto found = cached_cie(header.offset)) {
      cie = *found;
      return true;
    } else {
      problem = found.error();
    }
    report_(problem);
  }
}

// Reads an FDE of the usual form in one go. Returns false for any other form, with nothing done.
bool CfiReader::next_usual_fde(Fde& fde) {
  if (last_cie_ == nullptr || !parser().parse_usual_fde(position_, *last_cie_, fde)) return false;
  position_ = fde.instructions.origin() - section_.bytes.origin() + fde.instructions.size();
  return true;
}

bool CfiReader::next_fde(Fde& fde) {
  if (next_usual_fde(fde)) [[likely]]
    return true;
  const Cie* cie = nullptr;
  while (next(cie, fde)) {
    if (cie == nullptr) return true;
  }
  return false;
}

bool CfiReader::next(Entry& entry) { return next(entry.cie, entry.fde); }

Expected<Fde> CfiReader::fde_at(std::uint64_t offset) {
  const auto header = parser().header_at(offset);
  if (!header) return Failure(header.error());
  if (header->is_cie) return parser().error(ErrorCode::kMalformed, "a CIE where an FDE is expected", offset);
  Fde fde;
  Error problem;
  if (!parse_fde(*header, fde, problem)) return Failure(problem);
  return fde;
}

}  // namespace windlass::dwarf
