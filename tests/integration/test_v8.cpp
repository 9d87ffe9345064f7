// Stacks of JavaScript in node and deno, from outside, against what V8 itself prints of them: JavaScript of our own
// (v8/chains.js) on the releases of node that can be had, and on deno, in each of the ways in which V8 runs functions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "integration/v8/program.h"
#include "runtimes/v8/find.h"
#include "support/find_in_images.h"
#include "support/flipping_memory.h"
#include "support/methods_of.h"
#include "support/privilege.h"
#include "support/run_command.h"
#include "support/tested_version.h"

namespace windlass {
namespace {

using nlohmann::json;
using test::run;

struct Stack {
  std::string end;
  std::vector<std::string> frames;  // "NAME FILE LINE" of JavaScript's, inlined ones too, up to where C++ called it
};

// Functions of JavaScript have files that are scripts; builtins have none, C++ has others.
bool is_script(const std::string& file) {
  return file.ends_with(".js") || file.ends_with(".cjs") || file.starts_with("node:");
}

// WebAssembly's have their module, which V8 prints with a hash behind its name, and no line.
void add_function(const std::string& name, const std::string& file, int line, std::vector<std::string>& to) {
  if (is_script(file)) to.push_back(fmt::format("{} {} {}", name, file, line));
  if (file.starts_with("wasm:")) to.push_back(fmt::format("{} {}", name, file.substr(0, file.rfind('-'))));
}

Stack walk(pid_t pid) {
  std::istringstream lines(run(fmt::format(WINDLASS_COMMAND " walk --json -i -l -p {} 2>/dev/null", pid)).output);
  for (std::string line; std::getline(lines, line);) {
    const json read = json::parse(line);
    Stack stack{read["end"], {}};
    const auto add = [&](const json& frame) {
      const std::string name = frame["function"].is_string() ? frame["function"].get<std::string>() : "";
      const std::string file =
          frame.contains("file") && frame["file"].is_string() ? frame["file"].get<std::string>() : "";
      add_function(name, file, frame.value("line", 0), stack.frames);
    };
    for (const json& frame : read["frames"]) {
      if (frame.contains("inlined"))
        for (const json& inlined : frame["inlined"]) add(inlined);
      add(frame);
    }
    if (!stack.frames.empty()) return stack;
  }
  return {};
}

struct Printed {
  std::vector<std::string> printed, walked;
};

Printed print_and_walk(const std::string& program_file, const test::NodeWay& way) {
  const test::NodeProgram program(program_file, way, {"stack", way.seconds});
  std::vector<std::string> printed;
  for (const std::string& line : program.printed()) {
    std::istringstream words(line);
    std::string name, file, number;
    std::getline(words, name, '\t') && std::getline(words, file, '\t') && std::getline(words, number);
    if (way.is_deno() && file.starts_with('/')) file.insert(0, "file://");
    add_function(name == "null" ? "(anonymous)" : name, file, std::atoi(number.c_str()), printed);
  }
  EXPECT_GT(printed.size(), 15U);
  const Stack stack = walk(program.pid());
  EXPECT_EQ(stack.end, "complete");
  std::vector<std::string> walked = stack.frames;
  // Where it waits is another line than where it printed.
  if (printed.size() < 2 || walked.size() < 2) return {};
  EXPECT_TRUE(walked.front().starts_with("bottom ")) << walked.front();
  walked.erase(walked.begin());
  printed.erase(printed.begin());
  return {printed, walked};
}

// Optimised code of deno and node 23 has no tables of lines and of inlined functions.
void expect_functions_that_v8_prints(const std::vector<std::string>& walked, const std::vector<std::string>& printed) {
  ASSERT_GT(walked.size(), printed.size() / 3);
  const auto function = [](const std::string& line) { return line.substr(0, line.rfind(' ')); };
  auto from = printed.begin();
  for (const std::string& line : walked) {
    from = std::find_if(from, printed.end(), [&](const std::string& it) { return function(it) == function(line); });
    ASSERT_NE(from, printed.end()) << line;
    ++from;
  }
}

void expect_what_v8_prints(const std::string& program, const test::NodeWay& way) {
  SCOPED_TRACE(fmt::format("{} {}", program, way.name));
  const auto [printed, walked] = print_and_walk(program, way);
  ASSERT_FALSE(walked.empty());
  if (way.has_tables)
    EXPECT_EQ(walked, printed);
  else
    expect_functions_that_v8_prints(walked, printed);
}

TEST(V8, StacksAreWhatV8Prints) {
  const auto releases = test::all_node_releases();
  if (releases.empty()) GTEST_SKIP() << "no node";
  for (const test::NodeRelease& release : releases)
    for (const test::NodeWay& way : test::node_ways(release.major)) expect_what_v8_prints(release.program, way);
}

TEST(V8, DenosStacksAreWhatV8Prints) {
  const std::string deno = test::deno();
  if (deno.empty()) GTEST_SKIP() << "no deno";
  for (const test::NodeWay& way : test::deno_ways()) expect_what_v8_prints(deno, way);
}

// What lies, changes while it is read or cannot be read: an end, and nothing that is not where it says.
TEST(V8, MemoryThatLiesIsBorne) {
  const auto releases = test::node_releases();
  if (releases.empty()) GTEST_SKIP() << "no node";
  for (const test::NodeRelease& release : {releases.front(), releases.back()}) {
    SCOPED_TRACE(release.program);
    const test::NodeProgram program(release.program, {"tiers", {}, "1.5"}, {"stack", "1.5"});
    ASSERT_FALSE(program.printed().empty());
    const auto maps = test::maps_of(program.pid());
    const auto image = test::find_in_images(test::FlippingMemory(program.pid(), 0), maps, runtimes::v8::find_metadata);
    ASSERT_TRUE(image);
    for (const unsigned odds : {0U, 50U, 5U}) {
      const auto memory = std::make_shared<test::FlippingMemory>(program.pid(), odds);
      const auto runtime = runtimes::v8::open(memory, *image, MappedFile::open(release.program));
      for (const auto& map : maps)
        if (map.executable && !map.has_file()) runtime->note_code(map);
      std::size_t found = 0, named = 0;
      for (const auto& map : maps) {
        if (!map.executable || map.has_file()) continue;
        const std::uint64_t end = std::min(map.end, map.begin + (1U << 20));
        found += test::methods_of(*runtime, map.begin + 1, end, 999, [&](const auto& method, std::uint64_t pc) {
          std::vector<sources::NamedFunction> functions;
          runtime->functions_at(method, pc, functions);
          named += !functions.empty() && !functions.back().file.empty() ? 1 : 0;
          (void)runtime->is_still(method);
          Registers frame(Architecture::kX86_64);  // whose slots are code
          frame.set_pc(CodeAddress::instruction(pc));
          frame.set_sp(map.begin);
          frame.set(6, pc / 8 * 8);
          if (const auto function = runtime->frame_function(method, pc, frame, *memory))
            (void)runtime->name_of(*function);
        });
      }
      if (odds == 0) {
        EXPECT_GT(found, 10U);
        EXPECT_GT(named, 10U);
      }
    }
  }
}

// Of the frames of a folded line those of the chain, which is left and right by turns with spin at the end.
bool is_possible(const std::vector<std::string>& chain) {
  for (std::size_t i = 0; i < chain.size(); ++i) {
    const bool last = i + 1 == chain.size();
    if (i == 0 ? chain[i] != "left" : chain[i] == chain[i - 1]) return false;
    if (chain[i] == "spin" && !last) return false;
  }
  return true;
}

std::vector<std::string> chain_of(const std::string& line) {
  std::vector<std::string> chain;
  std::istringstream frames(line.substr(0, line.rfind(' ')));
  for (std::string frame; std::getline(frames, frame, ';');)
    if (frame == "left" || frame == "right" || frame == "spin") chain.push_back(frame);
  return chain;
}

// How a program is sampled. The agent must have caught up with the start of a large program before the program ends.
struct Sampled {
  unsigned frequency = 1999;  // Hz
  unsigned seconds = 2;
};

void expect_possible_stacks(const std::string& kind, const std::string& program, const test::NodeWay& way,
                            const Sampled& sampled = {}) {
  SCOPED_TRACE(fmt::format("{} {}", program, way.name));
  const std::string file = test::kV8Folder + "/work.pb.gz";
  std::string options;
  for (const std::string& option : way.options) options += option + " ";
  const auto recorded = run(fmt::format(WINDLASS_COMMAND " record -F {} -o {} -- {} {}{} work {} 2>&1",
                                        sampled.frequency, file, program, options, way.script, sampled.seconds));
  ASSERT_EQ(recorded.status, 0) << recorded.output;
  std::size_t whole = 0, all = 0, at_work = 0, at_regexp = 0, wrong = 0;
  std::string first_wrong;
  std::istringstream lines(run(WINDLASS_COMMAND " report --folded " + file).output);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t count = std::stoul(line.substr(line.rfind(' ')));
    if (line.find("[truncated: no time") != std::string::npos) continue;  // the machine did something else
    all += count;
    if (line.find("[truncated") != std::string::npos) continue;
    whole += count;
    if (line.find(";[RegExp]") != std::string::npos) at_regexp += count;
    const std::vector<std::string> chain = chain_of(line);
    if (!chain.empty()) at_work += count;
    if (is_possible(chain)) continue;
    wrong += count;
    if (first_wrong.size() < 2000) first_wrong += line + "\n";
  }
  ::printf("%s %s: %zu of %zu whole, %zu at work, %zu wrong\n", program.c_str(), way.name, whole, all, at_work, wrong);
  test::tested_version(kind, test::version_of(program + " --version"), way.name, all, whole, wrong);
  EXPECT_GT(all, 20U);
  EXPECT_LE(wrong * 1000, all) << first_wrong;  // docs/explanation/v8.md: a name may be missing, or another's
  EXPECT_GT(at_work, 20U) << recorded.output;
  EXPECT_TRUE(way.is_wasm() || at_regexp > 0);          // 38 to 66 were seen
  EXPECT_GE(whole * 100, all * 90) << recorded.output;  // 95.6 to 99.6% were seen
}

TEST(V8, SamplesHaveTheStacksThatThereCanBe) {
  if (const std::string reason = test::no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  const auto releases = test::node_releases();
  if (releases.empty()) GTEST_SKIP() << "no node";
  for (const test::NodeRelease& release : releases)
    for (const test::NodeWay& way : test::node_ways(release.major)) {
      if (!test::whole() && std::string_view(way.name) != "interpreted" && std::string_view(way.name) != "tiers" &&
          std::string_view(way.name) != "Liftoff" && std::string_view(way.name) != "copied builtins")
        continue;
      expect_possible_stacks("node (V8)", release.program, way);
    }
}

TEST(V8, SamplesOfDenoHaveTheStacksThatThereCanBe) {
  if (const std::string reason = test::no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  const std::string deno = test::deno();
  if (deno.empty()) GTEST_SKIP() << "no deno";
  for (const test::NodeWay& way : test::deno_ways()) {
    if (!test::whole() && std::string_view(way.name) != "tiers") continue;
    expect_possible_stacks("deno (V8)", deno, way, {.frequency = 999, .seconds = 5});
  }
}

}  // namespace
}  // namespace windlass
