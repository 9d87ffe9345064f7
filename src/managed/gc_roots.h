// The encoding of a stack map. Everything is little-endian and unaligned.
//
//   u8   version, 1
//   u8   bytes of a site's offset (low half), and of the number of its set (high half): 1, 2 or 4
//   u16  slots; u16 of these always live, the first ones; u16 derived; u16 sites; u16 sets
//   4    a slot: u8 FramePlace::Base | interior << 3 | pinned << 4, u8 register, i16 offset / 8
//   4    a derived slot: u16 slot, u16 slot of its base, which is not derived; ascending by slot
//   n    a set: a bit for each slot that is not always live
//        offsets of the sites; numbers of their sets
#pragma once

#include <optional>

#include "windlass/bytes.h"
#include "windlass/managed/gc_roots.h"

namespace windlass::managed {

struct MapHeader {
  static constexpr std::uint8_t kVersion = 1;
  std::uint8_t version = kVersion;
  std::uint8_t widths = 0;
  std::uint16_t slots = 0;
  std::uint16_t always = 0;
  std::uint16_t derived = 0;
  std::uint16_t sites = 0;
  std::uint16_t sets = 0;
};
static_assert(sizeof(MapHeader) == 12);

struct SlotBytes {
  std::uint8_t kind;
  std::uint8_t reg;
  std::int16_t words;
};
struct DerivedBytes {
  std::uint16_t slot;
  std::uint16_t base;
};

// Where a place of a frame is, and what it holds. Errors as CrawlFrame::value()'s.
[[nodiscard]] Expected<Root> root_at(const CrawlFrame& frame, const Memory& memory, const FramePlace& place);

// Looks things up in an encoded map.
class MapReader {
 public:
  // Checks that all parts are there.
  [[nodiscard]] static Expected<MapReader> open(std::span<const std::byte> bytes);

  [[nodiscard]] unsigned slots() const { return header_.slots; }
  [[nodiscard]] unsigned always() const { return header_.always; }
  [[nodiscard]] unsigned derived() const { return header_.derived; }
  [[nodiscard]] Expected<RootSlot> slot(unsigned index) const;
  [[nodiscard]] DerivedBytes derived(unsigned index) const;
  [[nodiscard]] bool is_derived(unsigned slot) const;  // logarithmic
  // The set of a site; nothing where there is none at this offset.
  [[nodiscard]] std::optional<unsigned> set_at(std::uint64_t offset) const;
  [[nodiscard]] bool live(unsigned slot, unsigned set) const;

 private:
  explicit MapReader(std::span<const std::byte> bytes) : bytes_(bytes.data(), bytes.size()) {}
  [[nodiscard]] std::uint32_t number(std::uint64_t array, unsigned width, unsigned index) const;

  ByteView bytes_;
  MapHeader header_;
  unsigned offset_width_ = 0, set_width_ = 0, set_bytes_ = 0;
  std::uint64_t derived_at_ = 0, sets_at_ = 0, offsets_at_ = 0, numbers_at_ = 0;
};

}  // namespace windlass::managed
