// The frames of a Mono's methods and trampolines: rows by what their code does to the stack (windlass/jit/describe.h),
// the runtime having said where it begins and ends.
#pragma once

#include <memory>
#include <vector>

#include "runtimes/described_code.h"
#include "runtimes/mono/code_map.h"
#include "windlass/walk.h"

namespace windlass::runtimes::mono {

class Code final : public DescribedCode {
 public:
  // kUnreadable; errors of describe().
  [[nodiscard]] static Expected<std::unique_ptr<Code>> read(const Memory& memory, const CodeBlock& block);

  Code(std::vector<FrameRow> rows, const CodeBlock& block);
  [[nodiscard]] const CodeBlock& block() const { return block_; }

 private:
  CodeBlock block_;
};

}  // namespace windlass::runtimes::mono
