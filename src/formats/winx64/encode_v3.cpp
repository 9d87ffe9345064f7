// UNWIND_INFO version 3 as bytes. Source: "x64 unwind information v3", a preview.
#include <algorithm>
#include <iterator>

#include "formats/winx64/encode.h"

namespace windlass::winx64 {
namespace {

constexpr std::size_t kMaxOperations = 31, kMaxEpilogs = 7, kMaxPayload = 2 * 255;

class PayloadWriter {
 public:
  Expected<void> run(const InfoContent& content) {
    const bool large = (content.flags & kLarge) != 0;
    if (large) u8(content.prolog_size >> 8);
    if (const auto ok = offsets(content.codes, large); !ok) return ok;
    for (const UnwindCode& code : content.codes)
      if (const auto ok = descriptor(pool_, code); !ok) return ok;
    if (content.epilogs_v3.size() > kMaxEpilogs)
      return fail(ErrorCode::kOutOfRange, "version 3 describes at most 7 epilogues of an entry", content.prolog_size,
                  content.epilogs_v3.size());
    for (std::size_t i = 0; i < content.epilogs_v3.size(); ++i)
      if (const auto ok = epilog(content.epilogs_v3[i], i == 0 ? nullptr : &content.epilogs_v3[i - 1]); !ok) return ok;
    bytes_.insert(bytes_.end(), pool_.begin(), pool_.end());
    if (bytes_.size() % 2 != 0) u8(0);
    if (bytes_.size() > kMaxPayload)
      return fail(ErrorCode::kOutOfRange, "operations and epilogues of version 3 fill at most 510 bytes",
                  content.prolog_size, bytes_.size());
    return {};
  }
  [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  static void put(std::vector<std::byte>& to, std::uint32_t value, unsigned size) {
    for (unsigned i = 0; i < size; ++i) to.push_back(static_cast<std::byte>(value >> (8 * i) & 0xff));
  }
  void u8(std::uint32_t value) { put(bytes_, value & 0xff, 1); }

  Expected<void> offsets(const std::vector<UnwindCode>& codes, bool large) {
    if (codes.size() > kMaxOperations)
      return fail(ErrorCode::kOutOfRange, "version 3 has at most 31 operations of a prologue or epilogue",
                  codes.front().offset, codes.size());
    for (const UnwindCode& code : codes) {
      if (!large && code.offset > 0xff)
        return fail(ErrorCode::kOutOfRange, "an operation lies more than 255 bytes into its prologue or epilogue",
                    code.offset);
      put(bytes_, code.offset, large ? 2 : 1);
    }
    return {};
  }

  Expected<void> epilog(const EpilogContent& epilog, const EpilogContent* before) {
    if (epilog.codes.empty())
      return fail(ErrorCode::kMalformed, "an epilogue of version 3 has operations", epilog.begin);
    const std::int64_t offset = std::int64_t{epilog.begin} - (before != nullptr ? before->begin : 0);
    if (offset < 0 || offset > 0x7fff)
      return fail(ErrorCode::kOutOfRange, "an epilogue begins at most 32,767 bytes behind the one before",
                  epilog.begin);
    const std::uint32_t flags = (epilog.parent_transfer ? 1 : 0) | (epilog.large() ? 2 : 0);
    const auto first_op = place_of(epilog.codes);
    if (!first_op) return Failure(first_op.error());
    const bool same = before != nullptr && epilog.same_instructions(*before);
    u8(flags | (same ? 0 : static_cast<std::uint32_t>(epilog.codes.size()) << 3));
    put(bytes_, static_cast<std::uint32_t>(offset), 2);
    if (same) return {};
    put(bytes_, *first_op, 2);
    put(bytes_, epilog.last_instruction, epilog.large() ? 2 : 1);
    return offsets(epilog.codes, epilog.large());
  }

  // Where the descriptors stand in the pool: among those of the prologue, if these are the same.
  Expected<std::uint32_t> place_of(const std::vector<UnwindCode>& codes) {
    std::vector<std::byte> bytes;
    for (const UnwindCode& code : codes)
      if (const auto ok = descriptor(bytes, code); !ok) return Failure(ok.error());
    const auto found = std::search(pool_.begin(), pool_.end(), bytes.begin(), bytes.end());
    const auto place = static_cast<std::uint32_t>(found - pool_.begin());
    if (found == pool_.end()) pool_.insert(pool_.end(), bytes.begin(), bytes.end());
    return place;
  }

  static Expected<void> descriptor(std::vector<std::byte>& to, const UnwindCode& code) {
    const std::uint32_t value = code.value;
    const bool words = value % 8 == 0 && value / 8 <= 0xffff;
    switch (code.operation) {
      case Operation::kPushNonvol: put(to, 4U | code.info << 3, 1); return {};
      case Operation::kAllocSmall:
      case Operation::kAllocLarge:
      case Operation::kAllocHuge:
        if (words && value >= 8 && value <= 128) return put(to, 8U | (value / 8 - 1) << 4, 1), Expected<void>();
        if (words) return put(to, 2, 1), put(to, value / 8, 2), Expected<void>();
        put(to, 1, 1);
        put(to, value, 4);
        return {};
      case Operation::kSetFpreg:
        if (value % 16 != 0 || value > 240)
          return fail(ErrorCode::kOutOfRange, "the frame pointer's offset is a multiple of 16, at most 240",
                      code.offset, value);
        put(to, 0, 1);
        put(to, code.info | value / 16 << 4, 1);
        return {};
      case Operation::kSaveNonvol:
      case Operation::kSaveNonvolFar:
        if (words) return put(to, 6U | code.info << 3, 1), put(to, value / 8, 2), Expected<void>();
        put(to, 5U | code.info << 3, 1);
        put(to, value, 4);
        return {};
      case Operation::kSaveXmm128:
      case Operation::kSaveXmm128Far:
        if (value % 16 == 0 && value / 16 <= 0xffff)
          return put(to, 10U | code.info << 4, 1), put(to, value / 16, 2), Expected<void>();
        put(to, 9U | code.info << 4, 1);
        put(to, value, 4);
        return {};
      case Operation::kPushCanonicalFrame:
        put(to, 3, 1);
        put(to, code.info, 1);
        return {};
      default:
        return fail(ErrorCode::kUnsupported, "operation is none that version 3 writes", code.offset,
                    static_cast<std::uint64_t>(code.operation));
    }
  }

  std::vector<std::byte> bytes_, pool_;
};

}  // namespace

bool EpilogContent::same_instructions(const EpilogContent& other) const {
  const auto same = [](const UnwindCode& a, const UnwindCode& b) {
    return a.offset == b.offset && a.operation == b.operation && a.info == b.info && a.value == b.value;
  };
  return last_instruction == other.last_instruction && parent_transfer == other.parent_transfer &&
         std::equal(codes.begin(), codes.end(), other.codes.begin(), other.codes.end(), same);
}

Expected<std::vector<std::byte>> encode_v3(const InfoContent& content) {
  PayloadWriter payload;
  if (const auto ok = payload.run(content); !ok) return Failure(ok.error());
  const auto u8 = [](std::size_t value) { return static_cast<std::byte>(value & 0xff); };
  std::vector<std::byte> bytes = {u8(3 | content.flags << 3), u8(content.prolog_size), u8(payload.bytes().size() / 2),
                                  u8(content.codes.size() | content.epilogs_v3.size() << 5)};
  std::ranges::copy(payload.bytes(), std::back_inserter(bytes));
  bytes.resize((bytes.size() + 3) / 4 * 4);
  append_chain_or_handler(content, bytes);
  return bytes;
}

}  // namespace windlass::winx64
