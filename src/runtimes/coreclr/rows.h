// The frames of a CoreCLR's methods: Windows x64 unwind information on every system.
//
// dotnet/runtime, docs/design/coreclr/botr/clr-abi.md; docs/design/datacontracts/StackWalk.md.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "runtimes/coreclr/code_map.h"
#include "runtimes/runtime_code.h"
#include "windlass/winx64.h"

namespace windlass::runtimes::coreclr {

// A method with its code, where epilogues are looked for, and its unwind information.
class CodeMethod final : public Method {
 public:
  // kUnreadable; kMalformed: unwind information that is none.
  [[nodiscard]] static Expected<std::unique_ptr<CodeMethod>> read(const Memory& memory, CodeBlock block);

  [[nodiscard]] const CodeBlock& block() const { return block_; }
  Expected<void> row_at(std::uint64_t address, FrameRow& to) const override;
  void for_each_row(source::RowSink row, source::ErrorSink report) const override;
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

}  // namespace windlass::runtimes::coreclr
