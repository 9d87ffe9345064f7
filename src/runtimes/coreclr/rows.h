// The frames of a CoreCLR's methods: Windows x64 unwind information on every system.
//
// dotnet/runtime, docs/design/coreclr/botr/clr-abi.md; docs/design/datacontracts/StackWalk.md.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "runtimes/coreclr/code_map.h"
#include "runtimes/runtime_code.h"
#include "windlass/format/winx64.h"

namespace windlass::runtimes::coreclr {

// What can be at an address.
class Code : public Method {
 public:
  // Is it what the process has there now?
  [[nodiscard]] virtual bool is_still(const CodeMap& map, const Memory& memory) const = 0;
};

// What a block stands for.
[[nodiscard]] Expected<std::unique_ptr<Code>> read_code(const Memory& memory, CodeBlock block);

// A method with its code, where epilogues are looked for, and its unwind information.
class CodeMethod final : public Code {
 public:
  // kUnreadable; kMalformed: unwind information that is none.
  [[nodiscard]] static Expected<std::unique_ptr<CodeMethod>> read(const Memory& memory, CodeBlock block);

  bool is_still(const CodeMap& map, const Memory& memory) const override { return map.is_still(memory, block_); }
  Expected<void> row_at(std::uint64_t address, FrameRow& to) const override;
  void for_each_row(sources::RowSink row, sources::ErrorSink report) const override;
  std::size_t bytes() const override;

 private:
  struct Info {
    std::uint32_t rva = 0;
    std::vector<std::byte> bytes;
  };
  [[nodiscard]] std::optional<winx64::RuntimeFunction> function_at(std::uint32_t rva) const;
  [[nodiscard]] ByteView bytes_at(std::uint32_t rva, std::uint32_t wanted) const;
  void finish(FrameRow& row) const;

  CodeBlock block_;
  std::vector<std::byte> code_;
  std::vector<Info> infos_;  // ascending by rva
};

// An instruction of a stub, described by the code from there on. Stubs have no descriptions, but all of them jump to
// the called function. At that jump the stack is as it was when the stub was entered. (Only the resolve stub of virtual
// calls pushes: src/coreclr/vm/amd64/virtualcallstubcpu.hpp.)
class Stub final : public Code {
 public:
  static constexpr std::size_t kLongest = 128;

  // kUnreadable; kNotFound: the code does not go straight to a jump.
  [[nodiscard]] static Expected<std::unique_ptr<Stub>> read(const Memory& memory, std::uint64_t pc);

  bool is_still(const CodeMap& map, const Memory& memory) const override;
  Expected<void> row_at(std::uint64_t address, FrameRow& to) const override;
  void for_each_row(sources::RowSink row, sources::ErrorSink report) const override;
  std::size_t bytes() const override { return sizeof *this + code_.size(); }

 private:
  std::vector<std::byte> code_;  // from there to the jump
  std::int32_t depth_ = 0;       // bytes that the stub has pushed by then
};

}  // namespace windlass::runtimes::coreclr
