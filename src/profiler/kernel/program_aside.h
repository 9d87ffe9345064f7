// Loads a program of an object on a thread of its own, while the caller goes on: the verifier takes 20 to 40 ms for the
// sampler, two thirds of what a recording needed to begin. libbpf relocates the program, and loads an empty one in its
// place.
#pragma once

#include <bpf/bpf.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

struct bpf_map;
struct bpf_program;

namespace windlass::profiler {

// Not thread-safe. The object outlives this.
class ProgramAside {
 public:
  // From here on, for the objects that this thread opens and loads: the program of that name, of the section
  // perf_event, is loaded aside. Empty: none is.
  explicit ProgramAside(std::string name);
  ~ProgramAside();
  ProgramAside(const ProgramAside&) = delete;
  ProgramAside& operator=(const ProgramAside&) = delete;

  // Once the program is loaded, it is the first one in `programs`, an array of programs of the same object.
  void put_into(const bpf_map* programs) { programs_ = programs; }
  // The objects that are loaded from here on have nothing loaded aside.
  void end_of_load();
  // Waits until the program is loaded: its descriptor, bpf_program__fd(), is then the program's. 0, or an errno.
  [[nodiscard]] int finish();
  // Why the program could not be loaded or put, an errno. 0: it was, or is being loaded.
  [[nodiscard]] int refusal() const { return refusal_; }

 private:
  static int prepare(bpf_program* program, bpf_prog_load_opts* options, long cookie);
  int take(bpf_program& program, bpf_prog_load_opts& options);

  void load(int programs);

  std::string name_;
  const bpf_map* programs_ = nullptr;
  bpf_program* program_ = nullptr;
  std::vector<bpf_insn> instructions_;
  bpf_prog_load_opts options_{};
  int loaded_ = -1;  // a descriptor, or a negative errno
  std::atomic<int> refusal_ = 0;
  std::thread thread_;
};

}  // namespace windlass::profiler
