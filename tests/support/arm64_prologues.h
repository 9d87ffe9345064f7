// Functions that Prologues describe, as ARM64 code and an image: each op's instruction where the op says, and bodies
// that spoil what was saved. Encodings: Arm Architecture Reference Manual, C4.1.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "rows/frame_state.h"
#include "support/arm64_functions.h"
#include "windlass/format/winarm64.h"
#include "windlass/prologue.h"

namespace windlass::test {

class Arm64PrologueCode {
 public:
  explicit Arm64PrologueCode(const Prologue& prologue)
      : words_(prologue.code_size / 4, Arm64Instruction::kNop), taken_(words_.size()) {
    for (const prologue::Op& op : prologue.ops) set(op.end, of(op.action, true));
    const auto prologue_words = prologue.prologue_end() / 4;
    std::fill(taken_.begin(), taken_.begin() + prologue_words, true);
    for (const prologue::Epilogue& epilogue : prologue.epilogues) leave(epilogue, true);
    std::vector<RegisterNumber> saved = saved_by(prologue.ops);
    for (const prologue::Part& part : prologue.parts) {
      for (const prologue::Op& op : part.ops) set(op.end, of(op.action, true));
      if (!part.ops.empty()) take(part.begin, part.ops.back().end);
      for (const prologue::Epilogue& epilogue : part.epilogues)
        leave(epilogue, leaves_function(prologue, part, epilogue));
    }
    spoil(saved, 0, prologue.code_size);
    for (const prologue::Part& part : prologue.parts) spoil(saved_by(part.ops), part.begin, part.end);
  }

  [[nodiscard]] const std::vector<std::uint32_t>& words() const { return words_; }

 private:
  static constexpr std::uint32_t kSize = 4;

  void set(std::uint32_t end, std::uint32_t word) {
    words_.at(end / kSize - 1) = word;
    taken_.at(end / kSize - 1) = true;
  }
  void take(std::uint32_t begin, std::uint32_t end) {
    for (std::uint32_t at = begin / kSize; at < end / kSize; ++at) taken_[at] = true;
  }

  static std::uint32_t of(const prologue::Action& action, bool prologue) {
    using winarm64::Operation;
    winarm64::UnwindCode code;
    if (const auto* save = std::get_if<prologue::Save>(&action)) {
      const bool vector = save->reg >= 64;
      code.file = vector ? winarm64::RegisterFile::kD : winarm64::RegisterFile::kX;
      code.reg = static_cast<std::uint8_t>(save->reg & 63);
      code.pair = save->second != prologue::kNoRegister;
      code.second = static_cast<std::uint8_t>(save->second & 63);
      code.writeback = save->allocate != 0;
      code.value = save->allocate + save->offset;
      return Arm64Instruction::of(code, prologue);
    }
    if (const auto* allocate = std::get_if<prologue::Allocate>(&action)) {
      code.operation = Operation::kAllocL;
      code.value = static_cast<std::uint32_t>(allocate->size);
    } else if (const auto* pointer = std::get_if<prologue::SetFramePointer>(&action)) {
      code.operation = Operation::kAddFp;
      code.value = pointer->offset;
    } else {
      code.operation = Operation::kPacSignLr;
    }
    return Arm64Instruction::of(code, prologue);
  }

  // Several actions of one instruction: allocations, or a load and what it frees behind it.
  void leave(const prologue::Epilogue& epilogue, bool returns) {
    take(epilogue.begin, epilogue.end);
    std::map<std::uint32_t, prologue::Action> instructions;
    for (const prologue::Op& op : epilogue.undone) {
      const auto [known, is_new] = instructions.try_emplace(op.end, op.action);
      if (is_new) continue;
      const auto* more = std::get_if<prologue::Allocate>(&op.action);
      if (more == nullptr) known->second = op.action;  // mov sp,x29: all that is below it
      if (more == nullptr) continue;
      if (auto* sum = std::get_if<prologue::Allocate>(&known->second)) sum->size += more->size;
      if (auto* save = std::get_if<prologue::Save>(&known->second))
        save->allocate += static_cast<std::uint32_t>(more->size);
    }
    for (const auto& [end, action] : instructions) set(end, of(action, false));
    if (returns) set(epilogue.end, Arm64Instruction::kReturn);
  }
  // Does the epilogue of a part take back the rest of the frame too? Else it runs on behind the part.
  static bool leaves_function(const Prologue& prologue, const prologue::Part& part,
                              const prologue::Epilogue& epilogue) {
    FrameState state(Architecture::kAArch64);
    for (const prologue::Op& op : prologue.ops) (void)state.apply(op);
    for (const prologue::Op& op : part.ops) (void)state.apply(op);
    for (const prologue::Op& op : epilogue.undone) (void)state.undo(op);
    return state.is_entry() && epilogue.undone.back().end < epilogue.end;
  }

  static std::vector<RegisterNumber> saved_by(const std::vector<prologue::Op>& ops) {
    std::vector<RegisterNumber> saved;
    bool pointer = false;
    for (const prologue::Op& op : ops) {
      pointer |= std::holds_alternative<prologue::SetFramePointer>(op.action);
      const auto* save = std::get_if<prologue::Save>(&op.action);
      if (save == nullptr) continue;
      saved.push_back(save->reg);
      if (save->second != prologue::kNoRegister) saved.push_back(save->second);
    }
    if (pointer) std::erase(saved, 29);
    return saved;
  }
  // movz x, #...; fmov d, xzr: in turn, wherever a body has room.
  void spoil(const std::vector<RegisterNumber>& saved, std::uint32_t begin, std::uint32_t end) {
    std::size_t next = 0;
    for (std::uint32_t at = begin / kSize; at < end / kSize && next < saved.size(); ++at) {
      if (taken_[at] || words_[at] != Arm64Instruction::kNop) continue;
      const RegisterNumber reg = saved[next++];
      words_[at] = reg >= 64 ? 0x9e67'03e0U | (reg - 64U) : 0xd280'0000U | 0x1234U << 5 | reg;
    }
  }

  std::vector<std::uint32_t> words_;
  std::vector<bool> taken_;
};

// An image of such functions with the unwind information that is written for them.
class Arm64PrologueImage {
 public:
  struct Function {
    Prologue prologue;
    std::uint32_t begin;  // in the code; then its RVA
    std::vector<winarm64::RuntimeFunction> entries;
  };

  // The error of write(), if there is one.
  Expected<void> add(const Prologue& prologue, winarm64::WriteOptions options = {}) {
    options.function = static_cast<std::uint32_t>(text_.size());
    options.info = static_cast<std::uint32_t>(xdata_.size());
    const auto written = winarm64::write(prologue, options);
    if (!written) return Failure(written.error());
    const Arm64PrologueCode code(prologue);
    for (const std::uint32_t word : code.words()) text_.u32(word);
    for (unsigned i = 0; i < 4; ++i) text_.u32(Arm64Instruction::kReturn);
    for (const std::byte byte : written->bytes) xdata_.u8(static_cast<std::uint32_t>(byte));
    functions_.push_back({prologue, options.function, written->entries});
    return {};
  }

  // RVAs of functions() are then those in the image.
  [[nodiscard]] std::vector<std::uint8_t> build() {
    PeBuilder builder(image::PeMachine::kArm64);
    const std::uint32_t text = builder.add(".text", text_.data(), true);
    xdata_.u32(0);
    const std::uint32_t xdata = builder.add(".xdata", xdata_.data());
    ByteWriter table;
    for (Function& function : functions_) {
      function.begin += text;
      for (winarm64::RuntimeFunction& entry : function.entries) {
        entry.begin += text;
        if (entry.kind() == winarm64::EntryKind::kRecord) entry.data += xdata;
        table.u32(entry.begin);
        table.u32(entry.data);
      }
    }
    builder.add_function_table(table.data());
    return builder.build();
  }
  [[nodiscard]] const std::vector<Function>& functions() const { return functions_; }

 private:
  ByteWriter text_;
  ByteWriter xdata_;
  std::vector<Function> functions_;
};

}  // namespace windlass::test
