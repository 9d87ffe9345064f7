// What a thread of an interpreter runs, read as the kernel side reads it (windlass_interpreter.h).
#pragma once

#include <cstdint>
#include <vector>

#include "runtimes/evaluator.h"
#include "runtimes/interpreter.h"
#include "windlass/error.h"
#include "windlass/walk.h"
#include "windlass_interpreter_layout.h"

namespace windlass::runtimes {

// All functions that the thread runs, innermost first. kNotFound: there are none, the interpreter does not know the
// thread, nothing certain is known of the thread, or it cannot be read.
[[nodiscard]] Expected<std::vector<manager::InterpretedFrame>> read_frames(const Memory& memory,
                                                                           const wl_interpreter& interpreter,
                                                                           const manager::ThreadStack& thread);

// Is what a frame ran still at its address?
[[nodiscard]] bool is_still(const Memory& memory, const wl_interpreter& interpreter,
                            const manager::InterpretedFrame& frame);

// An interpreter whose list the kernel side reads, too.
class ListedInterpreter : public manager::Interpreter {
 public:
  ListedInterpreter(const wl_interpreter& list, const Evaluator& evaluator) : list_(list), evaluator_(evaluator) {}

  bool is_evaluator(std::uint64_t address) const override { return evaluator_.contains(address); }
  Expected<std::vector<manager::InterpretedFrame>> frames_of(const Memory& memory,
                                                             const manager::ThreadStack& thread) const override {
    return read_frames(memory, list_, thread);
  }
  const wl_interpreter* layout() const override { return &list_; }

 protected:
  [[nodiscard]] const Evaluator& evaluator() const { return evaluator_; }

 private:
  wl_interpreter list_;
  Evaluator evaluator_;
};

}  // namespace windlass::runtimes
