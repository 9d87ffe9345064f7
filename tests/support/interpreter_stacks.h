// Interpreted functions as windlass shows them: walks compared with the interpreter's own account, samples compared
// with the possible chains.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "profiler/profile/profile.h"
#include "support/run_command.h"
#include "windlass/function_ref.h"

namespace windlass::test {

struct Call {
  std::string function, file;
  std::size_t line = 0;
};

using Stacks = std::map<std::string, std::vector<std::string>>;  // of threads: "NAME FILE LINE", innermost first

// What is run, by thread, its calls as `complete` leaves them; `ends`: of the walks.
inline Stacks walk_interpreted(const std::string& what, std::set<std::string>& ends,
                               FunctionRef<void(std::vector<Call>& calls)> complete) {
  using nlohmann::json;
  Stacks stacks;
  std::istringstream lines(run(WINDLASS_COMMAND " walk --json " + what + " 2>/dev/null").output);
  for (std::string line; std::getline(lines, line);) {
    const json thread = json::parse(line);
    ends.insert(thread["end"].get<std::string>());
    std::vector<Call> calls;
    for (const json& frame : thread["frames"])
      for (const json& call : frame.value("interpreted", json::array()))
        calls.push_back({call.value("function", ""), call.value("file", ""), call.value("line", std::size_t{0})});
    complete(calls);
    std::vector<std::string>& to = stacks[std::to_string(thread["thread"].get<std::uint64_t>())];
    for (const Call& call : calls) to.push_back(fmt::format("{} {} {}", call.function, call.file, call.line));
  }
  return stacks;
}

struct InterpreterSamples {
  std::size_t all = 0, whole = 0;
  std::size_t evaluated = 0, named = 0;  // through the evaluator, and with what it runs
  std::size_t known = 0, wrong = 0;      // of the chains that are known
  std::size_t unknown = 0, frames = 0;   // with a function that is gone
  std::string first_wrong;

  void print(const std::string& what) const {
    std::printf(
        "%s: %zu samples, %zu whole, %zu of %zu through the evaluator with what it runs (%zu functions), %zu with one "
        "that is gone, %zu in known chains, %zu wrong\n",
        what.c_str(), all, whole, named, evaluated, frames, unknown, known, wrong);
  }
};

// Not what is C or assembly.
inline bool is_interpreted(const profile::Function& function) {
  const auto ends = [&](const char* extension) { return function.file.ends_with(extension); };
  return function.name == "[unknown function]" ||
         !(function.file.empty() || ends(".c") || ends(".h") || ends(".inc") || ends(".def") || ends(".S"));
}

// What the evaluator's locations ran in a sample, innermost first; the last of their lines is its own, if it has a
// name. A part of it that compilers put elsewhere has none, and is known by what it ran. Empty, the evaluator's
// locations are those that run something. False: it is not in the sample.
inline bool take_chain(const profile::Profile& profile, const profile::Sample& sample, const std::string& evaluator,
                       std::vector<Call>& to) {
  bool evaluated = false;
  for (const std::uint32_t location : sample.locations) {
    const auto& lines = profile.locations[location].lines;
    if (!evaluator.empty()) evaluated |= !lines.empty() && profile.functions[lines.back().function].name == evaluator;
    for (const auto& line : lines) {
      const profile::Function& function = profile.functions[line.function];
      if (!is_interpreted(function)) continue;
      to.push_back({function.name, function.file, line.line});
      evaluated = true;
    }
  }
  return evaluated;
}

// `is_known`: is it a chain that fault_of() knows all of? That says why it cannot be; empty: it can.
inline InterpreterSamples judge_samples(const profile::Profile& profile, const std::string& evaluator,
                                        FunctionRef<bool(const std::vector<Call>& chain)> is_known,
                                        FunctionRef<std::string(const std::vector<Call>& chain)> fault_of) {
  InterpreterSamples samples;
  for (const profile::Sample& sample : profile.samples) {
    samples.all += sample.count;
    if (sample.end != WL_END_COMPLETE) continue;
    samples.whole += sample.count;
    std::vector<Call> chain;
    samples.evaluated += take_chain(profile, sample, evaluator, chain) ? sample.count : 0;
    samples.frames += chain.size() * sample.count;
    samples.named += chain.empty() ? 0 : sample.count;
    if (std::ranges::any_of(chain, [](const Call& call) { return call.function == "[unknown function]"; })) {
      samples.unknown += sample.count;
      continue;
    }
    if (!is_known(chain)) continue;
    samples.known += sample.count;
    const std::string fault = fault_of(chain);
    if (fault.empty()) continue;
    samples.wrong += sample.count;
    if (samples.first_wrong.size() > 2000) continue;
    samples.first_wrong += fault + "\n";
    for (const Call& call : chain)
      samples.first_wrong += fmt::format("  {} {}:{}\n", call.function, call.file, call.line);
  }
  return samples;
}

inline void expect_right(const InterpreterSamples& samples) {
  EXPECT_EQ(samples.wrong, 0U) << samples.first_wrong;
  EXPECT_GT(samples.known, 20U);
  EXPECT_GE(samples.named * 100, samples.evaluated * 75) << "a busy machine is late to see a start, but not so late";
}

}  // namespace windlass::test
