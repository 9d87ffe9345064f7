// A process executed one instruction at a time, without address space randomisation.
#pragma once

#include <sys/user.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "exactness/peer.h"

namespace windlass::exactness {

// Registers by x86-64 DWARF number, 16 the pc.
struct MachineState {
  std::array<std::uint64_t, UJ_REGISTERS> reg{};
  [[nodiscard]] std::uint64_t pc() const { return reg[UJ_PC]; }
  [[nodiscard]] std::uint64_t sp() const { return reg[UJ_SP]; }
  [[nodiscard]] std::uint64_t rax() const { return reg[0]; }
};

// A line of /proc/PID/maps.
struct Mapping {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t offset = 0;
  bool executable = false;
  std::string path;
};

class Tracee {
 public:
  enum class Event {
    kStepped,  // one instruction was executed, or the pending signal's handler entered
    kSignal,   // a signal arrived instead; it is delivered by the next step
    kGone,     // the process ended
  };

  // Starts a program; it stands at its first instruction then. Empty, or what went wrong.
  [[nodiscard]] std::string start(char* const argv[]);
  Tracee() = default;
  Tracee(const Tracee&) = delete;
  Tracee& operator=(const Tracee&) = delete;
  ~Tracee();

  [[nodiscard]] Event step();
  // Lets it run until it has made the system call (kAnySystemCall: any) so many times, or is gone (false).
  static constexpr std::uint64_t kAnySystemCall = ~std::uint64_t{0};
  [[nodiscard]] bool run_past_system_call(std::uint64_t number, std::uint64_t times = 1);
  [[nodiscard]] const MachineState& state() const { return state_; }
  [[nodiscard]] bool signal_pending() const { return signal_ != 0; }
  // The last step delivered a signal.
  [[nodiscard]] bool delivered() const { return delivered_; }

  [[nodiscard]] int pid() const { return pid_; }
  [[nodiscard]] bool read(std::uint64_t address, void* to, std::size_t size) const;
  [[nodiscard]] bool word(std::uint64_t address, std::uint64_t& to) const { return read(address, &to, sizeof to); }
  // Writes a word into the process.
  [[nodiscard]] bool set_word(std::uint64_t address, std::uint64_t value) const;

  // Of the last reload(); null where nothing is mapped.
  [[nodiscard]] const Mapping* mapping(std::uint64_t address) const;
  [[nodiscard]] const std::vector<Mapping>& mappings() const { return mappings_; }
  // A count of how often the mappings may have changed. reload() after a system call that changes them.
  [[nodiscard]] std::uint64_t generation() const { return generation_; }
  void mappings_changed(bool executed);
  void reload();
  // The program's own entry point (behind the dynamic linker).
  [[nodiscard]] std::uint64_t entry() const;

 private:
  void fetch_state();
  void open_memory();

  int pid_ = -1;
  int memory_ = -1;
  int signal_ = 0;
  bool delivered_ = false;
  MachineState state_;
  std::vector<Mapping> mappings_;  // ascending
  std::uint64_t generation_ = 1;
};

}  // namespace windlass::exactness
