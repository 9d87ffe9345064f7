// Go programs as shipped, stripped, of releases with each form of table, while they work. Their samples are whole, in
// the kernel, and named. Frames of the runtime's system stack have the goroutine below them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "formats/image/elf.h"
#include "integration/go/program.h"
#include "profiler/export/pprof.h"
#include "support/npm_package.h"
#include "support/privilege.h"
#include "support/run_command.h"
#include "support/tested_version.h"
#include "support/whole.h"
#include "windlass/unwind_info.h"

namespace windlass {
namespace {

namespace fs = std::filesystem;
using profile::Profile;
using profile::Sample;

struct Release {
  const char* name;  // of the test
  const char* package;
  const char* version;
  const char* integrity;
};

const Release kReleases[] = {
    {"Go1_14", "esbuild-linux-64", "0.5.0",
     "sha512-BUy2uD4ptTr56dHQ2attg9mM9GvBCuxE9/t+MjQtwccjoNmsaHzN26VJYtnkTCx3HO56TN3eLza8VRxHZ5/6hw=="},
    {"Go1_16", "esbuild-linux-64", "0.11.23",
     "sha512-M4QDqSHlY0lNyicuiwT0DEFI5kANc8RqzRHSUdfLuCyZ91idaw/549QHGKwCHi08BvHBhzcFzHjmtYIXj0QI6A=="},
    {"Go1_19", "esbuild-linux-64", "0.14.54",
     "sha512-EgjAgH5HwTbtNsTqQOXWApBaPVdDn7XcK+/PtJwZLT1UmpLoznPd8c5CxqsH2dQK3j05YsB3L17T8vE7cp4cCg=="},
    {"Go1_26", "@esbuild/linux-x64", "0.28.2",
     "sha512-4xTZr1FUmSoQW4XIWmit3tzQrUTZM+N3P0XV8xROKYF50XfI7xeO90+1bZvNwxIufQ9hDQVRJH5YhgPVF8A/HQ=="},
};

const fs::path kFolder = WINDLASS_GO_PEER_DIRECTORY;

class GoProgram : public testing::TestWithParam<Release> {
 protected:
  void SetUp() override {
    const Release& release = GetParam();
    const std::string folder = kFolder / release.name;
    if (!test::fetch_package(folder, release.package, release.version, release.integrity))
      GTEST_SKIP() << "npm cannot fetch a program of Go";
    program_ = folder + "/bin/esbuild";
  }

  std::string program_;
};

constexpr RegisterNumber kFsBase = 58;

// Four functions: asmcgocall has a stretch more, where it has kept how deep in its goroutine's stack it was called.
TEST_P(GoProgram, LeadsBackFromItsSystemStack) {
  const auto reader = open_unwind_info(program_);
  ASSERT_TRUE(reader) << reader.error().text();
  EXPECT_EQ((*reader)->format(), UnwindFormat::kGo);
  std::vector<Error> problems;
  std::size_t rows = 0, switched = 0;
  std::set<std::uint64_t> give_another, resume;  // functions: runtime.execute; gogo
  for (const UnwindFunction& function : (*reader)->functions(&problems)) {
    bool has_caller = false;
    for (const FrameRow& row : (*reader)->rows(function, &problems)) {
      ++rows;
      switched += row.cfa.is(CfaRule::kExpression) ? 1 : 0;
      if (row.registers.find(kFsBase) != nullptr) give_another.insert(function.begin);
      if (has_caller && row.return_address.is(RegisterRule::kUndefined)) resume.insert(function.begin);
      has_caller = !row.return_address.is(RegisterRule::kUndefined);
    }
  }
  EXPECT_GT(rows, 30000u);
  EXPECT_EQ(switched, 5u);
  EXPECT_EQ(give_another.size(), 1u);
  EXPECT_EQ(resume.size(), 1u);
}

// Frames of one word, which releases before Go 1.21 make and fill by instructions of a form of their own.
TEST_P(GoProgram, KeepsTheFramePointerInFramesOfOneWord) {
  static constexpr std::uint8_t kSave[] = {0x48, 0x89, 0x2c, 0x24};  // mov [rsp], rbp
  const auto file = MappedFile::open(program_);
  ASSERT_TRUE(file);
  const auto image = image::ElfImage::parse(file->bytes());
  ASSERT_TRUE(image);
  const auto reader = open_unwind_info(program_);
  ASSERT_TRUE(reader);
  std::size_t seen = 0, wrong = 0;
  for (const UnwindFunction& function : (*reader)->functions())
    for (const FrameRow& row : (*reader)->rows(function)) {
      const auto code = image->at_address(row.begin, sizeof kSave);
      if (!row.cfa.is_at(7) || row.cfa.offset() != 16 || !code || std::memcmp(code->data(), kSave, sizeof kSave) != 0)
        continue;
      ++seen;
      const auto next = (*reader)->row_at(row.begin + sizeof kSave);
      const RegisterRule* const rbp = next ? next->registers.find(6) : nullptr;
      wrong += row.registers.find(6) != nullptr || rbp == nullptr || *rbp != RegisterRule::at_cfa(-16) ? 1 : 0;
    }
  EXPECT_EQ(wrong, 0u) << "of " << seen;
  const bool has_them = std::string_view(GetParam().name) != "Go1_26";
  EXPECT_EQ(seen > 10, has_them) << seen;
}

// What it takes a second or two of all CPUs to bundle.
fs::path make_source() {
  const fs::path path = kFolder / "many.js";
  std::ofstream file(path);
  for (int i = 0; i < 20000; ++i)
    file << "function f" << i << "(a, b) { const x = [a, b, " << i << "].map(v => v * " << i % 7
         << "); return x.length > a ? x.reduce((p, c) => p + c, 0) : `t${a}`; }\nexport const e" << i << " = f" << i
         << "(" << i << ", 1);\n";
  return path;
}

struct Tally {
  std::uint64_t all = 0, whole = 0, named = 0, crossed = 0;
};

// Outermost last; without the kernel's.
std::vector<std::string> names_of(const Profile& profile, const Sample& sample) {
  std::vector<std::string> names;
  for (const auto location : sample.locations)
    for (const auto& line : profile.locations[location].lines)
      names.push_back(profile.functions[line.function].system_name);
  return names;
}

Tally tally_of(const Profile& profile) {
  Tally tally;
  for (const Sample& sample : profile.samples) {
    const std::vector<std::string> names = names_of(profile, sample);
    tally.all += sample.count;
    if (profile::is_truncated(sample.end)) continue;
    tally.whole += sample.count;
    const auto is_end = [](const std::string& name) {
      return name.starts_with("runtime.goexit") || name.starts_with("runtime.mstart") ||
             name.starts_with("runtime.rt0_go") || name.starts_with("_rt0_");
    };
    const bool named = !names.empty() && is_end(names.back());
    tally.named += named ? sample.count : 0;
    const auto at =
        std::ranges::find_if(names, [](const auto& name) { return name.starts_with("runtime.systemstack"); });
    if (at != names.end() && names.back().starts_with("runtime.goexit")) tally.crossed += sample.count;
  }
  return tally;
}

TEST_P(GoProgram, IsWholeAndNamedWhileItWorks) {
  if (const std::string reason = test::no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  const std::string profile = kFolder / (std::string(GetParam().name) + ".pb.gz");
  const std::string source = make_source();
  const auto recorded =
      test::run(std::string(WINDLASS_COMMAND) + " record -v -F 1999 -o " + profile + " -- " + program_ +
                " --bundle --minify --sourcemap --outfile=" + (kFolder / "out.js").string() + " " + source + " 2>&1");
  ASSERT_EQ(recorded.status, 0) << recorded.output;
  const auto read = exporter::read_pprof_file(profile);
  ASSERT_TRUE(read) << read.error().text();
  const Tally tally = tally_of(*read);
  EXPECT_GT(tally.all, 300u) << recorded.output;
  // But for what the agent has to finish of the process's first moments. One to three of a hundred are on the system
  // stack.
  EXPECT_GE(static_cast<double>(tally.whole), 0.995 * static_cast<double>(tally.all)) << recorded.output;
  EXPECT_GE(static_cast<double>(tally.named), 0.97 * static_cast<double>(tally.whole)) << recorded.output;
  EXPECT_GT(tally.crossed, 0u) << recorded.output;
  std::string version = GetParam().name + std::strlen("Go");
  std::ranges::replace(version, '_', '.');
  test::tested_version("Go", version, "esbuild", tally.all, tally.whole);
}

// One of this machine's Go, static and stripped, which the collector, the scheduler and its signals interrupt all the
// time.
TEST(GoServer, IsWholeUnderLoad) {
  if (const std::string reason = test::no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  if (const std::string why = test::make_go_program("serve", "-ldflags='-s -w'"); !why.empty()) GTEST_SKIP() << why;
  const std::string profile = test::kGoFolder + "/serve.pb.gz";
  const auto recorded = test::run(std::string(WINDLASS_COMMAND) + " record -v -F 3999 -o " + profile + " -- " +
                                  test::kGoFolder + "/serve " + (test::whole() ? "20" : "3") + " 2>&1");
  ASSERT_EQ(recorded.status, 0) << recorded.output;
  const auto read = exporter::read_pprof_file(profile);
  ASSERT_TRUE(read) << read.error().text();
  const Tally tally = tally_of(*read);
  ::printf("%llu samples, not whole: %llu\n", static_cast<unsigned long long>(tally.all),
           static_cast<unsigned long long>(tally.all - tally.whole));
  EXPECT_GT(tally.all, 500u) << recorded.output;
  EXPECT_LE(tally.all - tally.whole, 2 + tally.all / 1000) << recorded.output;
  EXPECT_GT(tally.crossed, 0u);
  test::tested_version("Go", test::version_of("go version"), "serve", tally.all, tally.whole);
}

// Most samples of a process that lives for milliseconds come before the kernel side knows it. So the agent has to leave
// the system stack with the contents of the sample alone.
TEST(GoProcesses, ThatLiveForAMomentAreWholeOnTheirSystemStacks) {
  if (const std::string reason = test::no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  if (const std::string why = test::make_go_program("moment"); !why.empty()) GTEST_SKIP() << why;
  const std::string profile = test::kGoFolder + "/moment.pb.gz", program = test::kGoFolder + "/moment";
  const auto recorded = test::run(std::string(WINDLASS_COMMAND) + " record -v -F 1999 -o " + profile +
                                  " -- sh -c 'for i in $(seq " + (test::whole() ? "1000" : "100") + "); do " + program +
                                  " > " + test::kGoFolder + "/moment.out; done' 2>&1");
  ASSERT_EQ(recorded.status, 0) << recorded.output;
  const auto read = exporter::read_pprof_file(profile);
  ASSERT_TRUE(read) << read.error().text();
  const auto leaves_goroutine = [](const std::string& name) {
    return name.starts_with("runtime.systemstack") || name.starts_with("runtime.mcall") ||
           name.starts_with("runtime.morestack");
  };
  std::uint64_t all = 0, ended = 0;
  for (const Sample& sample : read->samples) {
    const std::vector<std::string> names = names_of(*read, sample);
    if (std::ranges::none_of(names, leaves_goroutine)) continue;
    all += sample.count;
    ended += profile::is_truncated(sample.end) && leaves_goroutine(names.back()) ? sample.count : 0;
  }
  ::printf("%lu samples through a switch of stacks, %lu end there\n", all, ended);
  EXPECT_GT(all, 50u) << recorded.output;
  EXPECT_LE(ended, 1 + all / 500) << recorded.output;
}

// They have left their CPU on the system stack before the recording began. C in the program moves the thread's own
// memory, in which its g is.
TEST(GoThreads, ThatWaitAlreadyAreWhole) {
  if (const std::string reason = test::no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  for (const char* linker_flags : {"", "-lm"}) {
    SCOPED_TRACE(linker_flags);
    if (const std::string why = test::make_go_program("parked", "", linker_flags); !why.empty()) GTEST_SKIP() << why;
    const std::string profile = test::kGoFolder + "/parked.pb.gz", program = test::kGoFolder + "/parked";
    const auto recorded = test::run(program + " 60 > " + program + ".out & child=$!; sleep 1; " + WINDLASS_COMMAND +
                                    " record --off-cpu --duration 1 -o " + profile +
                                    " -p $child 2>&1; status=$?; kill $child; exit $status");
    ASSERT_EQ(recorded.status, 0) << recorded.output;
    const auto read = exporter::read_pprof_file(profile);
    ASSERT_TRUE(read) << read.error().text();
    std::uint64_t parked = 0;
    for (const Sample& sample : read->samples) {
      if (read->events[sample.event].name != "off-cpu" || sample.value < 500'000'000) continue;  // it runs now and then
      const std::vector<std::string> names = names_of(*read, sample);
      parked += std::ranges::find(names, "runtime.stopm") != names.end() ? 1 : 0;
      EXPECT_TRUE(profile::is_whole(sample.end)) << profile::end_text(sample.end) << " behind " << names.back();
    }
    EXPECT_GE(parked, 3u) << recorded.output;
  }
}

INSTANTIATE_TEST_SUITE_P(Releases, GoProgram, testing::ValuesIn(kReleases),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace windlass
