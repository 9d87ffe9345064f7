// Where a virtual thread is entered, told by code: JDK 21's tables do not name JavaThread::_cont_entry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace windlass::runtimes::hotspot {

struct Continuation {
  std::uint32_t thread_offset = 0;  // JavaThread::_cont_entry
  std::uint32_t entry_bytes = 0;    // sizeof(ContinuationEntry)
};

// Of Continuation.enterSpecial, which links a new ContinuationEntry on the stack (sharedRuntime_x86_64.cpp,
// continuation_enter_setup). Nothing: this is other code. Linear in the code.
[[nodiscard]] std::optional<Continuation> continuation_entered_by(std::span<const std::byte> code);

}  // namespace windlass::runtimes::hotspot
