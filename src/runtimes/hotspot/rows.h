// The frames of a HotSpot's code. Rows come from the instructions (code_flow.h) and from the runtime's descriptions.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "runtimes/hotspot/code_flow.h"
#include "runtimes/hotspot/code_map.h"
#include "runtimes/hotspot/debug_info.h"
#include "runtimes/runtime_code.h"

namespace windlass::runtimes::hotspot {

class Code final : public Method {
 public:
  // kUnreadable. Stubs of which the runtime does not say enough have no rows: these are left to the code itself.
  // `null_free`: see Compressed.
  [[nodiscard]] static Expected<std::unique_ptr<Code>> read(const Memory& memory, Blob blob, bool null_free);

  [[nodiscard]] const Blob& blob() const { return blob_; }
  [[nodiscard]] const DebugInfo& debug() const { return debug_; }
  // Do virtual threads return there, whose other frames are on the heap? `lookup` as frames are looked up.
  [[nodiscard]] bool is_return_barrier(std::uint64_t lookup) const;

  Expected<void> row_at(std::uint64_t address, FrameRow& to) const override;
  // C++ enters methods by the call stub and by stubs of upcalls (javaCalls.cpp, upcallLinker_x86_64.cpp). Other stubs
  // are helpers, which C++ may call, too. Methods, interpreter and adapters are called by none but generated code.
  bool may_be_outermost(std::uint64_t address) const override;
  void for_each_row(sources::RowSink row, sources::ErrorSink report) const override;
  std::size_t bytes() const override;

 private:
  // A single place that is returned to: where methods that C++ has called return, and virtual threads.
  struct Return {
    FrameRow row;
    bool is_barrier = false;
  };

  [[nodiscard]] bool row_of(std::size_t stretch, FrameRow& to) const;
  void read_call_stub(ByteView code);
  void read_return_barriers(ByteView code);

  Blob blob_;
  DebugInfo debug_;
  std::vector<FrameStretch> stretches_;
  std::vector<Return> returns_;
};

// A method that may not be entered any more begins with a jump, written over five bytes of its prologue. Puts
// instructions back that move the stack pointer like the original. `at` is the offset of the verified entry.
void mend_entry(std::span<std::byte> code, std::size_t at, std::int32_t frame_bytes);

}  // namespace windlass::runtimes::hotspot
