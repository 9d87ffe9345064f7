// report --annotate: sums by source line and by instruction, the disassembly beside objdump's, and the command.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>

#include <fmt/format.h>

#include "base/mapped_file.h"
#include "lookup/sources/unwind_source.h"
#include "profiler/annotate/annotation.h"
#include "profiler/annotate/annotation_output.h"
#include "profiler/annotate/function_code.h"
#include "profiler/annotate/jump_lanes.h"
#include "profiler/export/pprof.h"
#include "support/run_command.h"
#include "symbols/symbolize.h"

namespace windlass {
namespace {

constexpr const char* kWork = "work(long const*, long)";

// Samples of CPU time, which are counted.
profile::Profile counted() {
  profile::Profile profile;
  profile.events[0].period = 1'000'000;
  return profile;
}

// A sample at each byte of the program's code that names `work(long const*, long)`, each of another weight.
profile::Profile sampled_work(const std::string& program) {
  profile::Profile profile = counted();
  const auto file = MappedFile::open(program);
  const auto source = sources::open_source(file->bytes(), image::PeLayout::kFile);
  profile.modules.push_back({.path = program, .build_id = std::string((*source)->build_id())});
  (*source)->for_each_function(
      [&](const sources::Function& function) {
        for (std::uint64_t at = function.begin; at < function.end; ++at)
          profile.locations.push_back({.module = 0, .address = at});
        return true;
      },
      [](const Error&) {});
  (void)symbols::symbolize(profile);
  for (std::uint32_t i = 0; i < profile.locations.size(); ++i) {
    const auto& lines = profile.locations[i].lines;
    if (!lines.empty() && profile.functions[lines.back().function].name == kWork)
      profile.samples.push_back({.locations = {i}, .count = i + 1, .pid = 1, .tid = 1});
  }
  return profile;
}

std::uint64_t sum_of(const profile::Profile& profile) {
  std::uint64_t sum = 0;
  for (const auto& sample : profile.samples) sum += sample.count;
  return sum;
}

TEST(Annotate, EachSampleIsAtItsLineAndItsInstruction) {
  const profile::Profile profile = sampled_work(WINDLASS_ANNOTATE_WORK);
  ASSERT_GT(profile.samples.size(), 40u);
  const auto of = annotate::annotate(profile, shown_by_default(profile), kWork);
  const std::uint64_t all = sum_of(profile);
  EXPECT_EQ(of.all, all);
  EXPECT_EQ(of.weight.total, all);
  // By line, counted here by the names that the symboliser gave to each sample.
  std::map<std::uint32_t, annotate::Weight> lines;
  std::uint64_t inlined = 0;
  for (const auto& sample : profile.samples) {
    const auto& names = profile.locations[sample.locations[0]].lines;
    lines[names.back().line].total += sample.count;
    if (names.size() == 1) lines[names.back().line].self += sample.count;
    if (names.size() > 1) inlined += sample.count;
  }
  ASSERT_GT(inlined, 0u);
  EXPECT_EQ(of.weight.self, all - inlined);
  ASSERT_EQ(of.files.size(), 1u);
  ASSERT_EQ(of.files[0].lines.size(), lines.size());
  for (const auto& line : of.files[0].lines) {
    EXPECT_EQ(line.weight.self, lines[line.line].self) << line.line;
    EXPECT_EQ(line.weight.total, lines[line.line].total) << line.line;
    EXPECT_EQ(line.inlined.empty(), line.line != 12) << line.line;
  }
  // By instruction: the bytes of each.
  ASSERT_EQ(of.parts.size(), 1u);
  EXPECT_EQ(of.parts[0].function, kWork);
  std::map<std::uint64_t, std::uint64_t> at;
  for (const auto& sample : profile.samples) at[profile.locations[sample.locations[0]].address] = sample.count;
  std::uint64_t shown = 0;
  for (const auto& line : of.parts[0].lines) {
    std::uint64_t expected = 0;
    for (std::uint32_t byte = 0; byte < line.instruction.size; ++byte) expected += at[line.instruction.address + byte];
    EXPECT_EQ(line.weight.self, expected) << line.instruction.text;
    EXPECT_EQ(line.bytes.size(), 2 * line.instruction.size);
    shown += line.weight.total;
  }
  EXPECT_EQ(shown, all) << "each sample is at an instruction";
}

TEST(Annotate, AnInlinedFunctionHasTheInstructionsThatAreItsOwn) {
  const profile::Profile profile = sampled_work(WINDLASS_ANNOTATE_WORK);
  const auto of = annotate::annotate(profile, shown_by_default(profile), "square");
  ASSERT_EQ(of.files.size(), 1u);
  for (const auto& line : of.files[0].lines) EXPECT_EQ(line.line, 5u);
  ASSERT_EQ(of.parts.size(), 1u);
  EXPECT_EQ(of.parts[0].function, kWork);
  std::uint64_t sum = 0;
  for (const auto& line : of.parts[0].lines) {
    EXPECT_EQ(line.line, 5u);
    sum += line.weight.total;
  }
  EXPECT_EQ(sum, of.weight.total);
  EXPECT_LT(of.weight.total, of.all);
}

TEST(Annotate, RecursionCountsASampleOnce) {
  profile::Profile profile = counted();
  profile.modules.push_back({.path = "/nowhere"});
  profile.functions.push_back({.name = "f", .file = "f.c"});
  profile.functions.push_back({.name = "leaf", .file = "f.c"});
  profile.locations.push_back({.module = 0, .address = 1, .lines = {{.function = 1, .line = 9}}});
  profile.locations.push_back({.module = 0, .address = 2, .lines = {{.function = 0, .line = 3}}});
  profile.locations.push_back({.module = 0, .address = 3, .lines = {{.function = 0, .line = 4}}});
  profile.samples.push_back({.locations = {0, 1, 1, 2, 1}, .count = 5});
  profile.samples.push_back({.locations = {1, 2}, .count = 2});
  const auto of = annotate::annotate(profile, shown_by_default(profile), "f");
  EXPECT_EQ(of.weight.self, 2u);
  EXPECT_EQ(of.weight.total, 7u);
  ASSERT_EQ(of.files.size(), 1u);
  ASSERT_EQ(of.files[0].lines.size(), 2u);
  EXPECT_EQ(of.files[0].lines[0].weight.self, 2u);
  EXPECT_EQ(of.files[0].lines[0].weight.total, 7u);
  EXPECT_EQ(of.files[0].lines[1].weight.total, 7u);
  EXPECT_TRUE(of.parts.empty());
  EXPECT_EQ(of.without_code.total, 7u) << "a sample that has two of its addresses counts once";
  EXPECT_EQ(of.without_code.self, 2u);
}

TEST(Annotate, ANameMeansOneFunction) {
  const profile::Profile profile = [] {
    profile::Profile made = counted();
    for (const char* name : {"ns::run(int)", "ns::run(long)", "runner", "never"}) {
      const auto index = static_cast<std::uint32_t>(made.functions.size());
      made.functions.push_back({.name = name});
      made.locations.push_back({.address = index, .lines = {{.function = index}}});
      if (index < 3) made.samples.push_back({.locations = {index}, .count = index + 1});
    }
    return made;
  }();
  const auto names = [&](const char* text) {
    std::string all;
    for (const auto& [name, weight] : annotate::functions_named(profile, shown_by_default(profile), text))
      all += name + ";";
    return all;
  };
  EXPECT_EQ(names("ns::run(int)"), "ns::run(int);");
  EXPECT_EQ(names("ns::run"), "ns::run(long);ns::run(int);") << "the heaviest first";
  EXPECT_EQ(names("run"), "runner;ns::run(long);ns::run(int);");
  EXPECT_EQ(names("never"), "") << "no sample has it";
}

// Addresses of instructions by objdump.
std::map<std::uint64_t, std::string> by_objdump(const std::string& file) {
  std::map<std::uint64_t, std::string> found;
  std::istringstream lines(test::run("objdump -d --no-show-raw-insn -M intel " + file).output);
  for (std::string line; std::getline(lines, line);) {
    const auto colon = line.find(":\t");
    if (colon == line.npos) continue;
    found[std::stoull(line, nullptr, 16)] = line.substr(colon + 2);
  }
  return found;
}

TEST(Annotate, InstructionsAreObjdumps) {
#ifndef __x86_64__
  GTEST_SKIP() << "objdump here is of another architecture";
#endif
  const std::string file = WINDLASS_ANNOTATE_BIG;
  const auto objdump = by_objdump(file);
  if (objdump.empty()) GTEST_SKIP() << "no objdump";
  const auto bytes = MappedFile::open(file);
  const auto source = sources::open_source(bytes->bytes(), image::PeLayout::kFile);
  const auto code = annotate::CodeFile::open({.path = file, .build_id = std::string((*source)->build_id())});
  ASSERT_TRUE(code.has_value());
  std::size_t instructions = 0, wrong = 0;
  (*source)->for_each_function(
      [&](const sources::Function& function) {
        const auto of = code->function_at(function.begin);
        if (!of) return true;
        for (const auto& one : annotate::disassemble(of->architecture, of->begin, of->bytes)) {
          ++instructions;
          const auto other = objdump.find(one.address);
          const bool jumps = one.target && !one.is_call;
          if (other == objdump.end() ||
              (jumps && other->second[0] != 'j' && other->second[0] != 'x' && other->second[0] != 'l') ||
              (one.is_call && other->second.find("call") == std::string::npos)) {
            if (++wrong < 10) ADD_FAILURE() << std::hex << one.address << ' ' << one.text;
          }
        }
        return instructions < 300'000;
      },
      [](const Error&) {});
  EXPECT_GT(instructions, 10'000u);
  EXPECT_EQ(wrong, 0u);
}

// Encodings: Arm ARM DDI 0487, C6.2.
TEST(Annotate, AArch64Instructions) {
  const std::uint32_t words[] = {0xd65f03c0, 0x14000002, 0x94000003, 0x54000040, 0xb4000040, 0x36000040, 0xf9400260};
  std::vector<std::byte> bytes(sizeof words + 2);
  std::memcpy(bytes.data(), words, sizeof words);
  const auto code = annotate::disassemble(Architecture::kAArch64, 0x1000, {bytes.data(), bytes.size()});
  ASSERT_EQ(code.size(), std::size(words) + 1);
  EXPECT_EQ(code.back().text, "(bad)");
  EXPECT_EQ(code.back().size, 2u);
  if (!annotate::has_aarch64_disassembler()) {
    EXPECT_EQ(code[0].text, ".word 0xd65f03c0");
    return;
  }
  EXPECT_EQ(code[0].text, "ret");
  EXPECT_FALSE(code[0].target.has_value());
  EXPECT_EQ(code[1].target, 0x100cu);
  EXPECT_EQ(code[2].target, 0x1014u);
  EXPECT_TRUE(code[2].is_call);
  EXPECT_EQ(code[3].target, 0x1014u);
  EXPECT_EQ(code[4].target, 0x1018u);
  EXPECT_EQ(code[5].target, 0x101cu);
  EXPECT_FALSE(code[5].is_call);
  EXPECT_EQ(code[6].text, "ldr x0, [x19]");
  EXPECT_FALSE(code[6].target.has_value());
}

TEST(Annotate, JumpsAreDrawn) {
  std::vector<annotate::CodeLine> code(6);
  for (std::size_t i = 0; i < code.size(); ++i) code[i].instruction.address = 0x10 * i;
  code[0].instruction.target = 0x50;  // over all
  code[1].instruction.target = 0x30;
  code[4].instruction.target = 0x20;  // back
  code[3].instruction.target = 0x90;  // elsewhere
  code[2].instruction.target = 0x00;
  code[2].instruction.is_call = true;
  const std::vector<std::string> expected = {"╭───", "│ ╭─", "│╭│→", "││╰→", "│╰──", "╰──→"};
  EXPECT_EQ(annotate::jump_lanes(code, 3), expected);
}

class AnnotateCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/windlass-annotate-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
    const auto profile = sampled_work(WINDLASS_ANNOTATE_WORK);
    ASSERT_TRUE(exporter::write_pprof_file(profile, folder_ + "/p.pb.gz").has_value());
    all_ = sum_of(profile);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] test::CommandResult report(const std::string& options) const {
    return test::run(WINDLASS_COMMAND " report " + options + " " + folder_ + "/p.pb.gz 2>&1");
  }

  std::string folder_;
  std::uint64_t all_ = 0;
};

// Of the command's JSON lines: the sums of "total" by "type". `look` sees each line.
template <typename Look>
std::map<std::string, std::uint64_t> totals_of(const std::string& output, Look look) {
  std::map<std::string, std::uint64_t> totals;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    const auto object = nlohmann::json::parse(line);
    totals[object["type"]] += object["total"].get<std::uint64_t>();
    look(object);
  }
  return totals;
}

TEST_F(AnnotateCommand, LinesOfJson) {
  const auto made = report("--json --annotate work");
  ASSERT_EQ(made.status, 0) << made.output;
  auto totals = totals_of(made.output, [](const nlohmann::json& object) {
    if (object["type"] != "source_line" || object["line"] != 12) return;
    EXPECT_NE(object["text"].get<std::string>().find("sum += square"), std::string::npos);
  });
  EXPECT_EQ(totals["annotation"], all_);
  EXPECT_EQ(totals["source_line"], all_);
  EXPECT_EQ(totals["instruction"], all_);
}

TEST_F(AnnotateCommand, TextHasLinesAndInstructions) {
  const auto made = report("--annotate work");
  ASSERT_EQ(made.status, 0) << made.output;
  EXPECT_NE(made.output.find("12        sum += square(values[i]);"), std::string::npos) << made.output;
  EXPECT_NE(made.output.find("↳ square inlined"), std::string::npos) << made.output;
  EXPECT_NE(made.output.find("ret"), std::string::npos) << made.output;
  EXPECT_EQ(made.output.find('\x1b'), std::string::npos);
}

// As the report lists it: "stripped+0x1130".
TEST_F(AnnotateCommand, AFunctionWithoutAName) {
  const std::string program = folder_ + "/stripped";
  ASSERT_EQ(test::run("strip -o " + program + " " WINDLASS_ANNOTATE_WORK).status, 0);
  profile::Profile profile = sampled_work(WINDLASS_ANNOTATE_WORK);
  profile.modules[0].path = program;
  const auto code = annotate::CodeFile::open(profile.modules[0]);
  ASSERT_TRUE(code.has_value());
  std::uint64_t begin = 0;
  for (profile::Location& location : profile.locations) {
    location.lines.clear();
    if (const auto function = code->function_at(location.address)) location.function_begin = function->begin;
  }
  for (const auto& sample : profile.samples) begin = profile.locations[sample.locations[0]].function_begin;
  ASSERT_NE(begin, 0u);
  ASSERT_TRUE(exporter::write_pprof_file(profile, folder_ + "/p.pb.gz").has_value());
  const std::string name = fmt::format("stripped+{:#x}", begin);
  ASSERT_NE(report("").output.find(name), std::string::npos);
  const auto made = report("--json --annotate " + name);
  ASSERT_EQ(made.status, 0) << made.output;
  auto totals = totals_of(made.output, [&](const nlohmann::json& object) {
    if (object["type"] != "code") return;
    EXPECT_EQ(object["function"], name);
  });
  EXPECT_EQ(totals["annotation"], all_);
  EXPECT_EQ(totals["instruction"], all_);
  EXPECT_FALSE(totals.contains("source_line"));
}

// Go's linker writes none by default.
TEST_F(AnnotateCommand, AFileWithoutABuildId) {
  const std::string program = folder_ + "/plain";
  ASSERT_EQ(test::run("objcopy -R .note.gnu.build-id " WINDLASS_ANNOTATE_WORK " " + program).status, 0);
  profile::Profile profile = sampled_work(WINDLASS_ANNOTATE_WORK);
  profile.modules[0].path = program;
  profile.modules[0].build_id.clear();
  const auto of = annotate::annotate(profile, shown_by_default(profile), kWork);
  ASSERT_EQ(of.parts.size(), 1u);
  EXPECT_EQ(of.parts[0].function, kWork);
  EXPECT_TRUE(std::ranges::any_of(of.parts[0].lines, [](const auto& line) { return line.line == 12; }));
}

TEST_F(AnnotateCommand, SourceElsewhereAndHostile) {
  std::ofstream moved(folder_ + "/annotate_work.cpp");
  for (int line = 1; line <= 40; ++line) moved << "line\t" << line << " \x1b[31m\n";
  moved.close();
  const std::string from = std::filesystem::path(WINDLASS_ANNOTATE_SOURCE).parent_path().lexically_normal().string();
  const auto made = report("--annotate work --source-map " + from + "=" + folder_);
  EXPECT_NE(made.output.find("line    12 \\x1b[31m"), std::string::npos) << made.output;
  EXPECT_EQ(made.output.find('\x1b'), std::string::npos);
}

// Asked by a program `debuginfod-find` of our own.
TEST_F(AnnotateCommand, SourceOfADebuginfodServer) {
  const std::string source = std::filesystem::path(WINDLASS_ANNOTATE_SOURCE).lexically_normal().string();
  const std::string from = std::filesystem::path(source).parent_path().string(), program = folder_ + "/work";
  if (test::run(fmt::format("cd / && c++ -O2 -g -w -Wl,--build-id=sha1 -ffile-prefix-map={}=/nowhere -o {} {}", from,
                            program, source))
          .status != 0)
    GTEST_SKIP() << "no C++ compiler";
  ASSERT_TRUE(exporter::write_pprof_file(sampled_work(program), folder_ + "/p.pb.gz").has_value());
  std::ofstream(folder_ + "/debuginfod-find")
      << "#!/bin/sh\ntest $1 = source || exit 1\necho $2 $3 >> " << folder_ << "/asked\necho " << source << "\n";
  std::filesystem::permissions(folder_ + "/debuginfod-find", std::filesystem::perms::owner_all);
  EXPECT_EQ(report("--annotate work").output.find("sum += square"), std::string::npos) << "nobody is asked";
  ::setenv("DEBUGINFOD_URLS", "http://127.0.0.1:9/", 1);
  const std::string path = ::getenv("PATH");
  ::setenv("PATH", (folder_ + ":" + path).c_str(), 1);
  const auto made = report("--annotate work");
  ::setenv("PATH", path.c_str(), 1);
  ::unsetenv("DEBUGINFOD_URLS");
  EXPECT_NE(made.output.find("12        sum += square(values[i]);"), std::string::npos) << made.output;
  const std::string asked = test::run("cat " + folder_ + "/asked").output;
  EXPECT_NE(asked.find(" /nowhere/annotate_work.cpp"), std::string::npos) << asked;
  EXPECT_GE(asked.find(' '), 40U) << "a build id of SHA-1";
}

TEST_F(AnnotateCommand, WhatIsNotThere) {
  EXPECT_EQ(report("--annotate nothing").status, 2);
  EXPECT_NE(report("--annotate nothing").output.find("no sample has a function nothing"), std::string::npos);
  EXPECT_EQ(report("--annotate work --html").status, 2);
  EXPECT_EQ(report("--annotate work --source-map here").status, 2);
}

}  // namespace
}  // namespace windlass
