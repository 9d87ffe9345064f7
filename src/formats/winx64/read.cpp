#include "formats/winx64/read.h"

#include <atomic>

namespace windlass::winx64 {
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

std::uint32_t Functions::next_identity() {
  static std::atomic<std::uint64_t> next = 1;
  const std::uint64_t identity = next.fetch_add(1, std::memory_order_relaxed);
  return identity >> 31 == 0 ? static_cast<std::uint32_t>(identity) : 0;
}

bool has_machine_frame(const Functions& functions, const RuntimeFunction& entry) {
  if (entry.indirect()) return false;
  const auto info = read_unwind_info(functions.image(), entry.info);
  if (!info) return false;
  bool found = false;
  if (info->version == 3) {
    const auto payload = read_payload_v3(*info);
    if (payload)
      (void)each_descriptor(
          payload->pool, 0, info->operation_count, payload->ip_offsets, info->has(kLarge),
          [&](const UnwindCode& code) { found |= code.operation == Operation::kPushCanonicalFrame && code.info <= 1; });
    return found;
  }
  (void)each_code(*info, [&](const UnwindCode& code) { found |= code.operation == Operation::kPushMachframe; });
  return found;
}

}  // namespace windlass::winx64
