// Runs a program one instruction at a time and asks unwinders, at each, for the caller.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "exactness/peer.h"
#include "exactness/verdicts.h"

namespace windlass::exactness {

struct JudgeOptions {
  std::uint64_t instructions = 200'000;  // judge at most so many
  std::uint64_t skip = 0;                // so many first
  std::uint64_t most_steps = 0;          // give up after so many, judged or not; 0: 100 million
  std::uint64_t every = 1;               // and only every so manieth
  std::uint64_t whole_stacks = 0;        // every so many judged, unwind the whole stack; 0: never
  long begin_at_system_call = -1;        // skip until the program makes it (110, getppid: a marker)
  bool run_to_system_call = false;       // and do not step until then: fast, but its callers there stay unknown
  std::uint64_t run_system_calls = 0;    // let it run freely through so many; as run_to_system_call
  bool begin_at_entry = false;           // skip until the program's entry point: leaves the dynamic linker out
};

struct JudgedPeer {
  uj_unwind_function unwind;
  Tally tally;
};

struct JudgeReport {
  std::string error;  // empty: it ran
  std::uint64_t steps = 0;
  std::uint64_t judged = 0;
  std::uint64_t limbo = 0;      // not judged: a return address already popped, a longjmp on its way
  std::uint64_t rewritten = 0;  // not judged: the return address's slot was overwritten
  std::uint64_t unknown = 0;    // not judged: a stack whose beginning nobody knows
  std::uint64_t signals = 0;
  std::uint64_t deepest = 0;
};

// `argv` ends with a null pointer. The program's output goes where ours goes.
[[nodiscard]] JudgeReport judge(const JudgeOptions& options, char* const argv[], std::deque<JudgedPeer>& peers,
                                std::FILE* sites = nullptr);

}  // namespace windlass::exactness
