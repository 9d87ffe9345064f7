// Unwind information of an ARM64 image made of arbitrary bytes, read, checked and executed in every way there is.
#pragma once

#include <algorithm>
#include <cstring>

#include "check.h"
#include "formats/winarm64/dump.h"
#include "formats/winarm64/exec.h"
#include "formats/winarm64/lower.h"
#include "walk/apply.h"

namespace windlass::fuzz {

// A stack without end, whose words point around in it; some of it cannot be read.
struct EndlessMemory {
  bool read(std::uint64_t address, void* to, std::size_t size) const {
    FUZZ_CHECK(size <= 1024);
    if (address % 1024 == 1016) return false;
    auto* out = static_cast<std::uint8_t*>(to);
    // Bit 55 is clear: rows strip a return address by a mask alone.
    for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<std::uint8_t>(((address + i) * 37 >> 3 & 0x7f) | 1);
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

inline Registers some_frame(std::uint64_t rva) {
  Registers frame(Architecture::kAArch64);
  for (RegisterNumber reg = 0; reg < 32; ++reg) frame.set(reg, 0x10000 + reg * 0x1010ULL);
  for (RegisterNumber reg = 72; reg < 80; ++reg) frame.set(reg, reg);
  frame.set_pc(CodeAddress::instruction(rva));
  return frame;
}

// To the next instruction to look at: every one near both ends, some in between.
inline std::uint32_t step_at(std::uint32_t offset, std::uint32_t length) {
  const bool near = offset < 40 || length - offset < 40;
  return near ? 4 : std::max(4U, length / 8 & ~3U);
}

inline void check_arm64_frames(const winarm64::Functions& functions, winarm64::RuntimeFunction function,
                               std::uint32_t length) {
  winarm64::ExecContext context;
  for (const std::uint32_t vectors : {0U, 32U}) {
    context.vector_length = vectors;
    for (std::uint32_t offset = 0; offset < length; offset += step_at(offset, length)) {
      const Registers frame = some_frame(std::uint64_t{function.begin} + offset);
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

// Rows applied and codes executed agree at both ends of every row, and rows are ascending.
inline void check_arm64_rows(const winarm64::Functions& functions, winarm64::RuntimeFunction function) {
  winarm64::RowEvaluator evaluator(functions);
  std::uint64_t end = function.begin;
  std::size_t rows = 0;
  (void)evaluator.for_each_row(
      function,
      [&](const FrameRow& row) {
        FUZZ_CHECK(row.begin >= end && row.begin < row.end && row.begin % 4 == function.begin % 4);
        end = row.end;
        if (++rows > 200) return;
        for (const std::uint64_t rva : {row.begin, row.end - 4}) {
          // Another entry may overlap this one, and then executing goes by that.
          const auto found = functions.candidate(static_cast<std::uint32_t>(rva));
          if (!found || !(*found == function)) continue;
          const Registers frame = some_frame(rva);
          Registers executed(Architecture::kAArch64), applied(Architecture::kAArch64);
          walk::ApplyContext context;
          context.pac_mask = winarm64::ExecContext().pac_mask;
          context.slots_below_sp_are_dead = false;
          const auto status = walk::apply(row, EndlessMemory(), context, frame, applied, nullptr);
          const auto unwound = winarm64::virtual_unwind(functions, {}, EndlessMemory(), frame, executed);
          if (!unwound || !status.ok()) continue;  // memory that cannot be read, in different orders
          FUZZ_CHECK(executed.pc() == applied.pc() && executed.sp() == applied.sp());
          applied.for_each([&](RegisterNumber reg, std::uint64_t value) { FUZZ_CHECK(executed.get(reg) == value); });
        }
      },
      [](const Error&) {});
}

inline void walk_arm64_image(const image::PeImage& image) {
  const winarm64::Functions functions(image);
  std::size_t count = functions.size();
  if (count > 12) count = 12;
  for (std::size_t i = 0; i < count; ++i) {
    const winarm64::RuntimeFunction function = functions.stored(i);
    winarm64::Expansion storage;
    std::uint32_t length = 64;
    bool slow = false;
    if (const auto record = winarm64::read_record(image, function, storage)) {
      length = record->length;
      slow = record->codes.size() > 200 && record->scope_count() > 8;  // quadratic in the codes, for each epilogue
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
    if (!slow) check_arm64_rows(functions, function);
  }
}

}  // namespace windlass::fuzz
