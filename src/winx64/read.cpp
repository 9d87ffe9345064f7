#include "winx64/read.h"

namespace windlass::winx64 {
namespace {

constexpr std::uint64_t kHeaderSize = 4;

// Slots an operation of version 1 or 2 fills; 0: there is no such operation. Version 1's old uses of 6 and 7 had 2 and
// 3 slots; version 2's EPILOG is a slot each (they come in pairs, so .NET, which skips two at a time, sees the same).
unsigned slots_of(unsigned operation, unsigned info, unsigned version) {
  switch (static_cast<Operation>(operation)) {
    case Operation::kPushNonvol:
    case Operation::kAllocSmall:
    case Operation::kSetFpreg:
    case Operation::kPushMachframe: return 1;
    case Operation::kEpilog: return version == 1 ? 2 : 1;
    case Operation::kSaveNonvol:
    case Operation::kSaveXmm128: return 2;
    case Operation::kAllocLarge: return info == 0 ? 2 : 3;
    case Operation::kSaveNonvolFar:
    case Operation::kSpare:
    case Operation::kSaveXmm128Far:
    case Operation::kSetFpregLarge: return 3;
    default: return 0;
  }
}

std::uint32_t slot(ByteView codes, unsigned index) {
  return static_cast<std::uint32_t>(codes.u8()[2 * index]) | static_cast<std::uint32_t>(codes.u8()[2 * index + 1]) << 8;
}

// What follows the codes, aligned to 4: a handler's RVA and its data, or the chained entry.
Expected<void> read_tail(ByteView bytes, std::uint64_t codes_size, UnwindInfo& info) {
  const std::uint64_t at = (kHeaderSize + codes_size + 3) / 4 * 4;
  if (info.has(kChaininfo)) {
    // Chained and with a handler at once is forbidden; Windows tests the chain first where it unwinds.
    const auto chained = bytes.at<std::uint32_t>(at);
    const auto end = bytes.at<std::uint32_t>(at + 4);
    const auto data = bytes.at<std::uint32_t>(at + 8);
    if (!chained || !end || !data)
      return fail(ErrorCode::kTruncated, "unwind information ends before its chained entry: RVA", info.rva);
    info.chained = RuntimeFunction{*chained, *end, *data};
  } else if (info.has(kEhandler) || info.has(kUhandler)) {
    const auto handler = bytes.at<std::uint32_t>(at);
    if (!handler) return fail(ErrorCode::kTruncated, "unwind information ends before its handler: RVA", info.rva);
    info.handler = *handler;
    info.handler_data = info.rva + static_cast<std::uint32_t>(at) + 4;
  }
  return {};
}

}  // namespace

std::string_view operation_name(Operation operation) {
  switch (operation) {
    case Operation::kPushNonvol: return "PUSH_NONVOL";
    case Operation::kAllocLarge: return "ALLOC_LARGE";
    case Operation::kAllocSmall: return "ALLOC_SMALL";
    case Operation::kSetFpreg: return "SET_FPREG";
    case Operation::kSaveNonvol: return "SAVE_NONVOL";
    case Operation::kSaveNonvolFar: return "SAVE_NONVOL_FAR";
    case Operation::kEpilog: return "EPILOG";
    case Operation::kSpare: return "SPARE_CODE";
    case Operation::kSaveXmm128: return "SAVE_XMM128";
    case Operation::kSaveXmm128Far: return "SAVE_XMM128_FAR";
    case Operation::kPushMachframe: return "PUSH_MACHFRAME";
    case Operation::kSetFpregLarge: return "SET_FPREG_LARGE";
    case Operation::kPush2: return "PUSH2";
    case Operation::kPushConsecutive2: return "PUSH_CONSECUTIVE_2";
    case Operation::kAllocHuge: return "ALLOC_HUGE";
    case Operation::kPushCanonicalFrame: return "PUSH_CANONICAL_FRAME";
  }
  return "";
}

Expected<UnwindInfo> parse_unwind_info(ByteView bytes, std::uint32_t rva) {
  const auto header = bytes.at<std::uint32_t>(0);
  if (!header) return fail(ErrorCode::kTruncated, "unwind information is cut off: RVA", rva);
  UnwindInfo info;
  info.rva = rva;
  info.version = *header & 7;
  info.flags = *header >> 3 & 31;
  info.prolog_size = *header >> 8 & 255;
  info.slot_count = static_cast<std::uint8_t>(*header >> 16);
  if (info.version < 1 || info.version > 3)
    return fail(ErrorCode::kUnsupported, "unwind information has an unknown version: RVA", rva, info.version);
  if (info.version == 3) {  // the fourth byte has another meaning there
    info.operation_count = *header >> 24 & 31;
    info.epilog_count = static_cast<std::uint8_t>(*header >> 29);
  } else {
    info.frame_register = *header >> 24 & 15;
    info.frame_offset = static_cast<std::uint8_t>(*header >> 28);
  }
  const std::uint64_t codes_size = 2ULL * info.slot_count;
  const auto codes = bytes.sub(kHeaderSize, codes_size);
  if (!codes) return fail(ErrorCode::kTruncated, "unwind information ends before its codes: RVA", rva, info.slot_count);
  info.codes = *codes;
  if (const auto ok = read_tail(bytes, codes_size, info); !ok) return std::unexpected(ok.error());
  if (info.version == 3 && info.has(kLarge)) {
    const auto high = info.codes.at<std::uint8_t>(0);
    if (!high) return fail(ErrorCode::kTruncated, "unwind information lacks its large prologue's size: RVA", rva);
    info.prolog_size = static_cast<std::uint16_t>(info.prolog_size | *high << 8);
  }
  return info;
}

Expected<UnwindInfo> read_unwind_info(const image::PeImage& image, std::uint32_t rva) {
  const auto bytes = image.from_rva(rva);
  if (!bytes) return fail(bytes.error().code, "unwind information is outside the image: RVA", rva);
  return parse_unwind_info(*bytes, rva);
}

Expected<UnwindCode> code_at(const UnwindInfo& info, unsigned index) {
  const std::uint32_t first = slot(info.codes, index);
  UnwindCode code;
  code.offset = first & 255;
  code.info = static_cast<std::uint8_t>(first >> 12);
  const unsigned operation = first >> 8 & 15;
  const unsigned slots = slots_of(operation, code.info, info.version);
  if (slots == 0)
    return fail(ErrorCode::kUnsupported, "unknown unwind operation in the information at RVA", info.rva, operation);
  if (slots > info.slot_count - index)
    return fail(ErrorCode::kTruncated, "unwind operation needs more slots than there are: RVA", info.rva, index);
  code.slots = static_cast<std::uint8_t>(slots);
  code.operation = static_cast<Operation>(operation);
  const std::uint32_t second = slots > 1 ? slot(info.codes, index + 1) : 0;
  const std::uint32_t wide = slots > 2 ? second | slot(info.codes, index + 2) << 16 : second;
  switch (code.operation) {
    case Operation::kAllocSmall: code.value = code.info * 8U + 8; break;
    case Operation::kAllocLarge:
      code.value = code.info == 0 ? second * 8 : wide;
      break;  // the short form is scaled
    // The page says "scaled by 8", and every unwinder does so; early texts of it said 16.
    case Operation::kSaveNonvol: code.value = second * 8; break;
    case Operation::kSaveXmm128: code.value = second * 16; break;
    case Operation::kSaveNonvolFar:
    case Operation::kSaveXmm128Far: code.value = wide; break;
    case Operation::kSetFpreg: code.value = info.frame_offset * 16U; break;
    // .NET on Unix (JitEEInterface, for frames whose register points far into them): 28 bits, x 16; FrameOffset is 15.
    case Operation::kSetFpregLarge: code.value = (wide & 0x0fff'ffff) * 16; break;
    default: break;
  }
  return code;
}

}  // namespace windlass::winx64
