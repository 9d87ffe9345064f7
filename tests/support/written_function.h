// A written function in an image of its own. Checks that the caller comes out of it at a given state: by virtual
// unwind, by the rows from its information, by the rows of the model, and by those of its DWARF.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "formats/winx64/exec.h"
#include "formats/winx64/lower.h"
#include "support/pe_builder.h"
#include "support/written_frames.h"
#include "support/x64_functions.h"
#include "windlass/format/winx64.h"

namespace windlass::test {

// What virtual unwind gets wrong at the state; empty: nothing.
template <typename M>
std::string wrong_exec(const winx64::Functions& functions, std::uint32_t rva, const X64State& state, const M& memory,
                       const X64State& caller, std::uint64_t return_address) {
  const std::uint64_t base = functions.image().image_base();
  Registers frame(Architecture::kX86_64);
  for (unsigned i = 0; i < 16; ++i) frame.set(winx64::dwarf_number(i), state.integer[i]);
  frame.set_pc(CodeAddress::instruction(base + rva));
  winx64::Unwound unwound;
  winx64::SavedAddresses saved;
  if (const auto ok = winx64::virtual_unwind(functions, base, memory, frame, unwound, &saved); !ok)
    return " exec: " + ok.error().text();
  std::string wrong;
  if (unwound.caller.pc().value() != return_address) wrong += " exec: rip";
  if (unwound.caller.sp() != caller.rsp()) wrong += " exec: rsp";
  for (unsigned i = 0; i < 16; ++i) {
    if (winx64::is_preserved(i) && unwound.caller.get(winx64::dwarf_number(i)) != caller.integer[i])
      wrong += fmt::format(" exec: {}", winx64::register_name(i));
  }
  for (unsigned i = 6; i < 16; ++i) {
    auto value = state.xmm[i];
    if (saved.xmm[i] != 0 && !memory.read(saved.xmm[i], value.data(), 16)) value = {};
    if (value != caller.xmm[i]) wrong += fmt::format(" exec: xmm{}", i);
  }
  return wrong;
}

// What the row gets wrong.
template <typename M>
std::string wrong_row(const char* who, const FrameRow& row, const X64State& state, const M& memory,
                      const X64State& caller, std::uint64_t return_address) {
  const auto sum = [&](RegisterNumber reg, std::int64_t offset) {
    return state.integer[winx64::instruction_number(reg)] + static_cast<std::uint64_t>(offset);
  };
  std::uint64_t cfa = sum(row.cfa.reg(), row.cfa.offset());
  std::string wrong;
  if (row.cfa.is(CfaRule::kLoaded) && !memory.read(cfa, &cfa, sizeof cfa)) wrong += fmt::format(" {}: unreadable", who);
  if (cfa != caller.rsp()) wrong += fmt::format(" {}: cfa", who);
  const auto value_of = [&](const RegisterRule* rule, const std::uint64_t* now, unsigned halves, std::uint64_t* to) {
    std::copy_n(now, halves, to);
    if (rule == nullptr || rule->is(RegisterRule::kSameValue)) return;
    const bool by_cfa = rule->is(RegisterRule::kAtCfa);
    const std::uint64_t at =
        by_cfa ? cfa + static_cast<std::uint64_t>(std::int64_t{rule->offset()}) : sum(rule->reg(), rule->offset());
    const bool saved = by_cfa || rule->is(RegisterRule::kAtRegister);
    if (!saved || !memory.read(at, to, 8 * halves)) std::fill_n(to, halves, 0);
  };
  std::uint64_t value[2] = {};
  value_of(&row.return_address, value, 1, value);
  if (value[0] != return_address) wrong += fmt::format(" {}: rip", who);
  for (unsigned i = 0; i < 16; ++i) {
    if (!winx64::is_preserved(i)) continue;
    value_of(row.registers.find(winx64::dwarf_number(i)), &state.integer[i], 1, value);
    if (value[0] != caller.integer[i]) wrong += fmt::format(" {}: {}", who, winx64::register_name(i));
  }
  for (unsigned i = 6; i < 16; ++i) {
    value_of(row.registers.find(static_cast<RegisterNumber>(winx64::kXmm0 + i)), state.xmm[i].data(), 2, value);
    if (value[0] != caller.xmm[i][0] || value[1] != caller.xmm[i][1]) wrong += fmt::format(" {}: xmm{}", who, i);
  }
  return wrong;
}

class WrittenFunction {
 public:
  static constexpr std::uint32_t kFunction = PeBuilder::kAlignment;

  // The error of write() where it cannot be written.
  static Expected<std::unique_ptr<WrittenFunction>> make(const Prologue& prologue,
                                                         const std::vector<std::uint8_t>& code, std::uint8_t version,
                                                         bool saves_can_wait = false) {
    auto function = std::unique_ptr<WrittenFunction>(new WrittenFunction);
    const std::uint32_t info = kFunction + (static_cast<std::uint32_t>(code.size()) + PeBuilder::kAlignment) /
                                               PeBuilder::kAlignment * PeBuilder::kAlignment;
    auto written = winx64::write(
        prologue, {.version = version, .saves_can_wait = saves_can_wait, .function = kFunction, .info = info},
        std::as_bytes(std::span(code)));
    if (!written) return Failure(written.error());
    function->written_ = std::move(*written);
    PeBuilder builder(image::PeMachine::kAmd64);
    builder.add(".text", code, true);
    std::vector<std::uint8_t> bytes(function->written_.bytes.size());
    if (!bytes.empty()) std::memcpy(bytes.data(), function->written_.bytes.data(), bytes.size());
    builder.add(".xdata", bytes);
    ByteWriter table;
    for (const winx64::RuntimeFunction& entry : function->written_.entries)
      table.u32(entry.begin), table.u32(entry.end), table.u32(entry.info);
    builder.add_function_table(table.data());
    builder.claim(0x20'0000);  // tail calls stay in the image
    function->file_ = builder.build();
    auto image = image::PeImage::parse(ByteView(std::span<const std::uint8_t>(function->file_)));
    auto model = rows_of(prologue);
    if (!image || !model) return Failure(image ? model.error() : image.error());
    function->image_ = std::make_unique<image::PeImage>(std::move(*image));
    function->functions_ = std::make_unique<winx64::Functions>(*function->image_);
    function->model_ = std::move(*model);
    function->frames_ = test::written_frames(prologue);
    for (const winx64::RuntimeFunction& entry : function->written_.entries) {
      winx64::lower(
          *function->functions_, entry, [&](const FrameRow& row) { function->rows_.push_back(row); },
          [&](const Error& error) { function->problems_.push_back(error); });
    }
    return function;
  }

  [[nodiscard]] const image::PeImage& image() const { return *image_; }
  [[nodiscard]] const winx64::Functions& functions() const { return *functions_; }
  [[nodiscard]] const winx64::Written& written() const { return written_; }
  [[nodiscard]] const std::vector<Error>& problems() const { return problems_; }

  // Empty: the caller comes out right in every way.
  template <typename M>
  [[nodiscard]] std::string wrong_at(std::uint32_t offset, const X64State& state, const M& memory,
                                     const X64State& caller, std::uint64_t return_address) const {
    std::string wrong = wrong_exec(*functions_, kFunction + offset, state, memory, caller, return_address);
    if (const FrameRow* row = find(model_, offset))
      wrong += wrong_row("model", *row, state, memory, caller, return_address);
    if (const FrameRow* row = find(frames_, offset))
      wrong += wrong_row("dwarf", *row, state, memory, caller, return_address);
    else
      wrong += " no row of the DWARF";
    if (const FrameRow* row = find(rows_, kFunction + offset))
      wrong += wrong_row("row", *row, state, memory, caller, return_address);
    else if (functions_->find(kFunction + offset) && problems_.empty())
      wrong += " no row";
    return wrong;
  }

 private:
  WrittenFunction() = default;

  static const FrameRow* find(const std::vector<FrameRow>& rows, std::uint64_t at) {
    for (const FrameRow& row : rows) {
      if (at >= row.begin && at < row.end) return &row;
    }
    return nullptr;
  }

  std::vector<std::uint8_t> file_;
  std::unique_ptr<image::PeImage> image_;
  std::unique_ptr<winx64::Functions> functions_;
  winx64::Written written_;
  std::vector<FrameRow> model_, rows_, frames_;
  std::vector<Error> problems_;
};

}  // namespace windlass::test
