// LLVM's stack maps. Source: "Stack maps and patch points in LLVM", "Stack Map Format", version 3.
#include <algorithm>
#include <tuple>

#include "managed/gc_roots.h"

namespace windlass::managed {
namespace {

struct Header {
  std::uint8_t version;
  std::uint8_t reserved[3];
  std::uint32_t functions;
  std::uint32_t constants;
  std::uint32_t records;
};
struct FunctionSize {
  std::uint64_t address;
  std::uint64_t stack_size;
  std::uint64_t records;
};
struct RecordHeader {
  std::uint64_t id;
  std::uint32_t offset;
  std::uint16_t reserved;
  std::uint16_t locations;
};
struct LocationBytes {
  std::uint8_t kind;
  std::uint8_t reserved0;
  std::uint16_t size;
  std::uint16_t reg;
  std::uint16_t reserved1;
  std::int32_t offset;
};
constexpr std::uint64_t kLiveOut = 4;

constexpr std::uint64_t aligned(std::uint64_t at) { return (at + 7) & ~std::uint64_t{7}; }

}  // namespace

// One map, of one object file; where it ends.
Expected<std::uint64_t> LlvmStackMaps::read_map(std::uint64_t at) {
  const auto header = section_.at<Header>(at);
  if (!header) return Failure(header.error());
  if (header->version != 3)
    return fail(ErrorCode::kUnsupported, "LLVM stack map is not of version 3", at, header->version);
  const std::uint64_t functions = at + sizeof(Header);
  std::uint64_t record =
      functions + header->functions * std::uint64_t{sizeof(FunctionSize)} + header->constants * std::uint64_t{8};
  std::uint64_t left = header->records;
  for (std::uint32_t i = 0; i < header->functions; ++i) {
    const auto function = section_.at<FunctionSize>(functions + i * std::uint64_t{sizeof(FunctionSize)});
    if (!function) return Failure(function.error());
    if (function->records > left)
      return fail(ErrorCode::kMalformed, "LLVM stack map's functions have more records than it has", functions, i);
    left -= function->records;
    for (std::uint64_t n = 0; n < function->records; ++n) {
      const auto its = section_.at<RecordHeader>(record);
      if (!its) return Failure(its.error());
      records_.push_back({function->address + its->offset, record});
      const std::uint64_t live_outs = aligned(record + sizeof(RecordHeader) + its->locations * kLocationSize) + 2;
      const auto count = section_.at<std::uint16_t>(live_outs);
      if (!count) return Failure(count.error());
      record = aligned(live_outs + 2 + *count * kLiveOut);
    }
  }
  if (left != 0) return fail(ErrorCode::kMalformed, "LLVM stack map has records of no function", at, left);
  return record;
}

Expected<LlvmStackMaps> LlvmStackMaps::open(std::span<const std::byte> section) {
  LlvmStackMaps maps;
  maps.section_ = ByteView(section.data(), section.size());
  for (std::uint64_t at = 0; at < section.size();) {
    const auto end = maps.read_map(at);
    if (!end) return Failure(end.error());
    at = *end;
  }
  for (const Record& record : maps.records_) maps.note_repeated(record);
  std::ranges::sort(maps.repeated_);
  std::ranges::sort(maps.records_, {}, &Record::address);
  return maps;
}

bool LlvmStackMaps::has(std::uint64_t return_address) const {
  return std::ranges::binary_search(records_, return_address, {}, &Record::address);
}

LlvmStackMaps::Location LlvmStackMaps::location(std::uint64_t at) const {
  const auto bytes = section_.at<LocationBytes>(at);
  if (!bytes) return {};
  return {static_cast<Location::Kind>(bytes->kind), bytes->reg, bytes->offset};
}

// Of the pairs with the same location one is shown, best the one that says that it is a reference itself: what is shown
// twice would be moved twice.
void LlvmStackMaps::note_repeated(const Record& record) {
  const auto pairs = pairs_of(record);
  if (!pairs) return;  // no statepoint
  struct Named {
    Location location;
    bool is_derived;
    std::uint64_t at;
    [[nodiscard]] auto order() const {
      return std::tuple(location.kind, location.reg, location.offset, is_derived, at);
    }
  };
  std::vector<Named> named;
  for (std::uint64_t i = 0; i < pairs->count; ++i) {
    const std::uint64_t at = pairs->first + 2 * i * kLocationSize;
    const Location derived = location(at + kLocationSize);
    named.push_back({derived, location(at) != derived, at});
  }
  std::ranges::sort(named, {}, &Named::order);
  for (std::size_t i = 1; i < named.size(); ++i)
    if (named[i].location == named[i - 1].location) repeated_.push_back(named[i].at);
}

Expected<LlvmStackMaps::Pairs> LlvmStackMaps::pairs_at(std::uint64_t return_address) const {
  const auto record = std::ranges::lower_bound(records_, return_address, {}, &Record::address);
  if (record == records_.end() || record->address != return_address)
    return fail(ErrorCode::kNotFound, "LLVM stack map has no record for this return address", return_address);
  return pairs_of(*record);
}

// Three constants (calling convention, flags, number of deoptimisation values), these values, then the pairs.
Expected<LlvmStackMaps::Pairs> LlvmStackMaps::pairs_of(const Record& record) const {
  const auto header = section_.at<RecordHeader>(record.at);
  if (!header) return Failure(header.error());
  constexpr std::uint64_t kConstants = 3;
  const std::uint64_t first = record.at + sizeof(RecordHeader);
  if (header->locations < kConstants)
    return fail(ErrorCode::kMalformed, "LLVM stack map's record is no statepoint", record.at);
  const Location deoptimisation = location(first + 2 * kLocationSize);
  const auto values = static_cast<std::uint32_t>(deoptimisation.offset);
  if (deoptimisation.kind != Location::kConstant || values > header->locations - kConstants ||
      (header->locations - kConstants - values) % 2 != 0)
    return fail(ErrorCode::kMalformed, "LLVM stack map's record is no statepoint", record.at, values);
  return Pairs{first + (kConstants + values) * kLocationSize, (header->locations - kConstants - values) / 2};
}

namespace {

using Location = LlvmStackMaps::Location;

// A reference lies at reg + offset (kIndirect) or in a register; a constant is null, and kDirect, the address of a
// stack slot, points to no object.
bool place_of(const Location& location, FramePlace& to) {
  if (location.kind == Location::kRegister)
    to = {FramePlace::kInRegister, location.reg, 0};
  else if (location.kind == Location::kIndirect)
    to = {FramePlace::kAtRegister, location.reg, location.offset};
  else
    return false;
  return true;
}

}  // namespace

Expected<void> LlvmStackMaps::each_root(const CrawlFrame& frame, const Memory& memory, RootSink sink) const {
  if (!frame.reports_roots) return {};
  const auto pairs = pairs_at(frame.pc().value());
  if (!pairs) return Failure(pairs.error());
  for (const bool derived_ones : {true, false})
    for (std::uint64_t i = 0; i < pairs->count; ++i) {
      const std::uint64_t pair = pairs->first + 2 * i * kLocationSize;
      const Location base = location(pair), derived = location(pair + kLocationSize);
      FramePlace at, of;
      if ((base != derived) != derived_ones || !place_of(derived, at) || !place_of(base, of) ||
          std::ranges::binary_search(repeated_, pair))
        continue;
      auto root = root_at(frame, memory, at);
      const auto its = root_at(frame, memory, of);
      if (!root) return Failure(root.error());
      if (!its) return Failure(its.error());
      root->derived = derived_ones;
      root->base = derived_ones ? its->value : 0;
      sink(*root);
    }
  return {};
}

}  // namespace windlass::managed
