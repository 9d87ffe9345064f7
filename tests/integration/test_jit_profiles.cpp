// Published code, as `windlass walk` and `windlass record` see it: whole stacks, and at each frame the name that the
// function had when the sample was taken.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "profiler/export/pprof.h"
#include "profiler/profile/profile.h"
#include "support/privilege.h"
#include "support/run_command.h"

namespace windlass {
namespace {

using test::run;

// That it was sampled at all: how many samples there are in a time is the machine's.
constexpr std::uint64_t kEnough = 100;

class JitProfiles : public testing::Test {
 protected:
  void SetUp() override {
    std::string folder = testing::TempDir() + "windlass-jit-XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Of a recording of a program in the folder; its output in output_.
  profile::Profile record(const std::string& options, const std::string& program) {
    output_ =
        run(fmt::format("cd '{}' && '{}' record {} -o p.pb.gz -- {} 2>&1", folder_, WINDLASS_COMMAND, options, program))
            .output;
    auto profile = exporter::read_pprof_file(folder_ + "/p.pb.gz");
    EXPECT_TRUE(profile) << output_;
    return profile ? std::move(*profile) : profile::Profile();
  }

  // The names of a sample's frames, innermost first; "?" where there is none.
  static std::vector<std::string> names_of(const profile::Profile& profile, const profile::Sample& sample) {
    std::vector<std::string> names;
    for (const auto location : sample.locations) {
      const auto& lines = profile.locations[location].lines;
      if (lines.empty()) names.emplace_back("?");
      for (const auto& line : lines) names.push_back(profile.functions[line.function].name);
    }
    return names;
  }

  std::string folder_, output_;
};

// Is there a frame in code made at run time that nobody has given a name?
bool has_nameless_code(const profile::Profile& profile, const profile::Sample& sample) {
  return std::ranges::any_of(sample.locations, [&](const auto it) {
    const profile::Location& location = profile.locations[it];
    const std::string& path = profile.modules[location.module].path;
    const bool nameless = location.lines.empty() || profile.functions[location.lines[0].function].name == "[jit]";
    return nameless && (path == "[anon]" || path == "[unmapped]");
  });
}

struct Counts {
  std::uint64_t samples = 0, whole = 0, right = 0;
  std::string wrong;  // the first
};

// ---- functions that stay --------------------------------------------------------------------------------------------

// All stubs in their order, below in_code; in a stub's own code, where some of them are not called yet, the rest.
bool is_chain(const std::vector<std::string>& names) {
  unsigned next = 0;
  bool begun = false;
  for (const std::string& name : names) {
    if (!name.starts_with("stub") || name.size() != 5) continue;
    if (!begun) next = static_cast<unsigned>(name[4] - '0');
    if (name != "stub" + std::to_string(next++)) return false;
    begun = true;
  }
  return next == 8;
}

Counts count_chains(const profile::Profile& profile, auto&& names_of) {
  Counts counts;
  for (const auto& sample : profile.samples) {
    const std::vector<std::string> names = names_of(profile, sample);
    if (std::ranges::none_of(names, [](const auto& name) { return name.find("in_code") != std::string::npos; }))
      continue;
    counts.samples += sample.count;
    counts.whole += profile::is_whole(sample.end) ? sample.count : 0;
    counts.right += is_chain(names) ? sample.count : 0;
    if (!is_chain(names) && counts.wrong.empty()) counts.wrong = fmt::format("{}", fmt::join(names, "\n"));
  }
  return counts;
}

class PublishedJitProfiles : public JitProfiles, public testing::WithParamInterface<const char*> {};

TEST_P(PublishedJitProfiles, AWalkOfAProcessSeesThem) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl(WINDLASS_JIT_TARGET, WINDLASS_JIT_TARGET, GetParam(), folder_.c_str(), "60", nullptr);
    ::_exit(126);
  }
  std::string seen;
  // Until it has come to where it computes.
  for (int i = 0; i < 3000 && seen.find("in_code") == std::string::npos; ++i) {
    ::usleep(100'000);
    seen = run(fmt::format("'{}' walk -v --lines {} 2>&1", WINDLASS_COMMAND, child)).output;
  }
  const auto core = run(fmt::format("command -v gcore && cd '{}' && gcore -o core {} && '{}' walk --core core.{} 2>&1",
                                    folder_, child, WINDLASS_COMMAND, child));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  const auto in_order = [](const std::string& text) {
    std::size_t at = text.find("in_code");
    for (unsigned i = 0; i < 8 && at != std::string::npos; ++i) at = text.find("stub" + std::to_string(i), at);
    return at != std::string::npos && text.find("main", at) != std::string::npos;
  };
  EXPECT_TRUE(in_order(seen)) << seen;
  if (std::string(GetParam()) == "jitdump") {
    EXPECT_NE(seen.find(" at generated.js:42"), std::string::npos) << seen;
  }
  if (core.status == 0 && std::string(GetParam()) == "manager") {  // a core has no files
    EXPECT_TRUE(in_order(core.output)) << core.output;
  }
}
INSTANTIATE_TEST_SUITE_P(Ways, PublishedJitProfiles, testing::Values("manager", "jitdump"),
                         [](const auto& way) { return std::string(way.param); });

TEST_F(JitProfiles, ARecordingSeesPublishedFunctions) {
  if (const std::string reason = test::no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  const auto profile = record("-F 499", std::string(WINDLASS_JIT_TARGET) + " manager . 2");
  const Counts counts = count_chains(profile, names_of);
  fmt::print("{} samples, {} whole, {} with the right names\n", counts.samples, counts.whole, counts.right);
  EXPECT_GT(counts.samples, kEnough) << output_;
  EXPECT_GE(counts.whole, counts.samples - counts.samples / 1000) << counts.wrong << output_;
  EXPECT_EQ(counts.right, counts.samples) << counts.wrong;
}

// The perf map is read while the process lives, because the process removes it at its end.
TEST_F(JitProfiles, ARecordingReadsThePerfMapWhileItIsThere) {
  if (const std::string reason = test::no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  const auto profile = record(
      "-F 499", fmt::format("sh -c '\"{}\" perfmap /tmp 2 & p=$!; wait $p; rm /tmp/perf-$p.map'", WINDLASS_JIT_TARGET));
  const Counts counts = count_chains(profile, names_of);
  fmt::print("{} samples, {} whole, {} with the right names\n", counts.samples, counts.whole, counts.right);
  EXPECT_GT(counts.samples, kEnough) << output_;
  EXPECT_EQ(counts.right, counts.samples) << counts.wrong;
}

// ---- functions that come and go -------------------------------------------------------------------------------------

// "f<generation>_<number>_<leaf>". The frames must be of one generation, from one of its functions up to the first. If
// a leaf is on the stack, its number must agree.
bool is_generated(const std::string& name) {
  return name.size() > 1 && name[0] == 'f' && name[1] >= '0' && name[1] <= '9';
}

bool belongs_together(const std::vector<std::string>& names) {
  std::string leaf, generation, name_leaf;
  int last = -1;
  for (const std::string& name : names) {
    int number = 0;
    unsigned of = 0, below = 0;
    if (const auto at = name.find("leaf<"); at != std::string::npos) leaf = std::to_string(std::atoi(&name[at + 5]));
    if (std::sscanf(name.c_str(), "f%u_%d_%u", &of, &number, &below) != 3) continue;
    if (!generation.empty() && generation != std::to_string(of)) return false;
    if (last >= 0 && number != last - 1) return false;
    generation = std::to_string(of);
    name_leaf = std::to_string(below);
    last = number;
  }
  return last == 0 && (leaf.empty() || leaf == name_leaf);
}

// Names are asked for when the process runs on again.
TEST_F(JitProfiles, WalksOfAChurningHeapHaveTheNamesOfTheirTimes) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl(WINDLASS_JIT_CHURN, WINDLASS_JIT_CHURN, "60", "5000", nullptr);
    ::_exit(126);
  }
  ::usleep(500'000);
  const auto seen = run(fmt::format("'{}' walk --json --repeat 1000 --interval 1ms {} 2>&1", WINDLASS_COMMAND, child));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  std::istringstream lines(seen.output);
  unsigned walks = 0, right = 0;
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> names;
    const std::string key = "\"function\":";
    for (std::size_t at = line.find(key); at != std::string::npos; at = line.find(key, at + 1)) {
      const std::string value = line.substr(at + key.size(), line.find(',', at) - at - key.size());
      names.push_back(value == "null" ? "?" : value.substr(1, value.size() - 2));
      if (const auto at_less = names.back().find("\\u003c"); at_less != std::string::npos)
        names.back().replace(at_less, 6, "<");
    }
    if (std::ranges::none_of(names, [](const auto& name) { return name.find("leaf") != std::string::npos; })) continue;
    ++walks;
    right += belongs_together(names) && std::ranges::find(names, "?") == names.end() ? 1 : 0;
  }
  fmt::print("{} walks, {} with the right names\n", walks, right);
  EXPECT_GT(walks, 0u)  // most stops are where it asks for the time
      << seen.output.substr(0, 3000);
  EXPECT_EQ(right, walks) << seen.output.substr(0, 3000);
}

// The number that stands before a text; 0 if that is not said.
std::uint64_t number_before(const std::string& said, const std::string& text) {
  const auto end = said.find(text);
  if (end == std::string::npos) return 0;
  const auto begin = said.find_last_not_of("0123456789,", end - 1);
  std::string digits = said.substr(begin + 1, end - begin - 1);
  std::erase(digits, ',');
  return std::strtoull(digits.c_str(), nullptr, 10);
}

// Of the samples in a churning heap's code.
Counts count_churn(const profile::Profile& profile, auto&& names_of) {
  Counts counts;
  for (const auto& sample : profile.samples) {
    const std::vector<std::string> names = names_of(profile, sample);
    const auto has = [&](const char* part) {
      return std::ranges::any_of(names, [&](const auto& name) { return name.find(part) != std::string::npos; });
    };
    const bool nameless = has_nameless_code(profile, sample);
    const bool in_code = nameless || has("leaf<") || std::ranges::any_of(names, is_generated);
    if (!in_code) continue;
    const bool right = belongs_together(names);
    counts.samples += sample.count;
    counts.whole += profile::is_whole(sample.end) ? sample.count : 0;
    counts.right += right ? sample.count : 0;
    if (!right && counts.wrong.size() < 4000)
      counts.wrong += fmt::format("{}\n{}\n\n", profile::end_text(sample.end), fmt::join(names, "\n"));
  }
  fmt::print("{} samples in the code, {} whole, {} with the right names\n", counts.samples, counts.whole, counts.right);
  return counts;
}

// The kernel side reads the table when the sample is taken, from the moment on when it knows of the table. That moment
// depends on the machine, so only most of the samples are required.
TEST_F(JitProfiles, EachFunctionOfAChurningHeapHasTheNameOfItsTime) {
  if (const std::string reason = test::no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  const auto profile = record("-v -F 999", std::string(WINDLASS_JIT_CHURN) + " 5 1000");
  const Counts counts = count_churn(profile, names_of);
  const std::uint64_t by_kernel = number_before(output_, " stacks by the tables of code managers");
  const std::uint64_t by_agent = number_before(output_, " unwound by the agent");
  fmt::print("{} by the kernel side, {} of all by the agent\n", by_kernel, by_agent);
  EXPECT_GT(counts.samples, kEnough) << output_;
  EXPECT_GE(counts.whole, counts.samples - counts.samples / 1000) << counts.wrong << output_;
  EXPECT_EQ(counts.right, counts.samples) << counts.wrong;
  EXPECT_GT(by_kernel, counts.samples / 2) << output_;
}

#if defined(WINDLASS_ASMJIT_CHURN)
// 1,000 functions a second that AsmJit makes, frames of six shapes, published in three ways.
class AsmJitProfiles : public JitProfiles, public testing::WithParamInterface<const char*> {};

TEST_P(AsmJitProfiles, EachFunctionHasTheNameOfItsTime) {
  if (const std::string reason = test::no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  const std::string folder = std::string(GetParam()) == "perfmap" ? "/tmp" : ".";
  const Counts counts =
      count_churn(record("-F 999", fmt::format("sh -c '\"{}\" 5 1000 {} {} & p=$!; wait $p; rm -f /tmp/perf-$p.map'",
                                               WINDLASS_ASMJIT_CHURN, GetParam(), folder)),
                  names_of);
  EXPECT_GT(counts.samples, kEnough) << output_;
  // A perf map has no rows: what is followed without them is not always proven.
  const std::uint64_t share = std::string(GetParam()) == "perfmap" ? 100 : 1000;
  EXPECT_GE(counts.whole, counts.samples - counts.samples / share) << counts.wrong << output_;
  EXPECT_EQ(counts.right, counts.samples) << counts.wrong;
}
INSTANTIATE_TEST_SUITE_P(Ways, AsmJitProfiles, testing::Values("manager", "perfmap", "jitdump"),
                         [](const auto& way) { return std::string(way.param); });
#endif

// ---- jitdump --------------------------------------------------------------------------------------------------------

class JitdumpProfiles : public JitProfiles, public testing::WithParamInterface<const char*> {};

TEST_P(JitdumpProfiles, ARecordingReadsAJitdump) {
  if (const std::string reason = test::no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  const auto profile = record("-F 499", fmt::format("{} {} . 2", WINDLASS_JIT_TARGET, GetParam()));
  const Counts counts = count_chains(profile, names_of);
  fmt::print("{} samples, {} whole, {} with the right names\n", counts.samples, counts.whole, counts.right);
  EXPECT_GT(counts.samples, kEnough) << output_;
  EXPECT_GE(counts.whole, counts.samples - counts.samples / 1000) << counts.wrong << output_;
  EXPECT_EQ(counts.right, counts.samples) << counts.wrong;
  std::size_t stubs = 0;
  for (const profile::Location& location : profile.locations) {
    if (location.lines.empty()) continue;
    const profile::Function& function = profile.functions[location.lines[0].function];
    if (!function.name.starts_with("stub")) continue;
    ++stubs;
    EXPECT_EQ(function.file, "generated.js");
    EXPECT_EQ(location.lines[0].line, 42u);
  }
  EXPECT_GE(stubs, std::string_view(GetParam()) == "moved" ? 16u : 8u) << "at each place";
}
INSTANTIATE_TEST_SUITE_P(Ways, JitdumpProfiles, testing::Values("jitdump", "moved"),
                         [](const auto& way) { return std::string(way.param); });

// What stands before the fault counts.
TEST_F(JitProfiles, ARecordingSaysWhatIsWrongWithAJitdump) {
  if (const std::string reason = test::no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  const auto profile =
      record("-F 499", fmt::format("sh -c '\"{}\" jitdump . 2 & p=$!; while ! [ -s jit-$p.dump ]; do sleep 0.05; done; "
                                   "sleep 0.2; head -c 16 /dev/zero >>jit-$p.dump; wait $p'",
                                   WINDLASS_JIT_TARGET));
  EXPECT_NE(output_.find("jitdump record that is shorter than its header"), std::string::npos) << output_;
  const Counts counts = count_chains(profile, names_of);
  EXPECT_GT(counts.samples, kEnough) << output_;
  EXPECT_EQ(counts.right, counts.samples) << counts.wrong;
}

// node_chains.js: "inner_7" is called by "middle_7" alone, that by "outer_7". The frames of these from an inner one
// outwards are all of one generation, as far as the stack goes.
constexpr const char* kParts[] = {"inner_", "middle_", "outer_"};

// Which part a name is of; what follows is its generation. std::size(kParts): of none.
std::size_t part_of(const std::string& name) {
  const auto at = std::ranges::find_if(kParts, [&](const char* part) { return name.starts_with(part); });
  return static_cast<std::size_t>(at - std::begin(kParts));
}
std::string generation_of(const std::string& name) { return name.substr(name.find('_') + 1); }
bool is_part(const std::string& name) { return part_of(name) != std::size(kParts); }

enum class JsChain : std::uint8_t { kRight, kPartMissing, kWrong };

JsChain judge_js_chain(const std::vector<std::string>& names, bool truncated) {
  std::string generation;
  std::size_t next = 0;
  bool missing = false;
  for (const std::string& name : names) {
    if (!is_part(name)) continue;  // builtins between, and frames without a name
    // In a caller's own code, what is called is not there yet.
    if (generation.empty()) next = part_of(name), generation = generation_of(name);
    if (generation_of(name) != generation) return JsChain::kWrong;
    missing |= part_of(name) != next;  // or it has the name of what took its place
    next = part_of(name) + 1;
  }
  missing |= !truncated && next != std::size(kParts);
  return missing ? JsChain::kPartMissing : JsChain::kRight;
}

// As it is, without a jitdump: V8 is read.
TEST_F(JitProfiles, ARecordingOfNodeHasTheNamesOfItsTimes) {
  if (const std::string reason = test::no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  if (run("node --version").status != 0) GTEST_SKIP() << "there is no node";
  const auto profile = record("-F 999", "node '" WINDLASS_NODE_CHAINS "' 4");
  Counts counts;
  std::int64_t wrong = 0;
  std::set<std::string> generations;
  for (const auto& sample : profile.samples) {
    const std::vector<std::string> names = names_of(profile, sample);
    if (std::ranges::none_of(names, is_part)) continue;
    counts.samples += sample.count;
    const bool truncated = !profile::is_whole(sample.end);
    counts.whole += truncated ? 0 : sample.count;
    const JsChain chain = judge_js_chain(names, truncated);
    const bool right = chain == JsChain::kRight;
    counts.right += right ? sample.count : 0;
    wrong += chain == JsChain::kWrong ? sample.count : 0;
    for (const std::string& name : names)
      if (name.starts_with(kParts[2])) generations.insert(generation_of(name));
    if (!right && counts.wrong.size() < 4000)
      counts.wrong += fmt::format("{}\n{}\n\n", profile::end_text(sample.end), fmt::join(names, "\n"));
  }
  fmt::print("{} samples in JavaScript of {} generations, {} whole, {} with the right names\n", counts.samples,
             generations.size(), counts.whole, counts.right);
  EXPECT_GT(counts.samples, kEnough) << output_;
  EXPECT_GT(generations.size(), 50u);
  EXPECT_GE(counts.whole, counts.samples - counts.samples / 100) << output_;
  // V8 is read milliseconds later: code that was thrown away by then has no name, or that of what took its place
  // (docs/explanation/v8.md). Never does a function of one generation stand below one of another.
  EXPECT_EQ(wrong, 0) << counts.wrong;
  EXPECT_GE(counts.right * 100, counts.samples * 98) << counts.wrong;
}

}  // namespace
}  // namespace windlass
