// Unwind information of an ARM64 image made of arbitrary bytes, read, checked and executed in every way there is.
#pragma once

#include <algorithm>
#include <cstring>

#include "check.h"
#include "winarm64/dump.h"
#include "winarm64/exec.h"

namespace windlass::fuzz {

// A stack without end, whose words point around in it; some of it cannot be read.
struct EndlessMemory {
  bool read(std::uint64_t address, void* to, std::size_t size) const {
    FUZZ_CHECK(size <= 1024);
    if (address % 1024 == 1016) return false;
    auto* out = static_cast<std::uint8_t*>(to);
    for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<std::uint8_t>((address + i) * 37 >> 3);
    return true;
  }
};

inline void check_arm64_code(ByteView codes, std::uint64_t index, const Expected<winarm64::UnwindCode>& code) {
  if (!code) return;
  FUZZ_CHECK(code->size >= 1 && index + code->size <= codes.size());
  FUZZ_CHECK(code->size == winarm64::code_size(codes.u8()[index]));
  FUZZ_CHECK(!winarm64::operation_name(code->operation).empty());
  std::string text;
  winarm64::append_instruction(text, *code, true);
  winarm64::append_instruction(text, *code, false);
  for (const char c : text) FUZZ_CHECK(c >= ' ' && c != '"' && c != '\\');
}

// To the next instruction to look at: every one near both ends, some in between.
inline std::uint32_t step_at(std::uint32_t offset, std::uint32_t length) {
  const bool near = offset < 64 || length - offset < 64;
  return near ? 4 : std::max(4U, length / 16 & ~3U);
}

inline void check_arm64_frames(const winarm64::Functions& functions, winarm64::RuntimeFunction function,
                               std::uint32_t length) {
  Registers frame(Architecture::kAArch64);
  for (RegisterNumber reg = 0; reg < 32; ++reg) frame.set(reg, 0x10000 + reg * 0x1010ULL);
  for (RegisterNumber reg = 72; reg < 80; ++reg) frame.set(reg, reg);
  winarm64::ExecContext context;
  for (const std::uint32_t vectors : {0U, 32U}) {
    context.vector_length = vectors;
    for (std::uint32_t offset = 0; offset < length; offset += step_at(offset, length)) {
      frame.set_pc(CodeAddress::instruction(std::uint64_t{function.begin} + offset));
      Registers caller(Architecture::kX86_64);
      SavedLocations saved;
      const auto unwound = winarm64::virtual_unwind(functions, context, EndlessMemory(), frame, caller, &saved);
      if (!unwound) {
        FUZZ_CHECK(caller.architecture() == Architecture::kX86_64);  // a failed step changes nothing
        continue;
      }
      FUZZ_CHECK(caller.has_sp() && unwound->establisher_frame == caller.sp());
      FUZZ_CHECK(unwound->handler == 0 || unwound->place == winarm64::Place::kBody);
    }
  }
}

inline void walk_arm64_image(const image::PeImage& image) {
  const winarm64::Functions functions(image);
  std::size_t count = functions.size();
  if (count > 64) count = 64;
  for (std::size_t i = 0; i < count; ++i) {
    const winarm64::RuntimeFunction function = functions.stored(i);
    winarm64::Expansion storage;
    std::uint32_t length = 64;
    if (const auto record = winarm64::read_record(image, function, storage)) {
      length = record->length;
      const winarm64::CodeSet codes(*record);
      codes.each([&](std::uint64_t index, const Expected<winarm64::UnwindCode>& code) {
        check_arm64_code(record->codes, index, code);
      });
      winarm64::check_record(*record, [&](const Error& error) {
        FUZZ_CHECK(error.where >= record->rva && error.where <= std::uint64_t{record->rva} + (1U << 19));
      });
    } else if (function.kind() == winarm64::EntryKind::kParent) {
      (void)winarm64::parent_of(image, function);
    }
    check_arm64_frames(functions, function, length);
  }
}

}  // namespace windlass::fuzz
