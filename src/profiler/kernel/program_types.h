// The kernel's types as libbpf is given them: those that the programs look into, in a file without a name. A file of
// the user's choice is given as it is.
#pragma once

#include <string>

#include "profiler/doctor/kernel_types.h"

struct btf;

namespace windlass::profiler {

class ProgramTypes {
 public:
  explicit ProgramTypes(std::string given);
  ~ProgramTypes();
  ProgramTypes(const ProgramTypes&) = delete;
  ProgramTypes& operator=(const ProgramTypes&) = delete;

  // For bpf_object_open_opts::btf_custom_path; null: libbpf has to look for them itself.
  [[nodiscard]] const char* path() const { return path_.empty() ? nullptr : path_.c_str(); }
  // Writes the types that the programs name, after an object was opened and before it is loaded. `kernel`: all types of
  // the kernel; null: they cannot be read.
  void write(const btf& of_programs, const KernelTypes* kernel);

 private:
  int file_ = -1;
  std::string path_;
};

}  // namespace windlass::profiler
