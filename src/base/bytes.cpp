#include "windlass/bytes.h"

namespace windlass {

[[gnu::hot]] Expected<std::uint64_t> ByteCursor::uleb() {
  std::uint64_t value = 0;
  const std::uint8_t* data = view_.u8();
  for (std::uint64_t at = position_, shift = 0; at < view_.size(); ++at, shift += 7) {
    const std::uint64_t bits = data[at] & 0x7f;
    if (shift >= 64 ? bits != 0 : (bits << shift) >> shift != bits)
      return fail(ErrorCode::kMalformed, "ULEB128 does not fit 64 bits", origin());
    if (shift < 64) value |= bits << shift;
    if ((data[at] & 0x80) == 0) {
      position_ = at + 1;
      return value;
    }
  }
  return fail(ErrorCode::kTruncated, "ULEB128 reaches past the end", origin());
}

[[gnu::hot]] Expected<std::int64_t> ByteCursor::sleb() {
  std::uint64_t value = 0;
  const std::uint8_t* data = view_.u8();
  for (std::uint64_t at = position_, shift = 0; at < view_.size(); ++at, shift += 7) {
    const std::uint64_t bits = data[at] & 0x7f;
    if (shift < 63) {
      value |= bits << shift;
    } else {
      // Bit 63 and everything above it must be copies of the sign.
      if (bits != 0 && bits != 0x7f) return fail(ErrorCode::kMalformed, "SLEB128 does not fit 64 bits", origin());
      if (shift == 63) value |= bits << 63;
      if (shift > 63 && ((value >> 63) != 0) != (bits != 0))
        return fail(ErrorCode::kMalformed, "SLEB128 does not fit 64 bits", origin());
    }
    if ((data[at] & 0x80) == 0) {
      position_ = at + 1;
      if (shift < 57 && (bits & 0x40) != 0) value |= ~std::uint64_t{0} << (shift + 7);
      return static_cast<std::int64_t>(value);
    }
  }
  return fail(ErrorCode::kTruncated, "SLEB128 reaches past the end", origin());
}

}  // namespace windlass
