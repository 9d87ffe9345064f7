// What interpreters run in an address space: numbers for Frame::function, and the functions that they stand for.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "lookup/sources/unwind_source.h"
#include "os/proc_maps.h"
#include "runtimes/interpreter.h"
#include "windlass/walk.h"

namespace windlass::walk {

// Thread-safe.
class Interpreted {
 public:
  static constexpr std::size_t kMaxFunctions = std::size_t{1} << 20;  // of all activations; later ones have no number
  // Numbers are this and above, those of UnwindSource::frame_function() below.
  static constexpr std::uint64_t kFirst = std::uint64_t{1} << 63;

  // Those of a process that are understood; null: there are none.
  [[nodiscard]] static std::shared_ptr<Interpreted> of(const manager::Interpreters& found);
  // From here on, those of a process with these mappings. An image is looked in once a stack has code in it. `expect`
  // is told the mappings of images that are about to be read. Numbers stay what they are.
  void set_mappings(std::vector<os::ProcMap> maps, std::function<void(std::span<const os::ProcMap> images)> expect);
  // What is wrong with those that are not understood.
  [[nodiscard]] std::vector<Error> problems() const;
  // As interpreted_functions() (target.h) has it.
  [[nodiscard]] std::vector<std::uint64_t> functions(const Memory& memory, const manager::ThreadStack& thread,
                                                     std::span<const CodeAddress> pcs);
  // Those of a number, innermost first. Appends. False: it stands for none.
  bool functions_at(std::uint64_t number, std::vector<sources::NamedFunction>& to) const;

 private:
  [[nodiscard]] std::uint64_t number_of(const manager::Interpreter& interpreter, const Memory& memory,
                                        std::span<const manager::InterpretedFrame> frames);

  // Of images that stacks have code in.
  [[nodiscard]] manager::Interpreters of_stack(const Memory& memory, std::span<const std::uint64_t> lookups);

  mutable std::mutex lock_;
  manager::Interpreters interpreters_;
  std::vector<os::ProcMap> unseen_;  // of files that have not been looked in, ascending
  std::function<void(std::span<const os::ProcMap>)> expect_;
  std::vector<std::vector<sources::NamedFunction>> known_;  // by number - kFirst
  std::size_t functions_ = 0;
};

}  // namespace windlass::walk
