// Makes ARM64 functions from their unwind codes: each code's instruction in the prologue, some body, epilogues that
// undo it. For what no compiler emits.
#pragma once

#include <cstdint>
#include <vector>

#include "formats/winarm64/read.h"
#include "support/pe_builder.h"

namespace windlass::test {

// The instruction that a code stands for. Encodings: Arm Architecture Reference Manual, C4.1.
class Arm64Instruction {
 public:
  static std::uint32_t of(const winarm64::UnwindCode& code, bool prologue) {
    using winarm64::Operation;
    if (code.saves()) return code.pair ? pair(code, prologue) : single(code, prologue);
    switch (code.operation) {
      case Operation::kAllocS:
      case Operation::kAllocM:
      case Operation::kAllocL: return (prologue ? 0xd100'03ff : 0x9100'03ff) | immediate(code.value);
      case Operation::kSetFp:
      case Operation::kAddFp: return (prologue ? 0x9100'03fd : 0xd100'03bf) | immediate(code.value);
      case Operation::kPacSignLr: return prologue ? 0xd503'237f : 0xd503'23ff;
      default: return kNop;
    }
  }
  static constexpr std::uint32_t kNop = 0xd503'201f, kReturn = 0xd65f'03c0;

 private:
  static std::uint32_t immediate(std::uint32_t value) {
    return value < 4096 ? value << 10 : 1U << 22 | value >> 12 << 10;
  }
  static std::uint32_t pair(const winarm64::UnwindCode& code, bool prologue) {
    const bool q = code.file == winarm64::RegisterFile::kQ, x = code.file == winarm64::RegisterFile::kX;
    const std::uint32_t type = q ? 0xac00'0000 : x ? 0xa800'0000 : 0x6c00'0000;
    const std::uint32_t unit = q ? 16 : 8;
    const std::uint32_t offset = code.value / unit;
    const std::uint32_t mode = !code.writeback ? (prologue ? 0x0100'0000 : 0x0140'0000)
                                               : (prologue ? 0x0180'0000 : 0x00c0'0000);  // offset; pre, post index
    const std::uint32_t imm7 = code.writeback && prologue ? 128 - offset : offset;
    return type | mode | (imm7 & 127) << 15 | code.second << 10U | 31U << 5 | code.reg;
  }
  static std::uint32_t single(const winarm64::UnwindCode& code, bool prologue) {
    const bool q = code.file == winarm64::RegisterFile::kQ, x = code.file == winarm64::RegisterFile::kX;
    const std::uint32_t store = q ? 0x3c80'0000 : x ? 0xf800'0000 : 0xfc00'0000;
    const std::uint32_t type = prologue ? store : store | 0x0040'0000;
    const std::uint32_t rest = 31U << 5 | code.reg;
    if (!code.writeback) return type | 0x0100'0000 | code.value / (q ? 16U : 8U) << 10 | rest;
    const std::uint32_t imm9 = prologue ? 512 - code.value : code.value;
    return type | (imm9 & 511) << 12 | (prologue ? 0xc00U : 0x400U) | rest;
  }
};

class Arm64Functions {
 public:
  // A function with an .xdata record. `codes` as stored, ending in `end`; the epilogues use those from `epilogue_index`
  // on. `tail`: how many instructions follow the last epilogue; with 0 and one epilogue E is set. `scopes` false: no
  // epilogues (they are in another fragment).
  void add(const std::vector<std::uint8_t>& codes, unsigned epilogues = 1, std::uint32_t epilogue_index = 0,
           unsigned tail = 0, std::uint32_t body = 6) {
    const std::uint32_t begin = text_size();
    prologue(codes);
    filler(body);
    std::vector<std::uint32_t> starts;
    for (unsigned i = 0; i < epilogues; ++i) {
      starts.push_back(text_size() - begin);
      epilogue(codes, epilogue_index);
      if (i + 1 < epilogues) filler(i % 3);
    }
    filler(tail);
    record(begin, codes, starts, epilogue_index, tail == 0 && epilogues == 1);
  }
  // A function in packed form. Its code is what the expansion says, with stores that home parameters.
  void add_packed(std::uint32_t flag, std::uint32_t reg_f, std::uint32_t reg_i, std::uint32_t h, std::uint32_t cr,
                  std::uint32_t frame_size) {
    winarm64::PackedFields fields{0,      static_cast<std::uint8_t>(reg_f), static_cast<std::uint8_t>(reg_i),
                                  h != 0, static_cast<std::uint8_t>(cr),    frame_size};
    winarm64::Expansion expansion;
    if (!expansion.expand(fields, flag == 2, 0)) return;
    const ByteView view = expansion.codes();
    const std::vector<std::uint8_t> codes(view.u8(), view.u8() + view.size());
    const std::uint32_t begin = text_size();
    const std::uint32_t homes = prologue(codes);
    const std::uint32_t registers = reg_i + (cr == 1 ? 1 : 0) + (reg_f > 0 ? reg_f + 1 : 0);
    home_parameters(homes, (registers + 1) / 2 * 2);
    filler(4);
    if (flag == 1) epilogue(codes, expansion.epilogue_index());
    const std::uint32_t length = (text_size() - begin) / 4;
    entries_.push_back(
        {begin, flag | length << 2 | reg_f << 13 | reg_i << 16 | h << 20 | cr << 21 | frame_size / 16 << 23, false});
  }

  [[nodiscard]] std::vector<std::uint8_t> build() const {
    PeBuilder builder(image::PeMachine::kArm64);
    const std::uint32_t text = builder.add(".text", text_.data(), true);
    const std::uint32_t xdata =
        builder.add(".xdata", xdata_.data().empty() ? std::vector<std::uint8_t>(4) : xdata_.data());
    ByteWriter table;
    for (const Entry& entry : entries_) {
      table.u32(text + entry.begin);
      table.u32(entry.relative ? xdata + entry.data : entry.data);
    }
    builder.add_function_table(table.data());
    return builder.build();
  }

 private:
  struct Entry {
    std::uint32_t begin;
    std::uint32_t data;
    bool relative;  // to .xdata
  };

  [[nodiscard]] std::uint32_t text_size() const { return static_cast<std::uint32_t>(text_.size()); }
  void filler(std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) text_.u32(Arm64Instruction::kNop);
  }

  static std::vector<winarm64::UnwindCode> sequence(const std::vector<std::uint8_t>& bytes, std::uint32_t index) {
    std::vector<winarm64::UnwindCode> codes;
    const ByteView view{std::span<const std::uint8_t>(bytes)};
    for (auto code = winarm64::code_at(view, index); code && !code->ends(); code = winarm64::code_at(view, index)) {
      codes.push_back(*code);
      index += code->size;
    }
    for (std::size_t i = codes.size(); i-- > 0;) {  // save_next: the pair above that of the code behind it
      if (codes[i].operation != winarm64::Operation::kSaveNext) continue;
      const winarm64::UnwindCode& below = codes[i + 1];
      const std::uint32_t offset = (below.writeback ? 0 : below.value) + 16;
      codes[i] = below;
      codes[i].reg = static_cast<std::uint8_t>(below.reg + 2);
      codes[i].second = static_cast<std::uint8_t>(below.second + 2);
      codes[i].value = offset;
      codes[i].writeback = false;
    }
    return codes;
  }
  // Returns where the first of four nops in a row is (the homing of parameters), or 0.
  std::uint32_t prologue(const std::vector<std::uint8_t>& bytes) {
    const auto codes = sequence(bytes, 0);
    std::uint32_t nops = 0;
    for (std::size_t i = codes.size(); i-- > 0;) {
      if (codes[i].operation == winarm64::Operation::kNop && nops == 0) nops = text_size();
      text_.u32(Arm64Instruction::of(codes[i], true));
    }
    return nops;
  }
  void epilogue(const std::vector<std::uint8_t>& bytes, std::uint32_t index) {
    for (const winarm64::UnwindCode& code : sequence(bytes, index)) text_.u32(Arm64Instruction::of(code, false));
    text_.u32(Arm64Instruction::kReturn);
  }
  // stp x0,x1,[sp,#...] and so on, `first` slots above sp, in place of the nops at `at`.
  void home_parameters(std::uint32_t at, std::uint32_t first) {
    for (std::uint32_t i = 0; at != 0 && i < 4; ++i) {
      const std::uint32_t word = 0xa900'0000 | (first + 2 * i) << 15 | (2 * i + 1) << 10 | 31U << 5 | 2 * i;
      for (unsigned b = 0; b < 4; ++b) text_.data()[at + i * 4 + b] = static_cast<std::uint8_t>(word >> (8 * b));
    }
  }
  void record(std::uint32_t begin, const std::vector<std::uint8_t>& codes, const std::vector<std::uint32_t>& starts,
              std::uint32_t index, bool single) {
    xdata_.align(4);
    entries_.push_back({begin, static_cast<std::uint32_t>(xdata_.size()), true});
    const auto words = static_cast<std::uint32_t>((codes.size() + 3) / 4);
    const std::uint32_t count = single ? index : static_cast<std::uint32_t>(starts.size());
    const std::uint32_t header = (text_size() - begin) / 4 | (single ? 1U << 21 : 0);
    if (count > 31 || words > 31) {
      xdata_.u32(header);
      xdata_.u32(count | words << 16);
    } else {
      xdata_.u32(header | count << 22 | words << 27);
    }
    if (!single)
      for (const std::uint32_t start : starts) xdata_.u32(start / 4 | index << 22);
    xdata_.append(codes);
    while (xdata_.size() % 4 != 0) xdata_.u8(0xe3);
  }

  ByteWriter text_;
  ByteWriter xdata_;
  std::vector<Entry> entries_;
};

}  // namespace windlass::test
