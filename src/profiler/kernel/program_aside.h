// Loads a program of an object on a thread of its own, while the caller goes on: the verifier takes 20 to 35 ms for the
// sampler, half of what a recording needs to begin. libbpf relocates the program, and loads an empty one in its place.
#pragma once

#include <bpf/bpf.h>

#include <string>
#include <thread>
#include <vector>

struct bpf_program;

namespace windlass::profiler {

// Not thread-safe. The object outlives this.
class ProgramAside {
 public:
  // From here on, for the objects that this thread opens and loads: a program of the section perf_event is loaded
  // aside. `is_wanted` false: it is loaded in its turn.
  explicit ProgramAside(bool is_wanted);
  ~ProgramAside();
  ProgramAside(const ProgramAside&) = delete;
  ProgramAside& operator=(const ProgramAside&) = delete;

  // The objects that are loaded from here on have nothing loaded aside.
  void end_of_load();
  // Waits until the program is loaded: its descriptor, bpf_program__fd(), is then the program's. 0, or an errno.
  [[nodiscard]] int finish();

 private:
  static int prepare(bpf_program* program, bpf_prog_load_opts* options, long cookie);
  int take(bpf_program& program, bpf_prog_load_opts& options);

  bpf_program* program_ = nullptr;
  std::string name_;
  std::vector<bpf_insn> instructions_;
  bpf_prog_load_opts options_{};
  int loaded_ = -1;  // a descriptor, or a negative errno
  std::thread thread_;
};

}  // namespace windlass::profiler
