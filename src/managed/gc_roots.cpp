#include "managed/gc_roots.h"

#include <cstring>

namespace windlass::managed {

// ---- the encoding -------------------------------------------------------------------------------------------------

Expected<MapReader> MapReader::open(std::span<const std::byte> bytes) {
  MapReader reader(bytes);
  const auto header = reader.bytes_.at<MapHeader>(0);
  if (!header) return Failure(header.error());
  if (header->version != MapHeader::kVersion)
    return fail(ErrorCode::kUnsupported, "stack map is of another version", 0, header->version);
  reader.header_ = *header;
  reader.offset_width_ = header->widths & 15U;
  reader.set_width_ = header->widths >> 4;
  const auto is_width = [](unsigned width) { return width == 1 || width == 2 || width == 4; };
  if (!is_width(reader.offset_width_) || !is_width(reader.set_width_) || header->always > header->slots)
    return fail(ErrorCode::kMalformed, "stack map's header contradicts itself", 0, header->widths);
  reader.set_bytes_ = (header->slots - header->always + 7U) / 8;
  reader.derived_at_ = sizeof(MapHeader) + std::uint64_t{header->slots} * sizeof(SlotBytes);
  reader.sets_at_ = reader.derived_at_ + std::uint64_t{header->derived} * sizeof(DerivedBytes);
  reader.offsets_at_ = reader.sets_at_ + std::uint64_t{header->sets} * reader.set_bytes_;
  reader.numbers_at_ = reader.offsets_at_ + std::uint64_t{header->sites} * reader.offset_width_;
  const std::uint64_t end = reader.numbers_at_ + std::uint64_t{header->sites} * reader.set_width_;
  if (end > bytes.size()) return fail(ErrorCode::kTruncated, "stack map ends before its last site", bytes.size(), end);
  return reader;
}

inline std::uint32_t MapReader::number(std::uint64_t array, unsigned width, unsigned index) const {
  const std::byte* at = bytes_.data() + array + std::uint64_t{index} * width;
  const auto read = [&]<typename Word>(Word value) -> std::uint32_t {
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  return width == 1 ? read(std::uint8_t{}) : width == 2 ? read(std::uint16_t{}) : read(std::uint32_t{});
}

Expected<RootSlot> MapReader::slot(unsigned index) const {
  const auto bytes = bytes_.at<SlotBytes>(sizeof(MapHeader) + std::uint64_t{index} * sizeof(SlotBytes));
  if (!bytes) return Failure(bytes.error());
  const unsigned base = bytes->kind & 7U;
  if (base == FramePlace::kNowhere || base > FramePlace::kAtRegister)
    return fail(ErrorCode::kMalformed, "stack map's slot is nowhere", index, bytes->kind);
  return RootSlot{.place = {static_cast<FramePlace::Base>(base), bytes->reg, bytes->words * 8},
                  .interior = (bytes->kind & 8U) != 0,
                  .pinned = (bytes->kind & 16U) != 0};
}

DerivedBytes MapReader::derived(unsigned index) const {
  DerivedBytes pair;
  std::memcpy(&pair, bytes_.data() + derived_at_ + std::uint64_t{index} * sizeof pair, sizeof pair);
  return pair;
}

bool MapReader::is_derived(unsigned slot) const {
  unsigned begin = 0, end = header_.derived;
  while (begin < end) {
    const unsigned middle = (begin + end) / 2;
    if (derived(middle).slot < slot)
      begin = middle + 1;
    else
      end = middle;
  }
  return begin != header_.derived && derived(begin).slot == slot;
}

std::optional<unsigned> MapReader::set_at(std::uint64_t offset) const {
  unsigned begin = 0, end = header_.sites;
  while (begin < end) {
    const unsigned middle = (begin + end) / 2;
    if (number(offsets_at_, offset_width_, middle) < offset)
      begin = middle + 1;
    else
      end = middle;
  }
  if (begin == header_.sites || number(offsets_at_, offset_width_, begin) != offset) return std::nullopt;
  const std::uint32_t set = number(numbers_at_, set_width_, begin);
  if (set >= header_.sets) return std::nullopt;
  return set;
}

bool MapReader::live(unsigned slot, unsigned set) const {
  if (slot < header_.always) return true;
  const unsigned bit = slot - header_.always;
  const std::uint64_t at = sets_at_ + std::uint64_t{set} * set_bytes_ + bit / 8;
  return (static_cast<unsigned>(bytes_.data()[at]) >> bit % 8 & 1) != 0;
}

// ---- frames -------------------------------------------------------------------------------------------------------

Expected<Root> root_at(const CrawlFrame& frame, const Memory& memory, const FramePlace& place) {
  const auto value = frame.value(memory, place);
  if (!value) return Failure(value.error());
  Root root{.value = *value, .reg = place.reg};
  const auto offset = static_cast<std::uint64_t>(std::int64_t{place.offset});
  switch (place.base) {
    case FramePlace::kNowhere: break;
    case FramePlace::kInRegister: root.address = frame.saved.at(frame.registers, place.reg); break;
    case FramePlace::kAtCfa: root.address = frame.cfa + offset; break;
    case FramePlace::kAtSp: root.address = frame.registers.sp() + offset; break;
    case FramePlace::kAtRegister: root.address = frame.registers.get(place.reg) + offset; break;
  }
  return root;
}

namespace {

class MethodRoots {
 public:
  MethodRoots(const CrawlFrame& frame, const Memory& memory, const MapReader& map, RootSink sink)
      : frame_(frame), memory_(memory), map_(map), sink_(sink) {}

  Expected<void> run() {
    if (!frame_.faulted) {
      const std::uint64_t pc = frame_.pc().value();
      set_ = map_.set_at(pc - frame_.method->begin);
      if (!set_) return fail(ErrorCode::kNotFound, "stack map has no site here", pc, frame_.method->begin);
    }
    // A derived one first: its base is not moved yet.
    for (unsigned i = 0; i < map_.derived(); ++i) {
      const DerivedBytes pair = map_.derived(i);
      if ((i != 0 && map_.derived(i - 1).slot >= pair.slot) || map_.is_derived(pair.base))
        return fail(ErrorCode::kMalformed, "stack map's derived slots do not ascend, or have derived bases", i);
      if (const auto done = show_derived(pair); !done) return done;
    }
    for (unsigned slot = 0; slot < map_.slots(); ++slot) {
      if (!is_live(slot) || map_.is_derived(slot)) continue;
      const auto root = root_of(slot);
      if (!root) return Failure(root.error());
      sink_(*root);
    }
    return {};
  }

 private:
  [[nodiscard]] bool is_live(unsigned slot) const {
    return slot < map_.always() || (set_ && slot < map_.slots() && map_.live(slot, *set_));
  }
  [[nodiscard]] Expected<Root> root_of(unsigned number) const {
    const auto slot = map_.slot(number);
    if (!slot) return Failure(slot.error());
    auto root = root_at(frame_, memory_, slot->place);
    if (!root) return root;
    root->interior = slot->interior;
    root->pinned = slot->pinned;
    return root;
  }
  Expected<void> show_derived(const DerivedBytes& pair) const {
    if (!is_live(pair.slot)) return {};
    auto root = root_of(pair.slot);
    const auto base = root_of(pair.base);
    if (!root) return Failure(root.error());
    if (!base) return Failure(base.error());
    root->derived = true;
    root->base = base->value;
    sink_(*root);
    return {};
  }

  const CrawlFrame& frame_;
  const Memory& memory_;
  const MapReader& map_;
  RootSink sink_;
  std::optional<unsigned> set_;
};

Expected<void> protected_roots(const FrameView& frame, const Memory& memory, RootSink sink) {
  if ((frame.attributes & kFrameAborted) != 0) return {};
  constexpr std::uint32_t kMost = 1U << 20;
  if (frame.reference_count > kMost)
    return fail(ErrorCode::kLimit, "explicit frame protects too many references", frame.address, frame.reference_count);
  for (std::uint32_t i = 0; i < frame.reference_count; ++i) {
    Root root;
    std::uint64_t word = 0;
    const std::uint64_t at = frame.references + std::uint64_t{i} * sizeof word;
    const bool known = memory.read(at, &word, sizeof word);
    root.interior = (word & kInterior) != 0;
    root.pinned = (word & kPinned) != 0;
    root.address = word & ~(kInterior | kPinned);
    if (!known || !memory.read(root.address, &root.value, sizeof root.value))
      return fail(ErrorCode::kUnreadable, "explicit frame's reference is not readable", at, i);
    sink(root);
  }
  return {};
}

}  // namespace

Expected<void> each_root(const CrawlFrame& frame, const Memory& memory, RootSink sink) {
  switch (frame.state) {
    case CrawlState::kFrameless: {
      if (!frame.reports_roots || frame.method->roots.empty()) return {};
      const auto map = MapReader::open(frame.method->roots);
      if (!map) return Failure(map.error());
      return MethodRoots(frame, memory, *map, sink).run();
    }
    case CrawlState::kFrameFunction:
    case CrawlState::kSkippedFrame: return protected_roots(frame.frame, memory, sink);
    case CrawlState::kNoFrameTransition: {
      Root root{.address = frame.exception + offsetof(ExceptionRecord, object)};
      if (!memory.read(root.address, &root.value, sizeof root.value))
        return fail(ErrorCode::kUnreadable, "exception record is not readable", root.address);
      sink(root);
      return {};
    }
    default: return {};
  }
}

Expected<void> each_root(const CrawlFrame& frame, const ManagedThread& thread, RootSink sink) {
  const Memory& memory = thread.space->memory();
  if (const auto done = each_root(frame, memory, sink); !done) return done;
  const bool explicit_frame = frame.state == CrawlState::kFrameFunction || frame.state == CrawlState::kSkippedFrame;
  if (!explicit_frame || frame.frame.kind != FrameKind::kTransition || (frame.frame.attributes & kFrameAborted) != 0)
    return {};
  return thread.runtime->each_argument(frame, memory, sink);
}

Expected<void> each_root(const ManagedThread& thread, const Registers& registers, WalkFlags flags, RootSink sink) {
  ManagedWalker walker(thread, registers,
                       flags | kGcFuncletReferences | kHandleSkippedFrames | kNotifyOnNoFrameTransitions);
  while (walker.next())
    if (const auto done = each_root(walker.frame(), thread, sink); !done) return done;
  if (walker.error()) return Failure(*walker.error());
  return {};
}

}  // namespace windlass::managed
