#include "runtimes/v8/positions.h"

#include <algorithm>

namespace windlass::runtimes::v8 {
namespace {

// Seven bits a byte, least significant first.
class Numbers {
 public:
  explicit Numbers(std::span<const std::byte> bytes) : bytes_(bytes) {}
  [[nodiscard]] bool at_end() const { return at_ == bytes_.size(); }
  [[nodiscard]] std::optional<std::uint64_t> next() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 63 && at_ < bytes_.size(); shift += 7) {
      const auto byte = static_cast<std::uint8_t>(bytes_[at_++]);
      value |= std::uint64_t{byte & 0x7fU} << shift;
      if ((byte & 0x80) == 0) return value;
    }
    return std::nullopt;
  }

 private:
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
};

std::int64_t with_sign(std::uint64_t value) {
  return static_cast<std::int64_t>(value >> 1) ^ -static_cast<std::int64_t>(value & 1);
}

std::int64_t distance(std::uint64_t by, PositionForm form) {
  if (form == PositionForm::kTwoBits) return static_cast<std::int64_t>(by >> 2);
  if (form == PositionForm::kThreeBits) return static_cast<std::int64_t>(by >> 3);
  const std::int64_t signed_by = with_sign(by);
  return signed_by >= 0 ? signed_by : -(signed_by + 1);
}

}  // namespace

SourcePosition unpacked(std::int64_t code, std::uint64_t raw) {
  constexpr std::uint64_t kExternal = 1;  // of code that is no script's
  const auto offset = static_cast<std::int32_t>(raw >> 1 & 0x3fff'ffff),
             inlining = static_cast<std::int32_t>(raw >> 31 & 0xffff);
  return {code, (raw & kExternal) != 0 ? -1 : offset - 1, inlining - 1};
}

std::optional<std::vector<SourcePosition>> read_positions(std::span<const std::byte> table, PositionForm form) {
  constexpr std::int64_t kFarthest = 0x7fff'ffff;
  std::vector<SourcePosition> found;
  Numbers numbers(table);
  std::int64_t code = form == PositionForm::kSignFromZero ? 0 : -1, raw = 0;
  while (!numbers.at_end()) {
    const auto by = numbers.next(), raw_by = numbers.next();
    if (!by || !raw_by || *by > std::uint64_t{kFarthest} * 8) return std::nullopt;
    code += distance(*by, form);
    raw = static_cast<std::int64_t>(static_cast<std::uint64_t>(raw) + static_cast<std::uint64_t>(with_sign(*raw_by)));
    if (code > kFarthest || raw < 0) return std::nullopt;
    found.push_back(unpacked(code, static_cast<std::uint64_t>(raw)));
  }
  return found;
}

const SourcePosition* position_at(const std::vector<SourcePosition>& table, std::int64_t code) {
  const auto after = std::ranges::upper_bound(table, code, {}, &SourcePosition::code);
  return after != table.begin() ? &*std::prev(after) : nullptr;
}

std::optional<std::uint32_t> bytecode_at(std::span<const std::byte> table, std::uint64_t pc,
                                         std::span<const std::byte> bytecodes, std::span<const std::uint8_t> sizes) {
  constexpr std::size_t kWide = 0, kExtraWide = 1;  // interpreter/bytecodes.h: the first four are prefixes
  constexpr std::size_t kPrefixes = 4;
  const std::size_t kinds = sizes.size() / 3;
  Numbers numbers(table);
  const auto entry = numbers.next();
  if (!entry || pc <= *entry) return std::nullopt;
  std::uint64_t end = *entry;
  for (std::size_t at = 0; at < bytecodes.size();) {
    const auto length = numbers.next();
    if (!length || *length > std::uint64_t{1} << 32) return std::nullopt;
    end += *length;
    if (pc <= end) return static_cast<std::uint32_t>(at);
    std::size_t scale = 0, prefix = 0;
    auto code = static_cast<std::size_t>(bytecodes[at]);
    if (code < kPrefixes) {
      scale = code % 2 == kWide ? 1 : code % 2 == kExtraWide ? 2 : 0;
      prefix = 1;
      if (at + 1 >= bytecodes.size()) return std::nullopt;
      code = static_cast<std::size_t>(bytecodes[at + 1]);
    }
    if (code >= kinds || sizes[scale * kinds + code] == 0) return std::nullopt;
    at += prefix + sizes[scale * kinds + code];
  }
  return std::nullopt;
}

}  // namespace windlass::runtimes::v8
