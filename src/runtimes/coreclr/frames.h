// A CoreCLR's explicit frames: the list that each of its threads keeps on its stack of where managed code was left.
//
// dotnet/runtime, docs/design/datacontracts: Thread.md, StackWalk.md; src/coreclr/vm/frames.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtimes/coreclr/descriptor.h"
#include "windlass/walk.h"

namespace windlass::runtimes::coreclr {

// Where an InlinedCallFrame's call to native code was made. Only while it is made: between two calls it has none.
struct CallSite {
  std::uint64_t pc = 0;  // the return address
  std::uint64_t sp = 0, fp = 0;
};

struct ExplicitFrame {
  std::uint64_t address = 0;
  std::uint64_t identifier = 0;
  std::string kind;  // "InlinedCallFrame"; empty: one that the runtime does not tell of
  std::optional<CallSite> call;
};

struct ThreadFrames {
  std::uint64_t address = 0;          // of its Thread
  std::uint64_t id = 0;               // the system's
  std::vector<ExplicitFrame> frames;  // the innermost first
  std::optional<Error> error;         // why the list ends before its end
};

class ExplicitFrames {
 public:
  static constexpr std::size_t kMaxThreads = 65536;
  static constexpr std::size_t kMaxFrames = 65536;  // of a thread

  // kUnsupported: a version that is not known, or a field that is missing.
  [[nodiscard]] static Expected<ExplicitFrames> make(const Descriptor& descriptor);

  // All threads that the runtime knows. Errors: the list of threads cannot be read, or has no end.
  [[nodiscard]] Expected<std::vector<ThreadFrames>> read(const Memory& memory) const;

 private:
  struct Kind {
    std::uint64_t identifier = 0;
    std::string name;
  };
  void read_frames(const Memory& memory, std::uint64_t first, ThreadFrames& thread) const;
  [[nodiscard]] std::optional<CallSite> call_of(const Memory& memory, std::uint64_t frame) const;

  std::vector<Kind> kinds_;
  std::uint64_t store_ = 0, inlined_call_ = 0;
  std::uint32_t first_thread_ = 0;
  std::uint32_t thread_link_ = 0, thread_id_ = 0, thread_frame_ = 0;
  std::uint32_t frame_next_ = 0;
  std::uint32_t call_sp_ = 0, call_pc_ = 0, call_fp_ = 0;
};

}  // namespace windlass::runtimes::coreclr
