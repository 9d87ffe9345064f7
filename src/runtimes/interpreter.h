// A runtime whose functions have no machine code. An evaluator in some file runs all of them, and the runtime keeps a
// list of the functions that a thread runs. The stacks consist of the evaluator's native frames. Each has the functions
// that this activation of the evaluator runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "lookup/sources/name_source.h"
#include "os/proc_maps.h"
#include "windlass/error.h"
#include "windlass/walk.h"
#include "windlass_types.h"

struct wl_interpreter;

namespace windlass::manager {

using InterpretedFrame = wl_interpreted_frame;
// A thread that does not run.
struct ThreadStack {
  std::uint64_t pointer = 0;  // the thread's (x86-64: fs.base)
  std::uint64_t sp = 0;
};
// In place of a function that is not there any more.
inline constexpr std::string_view kUnknownFunction = "[unknown function]";

// Thread-safe.
class Interpreter {
 public:
  virtual ~Interpreter() = default;

  // Is there code of the evaluator?
  [[nodiscard]] virtual bool is_evaluator(std::uint64_t address) const = 0;
  // Where it has not linked its frame yet, and what the list begins with says nothing.
  [[nodiscard]] virtual bool is_linking(std::uint64_t /*address*/) const { return false; }
  // All that a thread runs, innermost first. kNotFound: nothing. Others: what is wrong with the list.
  [[nodiscard]] virtual Expected<std::vector<InterpretedFrame>> frames_of(const Memory& memory,
                                                                          const ThreadStack& thread) const = 0;
  // The function that a frame was in, and where, as long as that is still there: kNotFound otherwise.
  [[nodiscard]] virtual Expected<sources::NamedFunction> name_of(const Memory& memory,
                                                                 const InterpretedFrame& frame) const = 0;
  // For the kernel side to read the list itself; null: it cannot.
  [[nodiscard]] virtual const wl_interpreter* layout() const { return nullptr; }
};

// An interpreter and the image that it is in.
class FoundInterpreter {
 public:
  // `map` is the first mapping of the image. Without an interpreter: why it is not understood.
  FoundInterpreter(Expected<std::unique_ptr<Interpreter>> interpreter, const os::ProcMap& map)
      : address_(map.begin), file_(map.file), interpreter_(std::move(interpreter)) {}

  [[nodiscard]] bool is_of(const os::ProcMap& map) const { return map.is_at(address_, file_); }
  // Null: it is not understood.
  [[nodiscard]] const Interpreter* get() const { return interpreter_ ? interpreter_->get() : nullptr; }
  [[nodiscard]] std::optional<Error> problem() const {
    return interpreter_ ? std::nullopt : std::optional(interpreter_.error());
  }

 private:
  std::uint64_t address_;
  os::FileIdentity file_;
  Expected<std::unique_ptr<Interpreter>> interpreter_;
};
using Interpreters = std::vector<std::shared_ptr<const FoundInterpreter>>;
// The one whose list the kernel side reads, one in a process; null: none.
[[nodiscard]] std::shared_ptr<const FoundInterpreter> recorded_interpreter(const Interpreters& interpreters);

// What one native frame of the evaluator runs.
struct Activation {
  std::size_t native = 0;          // which of the stack's frames
  std::size_t begin = 0, end = 0;  // of the interpreted ones, innermost first
};

// Lays what a thread runs over its native stack, both of one moment, whole, and innermost first. `lookups`: as frames
// are looked up. Empty where they do not fit each other: then it is not known which frame runs what.
[[nodiscard]] std::vector<Activation> lay_over(const Interpreter& interpreter, std::span<const std::uint64_t> lookups,
                                               std::span<const InterpretedFrame> frames);

}  // namespace windlass::manager
