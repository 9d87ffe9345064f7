#include "runtimes/hotspot/continuation.h"

#include <algorithm>
#include <cstring>

namespace windlass::runtimes::hotspot {
namespace {

// sub rsp, BYTES; mov rax, [r15 + FIELD]; mov [rsp + PARENT], rax; mov [r15 + FIELD], rsp
struct [[gnu::packed]] Setup {
  std::uint8_t room[3], bytes;
  std::uint8_t load[3];
  std::uint32_t loaded;
  std::uint8_t link[4], parent;
  std::uint8_t store[3];
  std::uint32_t stored;
};
constexpr std::uint8_t kRoom[] = {0x48, 0x83, 0xec}, kLoad[] = {0x49, 0x8b, 0x87}, kLink[] = {0x48, 0x89, 0x44, 0x24},
                       kStore[] = {0x49, 0x89, 0xa7};

}  // namespace

std::optional<Continuation> continuation_entered_by(std::span<const std::byte> code) {
  constexpr std::uint32_t kMostField = 1U << 16;
  Setup at;
  for (std::size_t i = 0; i + sizeof at <= code.size(); ++i) {
    if (code[i] != std::byte{kRoom[0]}) continue;
    std::memcpy(&at, &code[i], sizeof at);
    if (std::ranges::equal(at.room, kRoom) && std::ranges::equal(at.load, kLoad) &&
        std::ranges::equal(at.link, kLink) && std::ranges::equal(at.store, kStore) && at.loaded == at.stored &&
        at.loaded != 0 && at.loaded < kMostField && at.bytes % 8 == 0 && at.bytes != 0 && at.bytes < 0x80)
      return Continuation{at.loaded, at.bytes};
  }
  return std::nullopt;
}

}  // namespace windlass::runtimes::hotspot
