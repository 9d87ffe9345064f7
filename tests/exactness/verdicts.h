// What a judge found: verdicts per unwinder, in total and per address.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "exactness/shadow_stack.h"

namespace windlass::exactness {

enum class Verdict : std::uint8_t {
  kExact,    // pc, sp and all preserved registers
  kPcSp,     // pc and sp; a register is wrong or unknown
  kWrong,    // claims a wrong pc or sp
  kEnds,     // says that the stack ends where it does not, or goes on where it ends
  kRefused,  // gives up
};
inline constexpr std::size_t kVerdicts = 5;
inline constexpr std::array<const char*, kVerdicts> kVerdictNames = {"EXACT", "PCSP", "WRONG", "ENDS", "REFUSED"};
using Counts = std::array<std::uint64_t, kVerdicts>;

// An address that was judged, and what went wrong there last.
struct Site {
  Counts counts{};
  std::uint8_t wrong_registers = 0;
  std::uint64_t entry = 0;  // of the function as it was called
  std::uint64_t claimed_pc = 0;
  std::uint64_t claimed_sp = 0;
};

// Whole stacks, frame by frame.
struct WholeStacks {
  std::uint64_t judged = 0;
  std::uint64_t right = 0;           // every frame, and the end
  std::uint64_t ended_by_error = 0;  // every frame, but an error instead of the end
  std::uint64_t bad = 0;             // a wrong frame, or one too many
  std::uint64_t incomplete = 0;      // right as far as it goes
};

class Tally {
 public:
  explicit Tally(std::string name) : name_(std::move(name)) {}

  // A register that the callee did not preserve is nobody's fault.
  void commit(const PendingVerdict& pending, std::uint8_t lost, std::uint64_t entry);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::uint64_t count(Verdict verdict) const { return counts_[static_cast<std::size_t>(verdict)]; }
  [[nodiscard]] std::uint64_t total() const;
  // In percent.
  [[nodiscard]] double exact_share() const;
  [[nodiscard]] double pc_sp_share() const;
  [[nodiscard]] std::string summary() const;
  // Every address with a verdict other than exact: one line each, tab-separated. `mapping` and `mnemonic` say what is
  // at an address.
  using Describe = std::function<std::string(std::uint64_t pc)>;
  void print_sites(std::FILE* to, const Describe& describe) const;

  WholeStacks whole;
  double nanoseconds = 0;  // spent in the unwinder
  std::uint64_t calls = 0;

 private:
  std::string name_;
  Counts counts_{};
  std::unordered_map<std::uint64_t, Site> sites_;
};

// One frame asked for at one stop.
[[nodiscard]] PendingVerdict verdict_on(const ShadowFrame& truth, std::uint64_t pc, const uj_frame& claim, int result);
// All frames: `claims` has those that are claimed. Where some in the middle are missing, and nothing else is wrong, the
// verdict has to wait: SkippedCallers.
void judge_whole(const std::vector<ShadowFrame*>& truth, bool open, const uj_frame* claims, int result,
                 std::uint16_t peer, WholeStacks& to);

}  // namespace windlass::exactness
