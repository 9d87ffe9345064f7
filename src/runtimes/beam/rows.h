// The frames of an Erlang virtual machine's code. Rows come from the instructions (code_flow.h). In a function that has
// called another, the frame is found as the virtual machine finds it. The first word up the stack with the tag of a
// return address is the frame's (beam_common.c, erl_gc.c: is_CP).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtimes/beam/code_flow.h"
#include "runtimes/beam/code_map.h"
#include "runtimes/runtime_code.h"
#include "windlass/walk.h"

namespace windlass::runtimes::beam {

class Code final : public Method {
 public:
  // Without the jumps behind a module's last function. All of the module's functions go by these jumps to code that
  // functions share, with frames of any depth. kUnreadable.
  [[nodiscard]] static Expected<std::unique_ptr<Code>> read(const Memory& memory, const Function& function);
  // One instruction of the code that functions share; `holder`: the function behind which it stands, if one does.
  // kNotFound: its frame is not found.
  [[nodiscard]] static Expected<std::unique_ptr<Code>> read_shared(const Memory& memory, std::uint64_t pc,
                                                                   const CodeMap& map, const Layout& layout,
                                                                   const Function& holder);
  // Where the outermost function of a process returns to: there is no caller.
  [[nodiscard]] static std::unique_ptr<Code> end_of_process(std::uint64_t address);

  [[nodiscard]] const Function& function() const { return function_; }
  [[nodiscard]] bool is_shared() const { return function_.module == 0; }

  Expected<void> row_at(std::uint64_t address, FrameRow& to) const override;
  // A process's stack ends at end_of_process(); C enters the scheduler's code.
  bool may_be_outermost(std::uint64_t address) const override;
  void for_each_row(sources::RowSink row, sources::ErrorSink report) const override;
  std::size_t bytes() const override {
    return sizeof *this + stretches_.size() * sizeof(FrameStretch) + returns_.size() * 4 + name.size() +
           expressions_.size();
  }

 private:
  [[nodiscard]] bool row_of(std::size_t stretch, FrameRow& to) const;

  Function function_;
  std::vector<FrameStretch> stretches_;
  std::vector<std::uint32_t> returns_;  // offsets behind calls, ascending
  std::vector<std::byte> expressions_;  // of code that a scheduler runs
  bool is_end_ = false;
};

}  // namespace windlass::runtimes::beam
