// Conditions for `windlass record`. Each is a sentence about the machine and, if the condition is not met, the way out.
// `windlass doctor` prints all of them, `windlass record` the one that made it fail.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "profiler/doctor/system_error.h"
#include "profiler/doctor/system_facts.h"
#include "profiler/doctor/system_trials.h"

namespace windlass::profiler {

enum class ProbeState : std::uint8_t {
  kOk,
  kLimited,  // recording works, but something will be missing
  kRefused,  // recording cannot work
};
[[nodiscard]] const char* probe_state_word(ProbeState state);  // "ok", "limited", "refused"

struct Probe {
  std::string name;
  ProbeState state = ProbeState::kOk;
  std::string seen;     // what was found, as a sentence
  std::string way_out;  // a command line or a setting; empty where nothing is wrong
  RefusalKind kind = RefusalKind::kOther;
};

// In this order the cause of a refusal stands before its consequences. For example, if /proc is not as it should be,
// its files about this process mean nothing.
[[nodiscard]] std::vector<Probe> judge(const SystemFacts& facts, const SystemTrials& trials);

enum class Verdict : std::uint8_t { kWorks, kLimited, kRefused };
struct Diagnosis {
  std::vector<Probe> probes;
  Verdict verdict = Verdict::kWorks;
  std::string sentence;  // "record -a works"
};
// `own_events`: this user's own processes can be sampled by perf events, which is what record falls back on.
[[nodiscard]] Diagnosis conclude(const SystemFacts& facts, std::vector<Probe> probes, bool own_events);

// The refusal behind a failure with `error`, if a probe finds one: the first that is refused.
[[nodiscard]] const Probe* first_refused(const std::vector<Probe>& probes);
// "what was seen: way out", for a single line.
[[nodiscard]] std::string refusal_text(const Probe& probe);

// What a recording that works will not show, each a sentence; empty on a whole machine with all rights.
[[nodiscard]] std::vector<std::string> recording_limits(const SystemFacts& facts);

// What makes it pointless to begin: no /proc, or that of another PID namespace. Asked first, as nothing fails by it.
[[nodiscard]] std::optional<SystemError> refuse_place(const SystemFacts& facts);

// How this process would come to hold a capability that it lacks.
[[nodiscard]] std::string way_to(const SystemFacts& facts, Capability capability);
// Why a process may not be recorded whose /proc files were refused with `error`; `hidden`: it has none here (hidepid).
[[nodiscard]] SystemError refuse_target(const SystemFacts& facts, std::uint32_t pid, bool hidden, int error);

// The command line that gives this program's file what it needs for good.
[[nodiscard]] std::string setcap_command(const SystemFacts& facts);

// ---- single probes, for tests and judge() ---------------------------------------------------------------------------

[[nodiscard]] Probe ok(std::string name, std::string seen);
[[nodiscard]] Probe limited(std::string name, std::string seen, std::string way_out);
[[nodiscard]] Probe refused(std::string name, RefusalKind kind, std::string seen, std::string way_out);

[[nodiscard]] Probe probe_pid_namespace(const SystemFacts& facts);
[[nodiscard]] std::vector<Probe> probe_kernel(const SystemFacts& facts, const SystemTrials& trials);
[[nodiscard]] std::vector<Probe> probe_rights(const SystemFacts& facts, const SystemTrials& trials);
[[nodiscard]] std::vector<Probe> probe_surroundings(const SystemFacts& facts);

}  // namespace windlass::profiler
