// An image of made-up functions, with what is written for them.
#pragma once

#include <random>
#include <vector>

#include "support/pe_builder.h"
#include "support/x64_functions.h"
#include "windlass/format/winx64.h"

namespace windlass::test {

// Functions one behind another in an image, with what is written for them.
class WrittenProgram {
 public:
  WrittenProgram(std::uint8_t version, bool saves_can_wait, unsigned count) {
    std::mt19937_64 random(31 + version);
    while (functions_.size() < count) {
      X64FunctionMaker maker([&](std::uint32_t bound) { return static_cast<std::uint32_t>(random() % bound); });
      MadeFunction made = maker.make();
      const winx64::WriteOptions options{.version = version, .saves_can_wait = saves_can_wait};
      if (!winx64::write(made.prologue, options, code_of(made))) continue;
      begins_.push_back(PeBuilder::kAlignment + static_cast<std::uint32_t>(text_.size()));
      text_.append(made.code.bytes());
      text_.align(16);
      functions_.push_back(std::move(made));
    }
    PeBuilder builder(image::PeMachine::kAmd64);
    const std::uint32_t text = builder.add(".text", text_.data(), true);
    ok_ = text == PeBuilder::kAlignment;
    ByteWriter infos, table;
    const std::uint32_t info = builder.next_rva();
    for (std::size_t i = 0; i < functions_.size(); ++i) {
      const auto written = winx64::write(functions_[i].prologue,
                                         {.version = version,
                                          .saves_can_wait = saves_can_wait,
                                          .function = begins_[i],
                                          .info = info + static_cast<std::uint32_t>(infos.size())},
                                         code_of(functions_[i]));
      if (!written) {
        ok_ = false;
        continue;
      }
      for (const std::byte value : written->bytes) infos.u8(std::to_integer<std::uint32_t>(value));
      for (const winx64::RuntimeFunction& entry : written->entries)
        table.u32(entry.begin), table.u32(entry.end), table.u32(entry.info);
    }
    builder.add(".xdata", infos.data());
    builder.add_function_table(table.data());
    file_ = builder.build();
  }

  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] ByteView file() const { return ByteView(std::span<const std::uint8_t>(file_)); }
  [[nodiscard]] const std::vector<MadeFunction>& functions() const { return functions_; }
  [[nodiscard]] std::uint32_t begin(std::size_t i) const { return begins_[i]; }

 private:
  static std::span<const std::byte> code_of(const MadeFunction& made) {
    return std::as_bytes(std::span(made.code.bytes()));
  }

  std::vector<MadeFunction> functions_;
  std::vector<std::uint32_t> begins_;
  ByteWriter text_;
  std::vector<std::uint8_t> file_;
  bool ok_ = false;
};

}  // namespace windlass::test
