#include "winx64/read.h"

namespace windlass::winx64 {
namespace {

constexpr std::uint64_t kHeaderSize = 4;

void read_header(std::uint32_t header, std::uint32_t rva, UnwindInfo& info) {
  info.rva = rva;
  info.version = header & 7;
  info.flags = header >> 3 & 31;
  info.prolog_size = header >> 8 & 255;
  info.slot_count = static_cast<std::uint8_t>(header >> 16);
  if (info.version == 3) {  // the fourth byte has another meaning there
    info.operation_count = header >> 24 & 31;
    info.epilog_count = static_cast<std::uint8_t>(header >> 29);
  } else {
    info.frame_register = header >> 24 & 15;
    info.frame_offset = static_cast<std::uint8_t>(header >> 28);
  }
}

std::uint32_t word_at(ByteView bytes, std::uint64_t at) {
  std::uint32_t word;
  std::memcpy(&word, bytes.data() + at, sizeof word);
  return word;
}

// What follows the codes, aligned to 4: a handler's RVA and its data, or the chained entry. False: it is cut off.
bool read_tail(ByteView bytes, std::uint64_t codes_size, UnwindInfo& info) {
  const std::uint64_t at = (kHeaderSize + codes_size + 3) / 4 * 4;
  if (info.has(kChaininfo)) {
    // Chained and with a handler at once is forbidden; Windows tests the chain first where it unwinds.
    if (at + sizeof(RuntimeFunction) > bytes.size()) return false;
    info.chained = RuntimeFunction{word_at(bytes, at), word_at(bytes, at + 4), word_at(bytes, at + 8)};
  } else if (info.has(kEhandler) || info.has(kUhandler)) {
    if (at + sizeof(std::uint32_t) > bytes.size()) return false;
    info.handler = word_at(bytes, at);
    info.handler_data = info.rva + static_cast<std::uint32_t>(at) + 4;
  }
  return true;
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

bool parse_unwind_info(ByteView bytes, std::uint32_t rva, UnwindInfo& info) {
  if (bytes.size() < kHeaderSize) return false;
  read_header(word_at(bytes, 0), rva, info);
  if (info.version < 1 || info.version > 3) return false;
  const std::uint64_t codes_size = 2ULL * info.slot_count;
  if (kHeaderSize + codes_size > bytes.size()) return false;
  info.codes = ByteView(bytes.data() + kHeaderSize, codes_size, bytes.origin() + kHeaderSize);
  if (!read_tail(bytes, codes_size, info)) return false;
  if (info.version == 3 && info.has(kLarge)) {
    if (codes_size == 0) return false;
    info.prolog_size = static_cast<std::uint16_t>(info.prolog_size | info.codes.u8()[0] << 8);
  }
  return true;
}

Expected<UnwindInfo> parse_unwind_info(ByteView bytes, std::uint32_t rva) {
  UnwindInfo info;
  if (parse_unwind_info(bytes, rva, info)) return info;
  if (bytes.size() < kHeaderSize) return fail(ErrorCode::kTruncated, "unwind information is cut off: RVA", rva);
  if (info.version < 1 || info.version > 3)
    return fail(ErrorCode::kUnsupported, "unwind information has an unknown version: RVA", rva, info.version);
  if (kHeaderSize + 2ULL * info.slot_count > bytes.size())
    return fail(ErrorCode::kTruncated, "unwind information ends before its codes: RVA", rva, info.slot_count);
  if (info.version == 3 && info.has(kLarge) && info.slot_count == 0)
    return fail(ErrorCode::kTruncated, "unwind information lacks its large prologue's size: RVA", rva);
  if (info.has(kChaininfo))
    return fail(ErrorCode::kTruncated, "unwind information ends before its chained entry: RVA", rva);
  return fail(ErrorCode::kTruncated, "unwind information ends before its handler: RVA", rva);
}

Expected<UnwindInfo> read_unwind_info(const image::PeImage& image, std::uint32_t rva) {
  const auto bytes = image.from_rva(rva);
  if (!bytes) return fail(bytes.error().code, "unwind information is outside the image: RVA", rva);
  return parse_unwind_info(*bytes, rva);
}

Expected<UnwindCode> code_at(const UnwindInfo& info, unsigned index) {
  UnwindCode code;
  if (code_at(info, index, code)) return code;
  const bool known = kOperationShapes[0][static_cast<unsigned>(code.operation)].slots != 0;
  if (known)
    return fail(ErrorCode::kTruncated, "unwind operation needs more slots than there are: RVA", info.rva, index);
  return fail(ErrorCode::kUnsupported, "unknown unwind operation in the information at RVA", info.rva,
              static_cast<std::uint64_t>(code.operation));
}

}  // namespace windlass::winx64
