// Loads the program that walks stacks, on a thread of its own: a verifier takes long for it. The first object of the
// programs has been loaded without it, and lends its maps.
#pragma once

#include <memory>
#include <optional>

#include "profiler/doctor/system_error.h"
#include "profiler/kernel/program_types.h"

struct bpf_program;
struct windlass_bpf;

namespace windlass::profiler {

// One thread calls it. Its end does not wait for the loading, which nothing can hasten.
class WalkLoader {
 public:
  // `types`: already written.
  WalkLoader(const windlass_bpf& first, std::shared_ptr<const ProgramTypes> types);
  ~WalkLoader();
  WalkLoader(const WalkLoader&) = delete;
  WalkLoader& operator=(const WalkLoader&) = delete;

  [[nodiscard]] bool is_done() const;
  // Waits for the end. Why it failed, if it did.
  [[nodiscard]] const std::optional<SystemError>& wait() const;
  // After wait(), if that did not fail.
  [[nodiscard]] const bpf_program* sampler() const;

 private:
  struct Load;
  std::shared_ptr<Load> load_;  // the thread has it, too
};

}  // namespace windlass::profiler
