// Hand-written code of x86-64 that sets rbp by `lea rbp, [rsp + D]` and then says that its CFA counts from rbp as it
// did from rsp: D too far up. Wine 8's call_user_mode_callback.
#pragma once

#include <cstdint>

#include "windlass/bytes.h"

namespace windlass::flow {

inline constexpr std::size_t kLongestFrameAddress = 8;

// D of the instruction that ends where `code` does; 0: it is another one. Thread-safe, no allocation.
[[nodiscard]] inline std::int32_t frame_address_at_end(ByteView code) {
  const auto is_lea = [&](std::uint64_t at, std::uint8_t modrm) {  // of rbp, with a base of rsp (Intel SDM 2A, 2.1.5)
    const std::uint8_t* bytes = code.u8() + at;
    return bytes[0] == 0x48 && bytes[1] == 0x8d && bytes[2] == modrm && bytes[3] == 0x24;
  };
  const std::uint64_t size = code.size();
  if (size >= 8 && is_lea(size - 8, 0xac)) return *code.at<std::int32_t>(size - 4);
  if (size >= 5 && is_lea(size - 5, 0x6c)) return *code.at<std::int8_t>(size - 1);
  return 0;
}

}  // namespace windlass::flow
