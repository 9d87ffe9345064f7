// A program under qemu-aarch64, stepped by the GDB remote protocol. Its memory is read from qemu's own process, where
// user-mode emulation of a 64-bit target on a 64-bit host puts every guest address at itself (guest_base 0).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace windlass::aarch64_judge {

struct CpuState {
  std::uint64_t x[31] = {};
  std::uint64_t sp = 0;
  std::uint64_t pc = 0;
  std::uint64_t d[8] = {};  // d8-d15
};

// The target stopped, or is no more.
struct Stop {
  enum Kind : std::uint8_t { kTrap, kSignal, kExited, kBroken } kind = kBroken;
  int signal = 0;  // GDB's number of it
};

class StubClient {
 public:
  StubClient() = default;
  StubClient(const StubClient&) = delete;
  StubClient& operator=(const StubClient&) = delete;
  ~StubClient();

  // Starts qemu-aarch64 with `cpu` on the program, stopped at its first instruction. False: problem() says why.
  bool start(const std::string& sysroot, const std::string& cpu, const std::vector<std::string>& command,
             bool bind_now);
  [[nodiscard]] const std::string& problem() const { return problem_; }
  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] const CpuState& state() const { return state_; }
  [[nodiscard]] std::uint64_t entry_point() const { return entry_point_; }  // AT_ENTRY

  // One instruction. `vectors`: read d8-d15 too.
  Stop step(bool vectors);
  // On to any of `addresses`, delivering a signal first if it is not 0.
  Stop run_to(std::span<const std::uint64_t> addresses, int signal);

  [[nodiscard]] bool read(std::uint64_t address, void* to, std::size_t size) const;

 private:
  bool connect_to(const std::string& path);
  bool send(std::string_view bytes);
  bool receive(std::string& packet);
  bool ask(std::string_view request, std::string& reply);
  bool parse_general(const std::string& packet);
  bool read_vectors();
  Stop parse_stop(const std::string& packet);
  Stop broken(std::string what);

  pid_t pid_ = -1;
  int socket_ = -1;
  std::string problem_;
  std::string received_;
  std::string directory_;
  CpuState state_;
  std::uint64_t entry_point_ = 0;
};

}  // namespace windlass::aarch64_judge
