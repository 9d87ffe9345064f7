// UNWIND_INFO version 3 ("x64 unwind information v3", preview of May 2026): operations stand as descriptors of 1 to 5
// bytes in a pool, and epilogues are described like prologues.
#include "formats/winx64/read.h"

namespace windlass::winx64 {
namespace {

enum EpilogFlag : std::uint8_t { kParentTransfer = 1, kLargeEpilog = 2 };

Expected<EpilogV3> read_epilog(ByteCursor& cursor, const EpilogV3* before) {
  const auto first = cursor.read<std::uint8_t>();
  const auto offset = cursor.read<std::int16_t>();
  if (!first || !offset) return fail(ErrorCode::kTruncated, "epilogue descriptor is cut off", cursor.origin());
  EpilogV3 epilog;
  const unsigned count = *first >> 3;
  if (count == 0) {
    if (before == nullptr)
      return fail(ErrorCode::kMalformed, "first epilogue descriptor has nothing to inherit", cursor.origin());
    epilog = *before;
    epilog.inherited = true;
  } else {
    epilog.operation_count = static_cast<std::uint8_t>(count);
    epilog.parent_transfer = (*first & kParentTransfer) != 0;
    epilog.large = (*first & kLargeEpilog) != 0;
    const auto first_op = cursor.read<std::uint16_t>();
    const auto last =
        epilog.large ? cursor.read<std::uint16_t>() : Expected<std::uint16_t>(cursor.read<std::uint8_t>());
    const auto offsets = cursor.bytes(epilog.large ? 2ULL * count : count);
    if (!first_op || !last || !offsets)
      return fail(ErrorCode::kTruncated, "epilogue descriptor is cut off", cursor.origin());
    epilog.first_op = *first_op;
    epilog.last_instruction = *last;
    epilog.ip_offsets = *offsets;
  }
  epilog.flags = *first & 7;
  epilog.offset = *offset + (before != nullptr ? before->offset : 0);  // deltas after the first
  return epilog;
}

UnwindCode operation(Operation name, unsigned size, unsigned info = 0, std::uint32_t value = 0, unsigned second = 0) {
  UnwindCode code;
  code.operation = name;
  code.slots = static_cast<std::uint8_t>(size);
  code.info = static_cast<std::uint8_t>(info);
  code.second = static_cast<std::uint8_t>(second);
  code.value = value;
  return code;
}

unsigned size_of(std::uint8_t first) {
  switch (first & 7) {
    case 4:
    case 7: return 1;
    case 5: return 5;
    case 6: return 3;
    default: break;
  }
  switch (first & 15) {
    case 8: return 1;
    case 9: return 5;
    case 10: return 3;
    default: break;
  }
  if ((first & 0x3f) == 0x20) return 2;
  switch (first) {
    case 0:
    case 3: return 2;
    case 1: return 5;
    case 2: return 3;
    default: return 0;
  }
}

}  // namespace

Expected<PayloadV3> read_payload_v3(const UnwindInfo& info) {
  ByteCursor cursor(info.codes, info.has(kLarge) ? 1 : 0);
  PayloadV3 payload;
  const auto offsets = cursor.bytes(info.has(kLarge) ? 2ULL * info.operation_count : info.operation_count);
  if (!offsets) return fail(ErrorCode::kTruncated, "payload ends before its prologue offsets: RVA", info.rva);
  payload.ip_offsets = *offsets;
  for (unsigned i = 0; i < info.epilog_count; ++i) {
    const auto epilog = read_epilog(cursor, i == 0 ? nullptr : &payload.epilogs[i - 1]);
    if (!epilog) return fail(epilog.error().code, epilog.error().what, info.rva, i);
    payload.epilogs[i] = *epilog;
    payload.epilog_count = static_cast<std::uint8_t>(i + 1);
  }
  payload.pool = *cursor.bytes(cursor.remaining());
  return payload;
}

Expected<UnwindCode> descriptor_at(ByteView pool, std::uint64_t at) {
  const auto first = pool.at<std::uint8_t>(at);
  if (!first) return fail(ErrorCode::kTruncated, "winding operation is past the end of the pool", pool.origin() + at);
  const unsigned size = size_of(*first);
  if (size == 0)
    return fail(ErrorCode::kUnsupported, "unknown winding operation descriptor", pool.origin() + at, *first);
  const auto bytes = pool.sub(at, size);
  if (!bytes) return fail(ErrorCode::kTruncated, "winding operation is cut off", pool.origin() + at, *first);
  std::uint32_t value = 0;  // the little-endian rest, of 0, 1, 2 or 4 bytes
  for (unsigned i = 1; i < size; ++i) value |= static_cast<std::uint32_t>(bytes->u8()[i]) << (8 * (i - 1));
  const unsigned high5 = *first >> 3;
  const unsigned high4 = *first >> 4;
  switch (*first & 7) {
    case 4: return operation(Operation::kPushNonvol, size, high5);
    case 5: return operation(Operation::kSaveNonvolFar, size, high5, value);
    case 6: return operation(Operation::kSaveNonvol, size, high5, value * 8);
    case 7:
      if (high5 == 31)
        return fail(ErrorCode::kMalformed, "consecutive push past the last register", pool.origin() + at);
      return operation(Operation::kPushConsecutive2, size, high5, 0, high5 + 1);
    default: break;
  }
  switch (*first & 15) {
    case 8: return operation(Operation::kAllocSmall, size, high4, (high4 + 1) * 8);
    case 9: return operation(Operation::kSaveXmm128Far, size, high4, value);
    case 10: return operation(Operation::kSaveXmm128, size, high4, value * 16);
    default: break;
  }
  if ((*first & 0x3f) == 0x20)
    return operation(Operation::kPush2, size, (*first >> 6) | (value & 7) << 2, 0, value >> 3);
  switch (*first) {
    case 0: return operation(Operation::kSetFpreg, size, value & 15, (value >> 4) * 16);
    case 1: return operation(Operation::kAllocHuge, size, 0, value);
    case 2: return operation(Operation::kAllocLarge, size, 0, value * 8);
    default: return operation(Operation::kPushCanonicalFrame, size, value);
  }
}

}  // namespace windlass::winx64
