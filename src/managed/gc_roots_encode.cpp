#include <algorithm>
#include <cstring>
#include <map>

#include "managed/gc_roots.h"

namespace windlass::managed {
namespace {

class Encoder {
 public:
  explicit Encoder(const StackMap& map) : map_(map) {}

  Expected<std::vector<std::byte>> run() {
    if (const auto done = collect(); !done) return Failure(done.error());
    return write();
  }

 private:
  static constexpr std::size_t kMost = 0xffff;

  Expected<std::uint16_t> number_of(const RootSlot& slot, std::uint32_t site) {
    const auto known = std::ranges::find(slots_, slot);
    const auto number = static_cast<std::size_t>(known - slots_.begin());
    if (known != slots_.end()) return static_cast<std::uint16_t>(number);
    if (slot.place.base == FramePlace::kNowhere || slot.place.reg > 0xff)
      return fail(ErrorCode::kMalformed, "root is nowhere", site, slot.place.reg);
    const std::int32_t words = slot.place.offset / 8;
    if (slot.place.offset % 8 != 0 || words != static_cast<std::int16_t>(words))
      return fail(ErrorCode::kOutOfRange, "root's offset is no multiple of 8, or too large", site,
                  static_cast<std::uint32_t>(slot.place.offset));
    if (number == kMost) return fail(ErrorCode::kLimit, "stack map has too many slots", site);
    slots_.push_back(slot);
    return static_cast<std::uint16_t>(number);
  }

  Expected<void> collect() {
    for (const RootSlot& slot : map_.always)
      if (const auto number = number_of(slot, 0); !number) return Failure(number.error());
    if (slots_.size() != map_.always.size())
      return fail(ErrorCode::kMalformed, "root is twice among those always live", 0);
    std::uint64_t next = 0;
    for (const RootSite& site : map_.sites) {
      if (site.offset < next) return fail(ErrorCode::kMalformed, "sites do not ascend", site.offset, next);
      if (site.offset > map_.code_size)
        return fail(ErrorCode::kMalformed, "site is outside of the code", site.offset, map_.code_size);
      next = std::uint64_t{site.offset} + 1;
      if (const auto done = collect(site); !done) return done;
    }
    // There are no more sets than sites, and no more derived slots than slots: none is derived twice.
    if (map_.sites.size() > kMost) return fail(ErrorCode::kLimit, "stack map has too many sites", map_.sites.size());
    return collect_derived();
  }

  Expected<void> collect(const RootSite& site) {
    std::vector<std::uint16_t> live;
    for (const RootSlot& slot : site.live) {
      const auto number = number_of(slot, site.offset);
      if (!number) return Failure(number.error());
      if (*number < map_.always.size() || std::ranges::find(live, *number) != live.end())
        return fail(ErrorCode::kMalformed, "root is twice among those live at a site", site.offset, *number);
      live.push_back(*number);
    }
    std::ranges::sort(live);
    const auto [set, is_new] = sets_.try_emplace(live, static_cast<std::uint32_t>(sets_.size()));
    if (is_new) in_order_.push_back(&set->first);
    set_of_.push_back(set->second);
    return {};
  }

  Expected<void> collect_derived() {
    for (const DerivedSlot& derived : map_.derived) {
      const auto slot = std::ranges::find(slots_, derived.slot), base = std::ranges::find(slots_, derived.base);
      if (slot == slots_.end() || base == slots_.end() || slot == base)
        return fail(ErrorCode::kMalformed, "derived root, or its base, is never live", 0);
      const DerivedBytes pair{static_cast<std::uint16_t>(slot - slots_.begin()),
                              static_cast<std::uint16_t>(base - slots_.begin())};
      for (std::size_t i = 0; i < map_.sites.size(); ++i) {
        const auto is_live = [&](unsigned number) {
          return number < map_.always.size() || std::ranges::binary_search(*in_order_[set_of_[i]], number);
        };
        if (is_live(pair.slot) && !is_live(pair.base))
          return fail(ErrorCode::kMalformed, "derived root is live without its base", map_.sites[i].offset, pair.slot);
      }
      derived_.push_back(pair);
    }
    std::ranges::sort(derived_, {}, &DerivedBytes::slot);
    for (std::size_t i = 0; i < derived_.size(); ++i)
      if ((i != 0 && derived_[i - 1].slot == derived_[i].slot) ||
          std::ranges::binary_search(derived_, derived_[i].base, {}, &DerivedBytes::slot))
        return fail(ErrorCode::kMalformed, "root is derived twice, or from a derived one", 0, derived_[i].slot);
    return {};
  }

  static unsigned width_of(std::uint64_t largest) { return largest <= 0xff ? 1 : largest <= 0xffff ? 2 : 4; }

  std::vector<std::byte> write() {
    const unsigned offset_width = width_of(map_.sites.empty() ? 0 : map_.sites.back().offset);
    const unsigned set_width = width_of(sets_.size());
    put(MapHeader{.widths = static_cast<std::uint8_t>(offset_width | set_width << 4),
                  .slots = static_cast<std::uint16_t>(slots_.size()),
                  .always = static_cast<std::uint16_t>(map_.always.size()),
                  .derived = static_cast<std::uint16_t>(derived_.size()),
                  .sites = static_cast<std::uint16_t>(map_.sites.size()),
                  .sets = static_cast<std::uint16_t>(sets_.size())});
    for (const RootSlot& slot : slots_)
      put(SlotBytes{static_cast<std::uint8_t>(slot.place.base | slot.interior << 3 | slot.pinned << 4),
                    static_cast<std::uint8_t>(slot.place.reg), static_cast<std::int16_t>(slot.place.offset / 8)});
    for (const DerivedBytes& derived : derived_) put(derived);
    for (const auto* set : in_order_) {
      std::vector<std::byte> bits((slots_.size() - map_.always.size() + 7) / 8);
      for (const unsigned number : *set) {
        const std::size_t bit = number - map_.always.size();
        bits[bit / 8] |= std::byte{1} << bit % 8;
      }
      out_.insert(out_.end(), bits.begin(), bits.end());
    }
    for (const RootSite& site : map_.sites) put_number(site.offset, offset_width);
    for (const std::uint32_t set : set_of_) put_number(set, set_width);
    return std::move(out_);
  }

  template <typename T>
  void put(const T& value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    out_.insert(out_.end(), bytes, bytes + sizeof value);
  }
  void put_number(std::uint32_t value, unsigned width) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    out_.insert(out_.end(), bytes, bytes + width);
  }

  const StackMap& map_;
  std::vector<RootSlot> slots_;  // those always live first
  std::vector<DerivedBytes> derived_;
  std::map<std::vector<std::uint16_t>, std::uint32_t> sets_;
  std::vector<const std::vector<std::uint16_t>*> in_order_;
  std::vector<std::uint32_t> set_of_;  // of each site
  std::vector<std::byte> out_;
};

}  // namespace

Expected<std::vector<std::byte>> encode(const StackMap& map) { return Encoder(map).run(); }

}  // namespace windlass::managed
