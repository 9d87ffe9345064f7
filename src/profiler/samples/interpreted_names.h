// The functions that interpreters ran in samples: which native frame ran them, and what they are called, by the code
// objects that the kernel side read at the sample's moment, as long as these are still there. Kept once they are known.
//
// Bounds: kMaxFunctions known functions, kMaxProcesses processes, then all are forgotten.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "os/process_memory.h"
#include "profiler/processes/process_table.h"
#include "profiler/samples/code_names.h"
#include "runtimes/interpreter.h"

namespace windlass::profiler {

// One thread only.
class InterpretedNames {
 public:
  static constexpr std::size_t kMaxFunctions = std::size_t{1} << 20;
  static constexpr std::size_t kMaxProcesses = 256;

  // Puts the functions of the evaluator's frames among those of a whole stack, innermost first, into `names`, by number
  // of `numbers`, at their index in `to`. `user` as wl_stack_event has them.
  void find(std::uint32_t tgid, const MapSet& maps, std::span<const std::uint64_t> user,
            std::span<const manager::InterpretedFrame> frames, CodeNames& names, std::vector<std::uint32_t>& to);
  // Drops the functions of processes for which known(tgid) is false.
  void keep_only(const std::function<bool(std::uint32_t tgid)>& known);

 private:
  using Key = std::tuple<std::uint64_t, std::uint32_t, std::uint32_t>;  // code, identity, place
  // What is known of a process while it has the interpreter.
  struct Known {
    std::shared_ptr<const manager::FoundInterpreter> interpreter;
    std::unique_ptr<os::MemoryFile> memory;
    std::map<Key, sources::NamedFunction> functions;
  };
  Known& known(std::uint32_t tgid, const std::shared_ptr<const manager::FoundInterpreter>& interpreter);
  [[nodiscard]] sources::NamedFunction function(Known& known, const manager::InterpretedFrame& frame);

  std::unordered_map<std::uint32_t, Known> known_;  // by tgid
  std::size_t functions_ = 0;
  std::vector<std::uint64_t> lookups_;
};

}  // namespace windlass::profiler
