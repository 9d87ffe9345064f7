// What interpreters run in an address space: numbers for Frame::function, and the functions that they stand for.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "lookup/sources/unwind_source.h"
#include "runtimes/interpreter.h"
#include "windlass/walk.h"

namespace windlass::walk {

// Thread-safe.
class Interpreted {
 public:
  static constexpr std::size_t kMaxFunctions = std::size_t{1} << 20;  // of all activations; later ones have no number
  // Numbers are this and above, those of UnwindSource::frame_function() below.
  static constexpr std::uint64_t kFirst = std::uint64_t{1} << 63;

  // Those of a process that are understood; null: there are none. `before` is kept where they are the same.
  [[nodiscard]] static std::shared_ptr<Interpreted> of(const manager::Interpreters& found,
                                                       std::shared_ptr<Interpreted> before);
  // As interpreted_functions() (target.h) has it.
  [[nodiscard]] std::vector<std::uint64_t> functions(const Memory& memory, const manager::ThreadStack& thread,
                                                     std::span<const CodeAddress> pcs);
  // Those of a number, innermost first. Appends. False: it stands for none.
  bool functions_at(std::uint64_t number, std::vector<sources::NamedFunction>& to) const;

 private:
  [[nodiscard]] std::uint64_t number_of(const manager::Interpreter& interpreter, const Memory& memory,
                                        std::span<const manager::InterpretedFrame> frames);

  manager::Interpreters interpreters_;
  mutable std::mutex lock_;
  std::vector<std::vector<sources::NamedFunction>> known_;  // by number - kFirst
  std::size_t functions_ = 0;
};

}  // namespace windlass::walk
