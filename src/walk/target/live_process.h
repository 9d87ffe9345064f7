// What a Target keeps of a live process from one stop to the next.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <sys/types.h>

#include "os/descriptor.h"
#include "walk/target/attachment.h"
#include "walk/target/process_memory.h"
#include "walk/target/process_modules.h"
#include "windlass/target.h"

namespace windlass::walk {

class LiveProcess {
 public:
  // Stops it and makes `target` what it is now. Errors as open_process.
  static Expected<Target> open(pid_t pid, const ProcessOptions& options);
  // `folder`: /proc/PID, which leads nowhere once the process has ended, whoever gets its number.
  LiveProcess(pid_t pid, const ProcessOptions& options, os::Descriptor folder);

  // The target is the one that this was opened for.
  Expected<Refreshed> refresh(Target& target);
  ~LiveProcess() { keep_files(false); }
  LiveProcess(const LiveProcess&) = delete;
  LiveProcess& operator=(const LiveProcess&) = delete;
  std::uint64_t release();
  // As Attachment has them.
  [[nodiscard]] std::vector<std::byte> vector_registers(std::uint64_t thread) {
    return attachment_.vector_registers(static_cast<pid_t>(thread));
  }

 private:
  // Names are read anew by turns: a thread gives itself one after it has begun.
  static constexpr std::uint64_t kNameTurns = 16;
  // The kernel gives every program that it starts 16 bytes of its own.
  using ProgramId = std::array<std::byte, 16>;
  // Of /proc/PID, empty: not read yet.
  struct Texts {
    std::string auxv, maps, command;
  };

  Expected<Refreshed> read_stopped(Target& target);
  Expected<Refreshed> read(Target& target);
  void keep_files(bool keep);
  Expected<Refreshed> update_modules(Target& target, std::string_view maps);
  void expect_stacks();
  [[nodiscard]] Architecture find_architecture();
  [[nodiscard]] os::Descriptor open_file(const std::string& name) const;
  [[nodiscard]] std::string read_file(const std::string& name) const;
  [[nodiscard]] std::string read_name(std::uint64_t thread) const;
  [[nodiscard]] std::uint64_t program_id_at(std::string_view auxv) const;
  [[nodiscard]] bool finds_new_program();
  void read_command(Target& target, std::string text) const;
  void read_names_by_turns();
  void read_threads(Target& target);

  Attachment attachment_;
  pid_t pid_;
  os::Descriptor folder_;
  ProcessMemory* memory_ = nullptr;  // the target's
  ProcessModules modules_;
  ProgramId program_{};
  std::uint64_t program_at_ = 0;                          // its address
  os::Descriptor maps_;                                   // of this program; opened when first needed
  std::unordered_map<std::uint64_t, std::string> names_;  // of threads
  Texts texts_;                                           // of the first stop, until they are used
  std::uint64_t stops_ = 0;
  bool keeps_files_ = false;  // os::Readers::keep_mapped_files_of()
};

}  // namespace windlass::walk
