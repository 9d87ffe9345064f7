// The form in which CoreCLR's checked JIT prints unwind information (DOTNET_JitUnwindDump). Source: dotnet/runtime,
// src/coreclr/jit/unwindamd64.cpp, DumpUnwindInfo.
#include <fmt/format.h>

#include "formats/winx64/read.h"
#include "formats/winx64/registers.h"
#include "windlass/format/winx64.h"

namespace windlass::winx64 {
namespace {

// "CodeOffset: 0x07 UnwindOp: UWOP_ALLOC_SMALL (2)     OpInfo: ": names are padded to those of the longest.
void put_operation(std::string& out, const UnwindCode& code, std::string_view name, std::string_view info) {
  const auto number = static_cast<unsigned>(code.operation);
  out += fmt::format("    CodeOffset: 0x{:02X} UnwindOp: {:<24} OpInfo: {}\n", code.offset,
                     fmt::format("UWOP_{} ({})", name, number), info);
}

void put_code(std::string& out, const UnwindCode& code) {
  const std::string reg = fmt::format("{} ({})", register_name(code.info), code.info);
  const std::string xmm = fmt::format("XMM{} ({})", code.info, code.info);
  switch (code.operation) {
    case Operation::kPushNonvol: return put_operation(out, code, "PUSH_NONVOL", reg);
    case Operation::kAllocSmall:
      return put_operation(out, code, "ALLOC_SMALL",
                           fmt::format("{} * 8 + 8 = {} = 0x{:02X}", code.info, code.value, code.value));
    case Operation::kAllocLarge:
      put_operation(out, code, "ALLOC_LARGE",
                    fmt::format("{} - {}", code.info, code.info == 0 ? "Scaled small  " : "Unscaled large"));
      out += code.info == 0
                 ? fmt::format("      Size: {} * 8 = {} = 0x{:05X}\n", code.value / 8, code.value, code.value)
                 : fmt::format("      Size: {} = 0x{:08X}\n\n", code.value, code.value);
      return;
    case Operation::kSetFpreg: return put_operation(out, code, "SET_FPREG", fmt::format("Unused ({})", code.info));
    case Operation::kSetFpregLarge:
      put_operation(out, code, "SET_FPREG_LARGE", fmt::format("Unused ({})", code.info));
      out += fmt::format("      Scaled Offset: {} * 16 = {} = 0x{:08X}\n", code.value / 16, code.value, code.value);
      return;
    case Operation::kSaveNonvol:
      put_operation(out, code, "SAVE_NONVOL", reg);
      out += fmt::format("      Scaled Small Offset: {} * 8 = {} = 0x{:05X}\n", code.value / 8, code.value, code.value);
      return;
    case Operation::kSaveNonvolFar:
      put_operation(out, code, "SAVE_NONVOL_FAR", reg);
      out += fmt::format("      Unscaled Large Offset: 0x{:08X}\n\n", code.value);
      return;
    case Operation::kSaveXmm128:
      put_operation(out, code, "SAVE_XMM128", xmm);
      out +=
          fmt::format("      Scaled Small Offset: {} * 16 = {} = 0x{:05X}\n", code.value / 16, code.value, code.value);
      return;
    case Operation::kSaveXmm128Far:
      put_operation(out, code, "SAVE_XMM128_FAR", xmm);
      out += fmt::format("      Unscaled Large Offset: 0x{:08X}\n\n", code.value);
      return;
    default:
      out += fmt::format("    Unrecognized UNWIND_CODE: 0x{:04X}\n",
                         code.offset | static_cast<unsigned>(code.operation) << 8 | code.info << 12);
  }
}

std::string flags_text(const UnwindInfo& info) {
  std::string text = fmt::format("0x{:02x}", info.flags);
  if (info.flags == 0) return text;
  text += " (";
  if (info.has(kEhandler)) text += " UNW_FLAG_EHANDLER";
  if (info.has(kUhandler)) text += " UNW_FLAG_UHANDLER";
  if (info.has(kChaininfo)) text += " UNW_FLAG_CHAININFO";
  return text + ")";
}

}  // namespace

Expected<std::string> jit_unwind_dump(std::span<const std::byte> info, std::uint32_t begin, std::uint32_t end) {
  const auto read = parse_unwind_info(ByteView(info.data(), info.size()), 0);
  if (!read) return Failure(read.error());
  if (read->version > 2)
    return fail(ErrorCode::kUnsupported, "unwind information of version 3 has no such form", 0, read->version);
  std::string out = fmt::format(
      "Unwind Info:\n  >> Start offset   : 0x{:06x} (not in unwind data)\n  >>   End offset   : 0x{:06x} (not in "
      "unwind "
      "data)\n  Version           : {}\n  Flags             : {}\n  SizeOfProlog      : 0x{:02X}\n  "
      "CountOfUnwindCodes: "
      "{}\n",
      begin, end, read->version, flags_text(*read), read->prolog_size, read->slot_count);
  if (read->frame_register == 0)
    out += fmt::format("  FrameRegister     : none (0)\n  FrameOffset       : N/A (no FrameRegister) (Value={})\n",
                       read->frame_offset);
  else
    out += fmt::format("  FrameRegister     : {} ({})\n  FrameOffset       : {} * 16 = 0x{:02X}\n",
                       register_name(read->frame_register), read->frame_register, read->frame_offset,
                       read->frame_offset * 16U);
  out += "  UnwindCodes       :\n";
  const auto done = each_code(*read, [&](const UnwindCode& code) { put_code(out, code); });
  if (!done) return Failure(done.error());
  return out;
}

}  // namespace windlass::winx64
