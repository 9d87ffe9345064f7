// The frames of an SBCL's functions.
//
// All functions have frames of one form (src/compiler/x86-64/call.lisp): [rbp] is the caller's rbp, [rbp + 8] the
// return address. A return leaves rsp at rbp + 16. The caller makes the callee's frame, and the callee moves the return
// address there. So four places differ:
//
// - The first instruction, `pop [rbp + 8]`: the return address is still on top of the stack.
// - A return: rbp is the caller's again, and the return address is on top of the stack.
// - From `mov rbp, REG` to the call: rbp points to the callee's frame, which has no return address yet.
// - Between a return of several values and its `push` of the return address: rbx points behind the frame.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtimes/runtime_code.h"
#include "runtimes/sbcl/code_map.h"
#include "windlass/walk.h"

namespace windlass::runtimes::sbcl {

class Code final : public Method {
 public:
  // kUnreadable.
  [[nodiscard]] static Expected<std::unique_ptr<Code>> read(const Memory& memory, const Function& function);

  [[nodiscard]] const CodeObject& object() const { return object_; }

  Expected<void> row_at(std::uint64_t address, FrameRow& to) const override;
  // That of the functions' bodies.
  void for_each_row(sources::RowSink row, sources::ErrorSink report) const override;
  std::size_t bytes() const override { return sizeof *this + code_.size() + name.size(); }

 private:
  CodeObject object_;
  std::vector<std::uint8_t> code_;
};

}  // namespace windlass::runtimes::sbcl
