// The rows of a Go program's functions, as a source of unwind information. The table of functions has the stack depth
// at each instruction. This file adds the facts that the table leaves out:
//
// - The caller's frame pointer stands under the return address, from the prologue's instruction that puts it there
//   (cmd/internal/obj/x86, arm64). Go preserves no other register.
// - Outermost are a goroutine's runtime.goexit, a thread's runtime.mstart, and functions that Go marks as outermost.
// - x86-64: functions that switch to another stack are read from their code (stack_switch.h), and so is the way back
//   from a signal handler. AArch64: the rows of these functions say nothing. The table says nothing either, where they
//   set the stack pointer.
#pragma once

#include <array>
#include <mutex>
#include <optional>

#include "formats/dwarf/switched_stack.h"
#include "formats/go/code_map.h"
#include "windlass/frame_row.h"

namespace windlass::runtimes::go {

// If a return address is the first instruction of a function, the look-up subtracts one and finds the code before it.
// So the rows of that function begin earlier, as those of glibc's restorer do.
inline constexpr std::uint64_t kBeforeReturnedTo = 1;

using RowSink = FunctionRef<void(const FrameRow&)>;

// What is special about a function.
enum class Role : std::uint8_t {
  kPlain,
  kOutermost,
  kSignalReturn,  // a signal handler's return address
  kReturnedTo,    // its first instruction is what stands for a call elsewhere
  kInjected,      // called as it were by an instruction that is no call
  kSystemStack,   // goes on on the system stack, and comes back
  kSystemJump,    // goes there for good, having left a goroutine's stack pointer as in its caller
  kForeignStack,  // goes on on another stack, or aligns it
  kNext,          // gives the thread the goroutine that it goes to next, which never called it
  kResume,        // goes to a goroutine's stack and then to where that had stopped: no caller is left meanwhile
};

// Of an image, which is copied; its bytes must outlive it. Takes no memory but once, under a lock, when the first row
// of another stack is wanted. Thread-safe; signal-safe but for that.
class GoRows {
 public:
  GoRows(const Table& table, const Program& program) : map_(table), program_(program) {}

  [[nodiscard]] const CodeMap& map() const { return map_; }
  [[nodiscard]] Role role_of(const Function& function) const;
  // Where its rows begin.
  [[nodiscard]] std::uint64_t begin_of(const Function& function) const;
  // Errors: kNotFound where no function is, or where its rows say nothing; kMalformed. Linear in the function's rows.
  [[nodiscard]] Expected<void> row_at(std::uint64_t address, FrameRow& to) const;
  // Ascending; linear in them, and in the code where a stack is left.
  [[nodiscard]] Expected<void> for_each_row(const Function& function, RowSink sink) const;
  // How a thread on its system stack finds its goroutine (find_way_back). Linear in the functions.
  [[nodiscard]] std::optional<dwarf::SwitchedStack> way_back() const;

 private:
  [[nodiscard]] std::uint64_t frame_pointer_saved_from(const Function& function) const;
  [[nodiscard]] bool saves_frame_pointer(std::uint64_t address, std::int32_t depth, std::uint64_t& from) const;
  [[nodiscard]] FrameRow own_row(std::uint64_t begin, std::uint64_t end, std::int32_t depth, bool saved) const;
  struct Subject {
    const Function& function;
    Role role;
    std::uint64_t saved;  // where the frame pointer is, from there on
  };
  // `uncounted`: bytes on the stack beside those that the table counts.
  [[nodiscard]] Expected<void> plain_rows(const Subject& subject, std::uint64_t begin, std::uint64_t end, RowSink sink,
                                          std::int32_t uncounted = 0) const;
  [[nodiscard]] Expected<void> switched_rows(const Subject& subject, RowSink sink) const;
  // The expressions of kSystemStack, by how many words of its own the function has below the return address, and of
  // kSystemJump, which has none there.
  static constexpr std::size_t kWays = 7;  // what a rule of the table has room for
  struct Ways {
    dwarf::Block bytes;
    std::array<ExpressionPlace, kWays + 1> cfa{}, return_address{};
    bool by_thread = false;               // these are known: not in libraries, whose thread variables lie anywhere
    std::optional<ExpressionPlace> kept;  // the CFA of what asmcgocall calls
  };
  const Ways& ways() const;
  [[nodiscard]] std::optional<Function> find(std::string_view name) const;
  struct Code {
    std::uint64_t address = 0;
    ByteView bytes;
  };
  [[nodiscard]] Code code_of(std::string_view name) const;  // empty: there is none

  CodeMap map_;
  Program program_;
  mutable std::once_flag looked_;
  mutable Ways ways_;
};

}  // namespace windlass::runtimes::go
