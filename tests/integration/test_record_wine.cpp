// Records a Windows program under Wine whose true stacks are known (tests/workloads/truth_windows.cpp). Stacks must be
// whole, from the kernel and Wine's Unix side through its transitions and the DLLs to the thread's start, without a
// wrong frame.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "integration/truth_check.h"
#include "profiler/export/pprof.h"
#include "support/privilege.h"
#include "support/tested_version.h"
#include "support/wine_program.h"
#include "windlass_ends.h"

namespace windlass::test {
namespace {

struct Frame {
  std::string_view function, module;
};

std::vector<Frame> frames_of(const profile::Profile& profile, const profile::Sample& sample) {
  std::vector<Frame> frames;
  for (const std::uint32_t index : sample.locations) {
    const auto& location = profile.locations[index];
    Frame frame;
    if (!location.lines.empty()) frame.function = profile.functions[location.lines.back().function].system_name;
    if (location.module != profile::kNone) frame.module = profile.modules[location.module].path;
    frames.push_back(frame);
  }
  return frames;
}

std::string text_of(const std::vector<Frame>& frames) {
  std::string text;
  for (const Frame& frame : frames)
    text +=
        fmt::format(" {}", frame.function.empty() ? frame.module.substr(frame.module.rfind('/') + 1) : frame.function);
  return text;
}

// Samples whose stacks have all of `functions`, in this order, innermost first, with frames of modules that end in the
// text behind "@" between them: "@ntdll.so" is any frame of it.
std::uint64_t count_with(const profile::Profile& profile, const std::vector<std::string_view>& functions) {
  std::uint64_t count = 0;
  for (const auto& sample : profile.samples) {
    std::size_t at = 0;
    for (const Frame& frame : frames_of(profile, sample)) {
      if (at == functions.size()) break;
      const std::string_view wanted = functions[at];
      const bool same = wanted.starts_with('@') ? frame.module.ends_with(wanted.substr(1)) : frame.function == wanted;
      at += same ? 1 : 0;
    }
    if (at == functions.size()) count += sample.count;
  }
  return count;
}

constexpr double kHertz = 4999, kSeconds = 3;  // of CPU time, whatever else the machine does

bool is_of_program(const profile::Profile& profile, const profile::Sample& sample) {
  return sample.comm != profile::kNone && profile.strings[sample.comm].starts_with("truth_windows");
}

// Of all samples of the program's process, Wine's own work at its start included, the share that is whole.
double whole_share(const profile::Profile& profile) {
  std::uint64_t samples = 0, complete = 0;
  for (const auto& sample : profile.samples) {
    if (!is_of_program(profile, sample)) continue;
    samples += sample.count;
    if (!profile::is_whole(sample.end))
      fmt::print("truncated, {}: {}\n", profile::end_text(sample.end), text_of(frames_of(profile, sample)));
    else
      complete += sample.count;
  }
  fmt::print("{} samples of the process, {} complete\n", samples, complete);
  return static_cast<double>(complete) / static_cast<double>(samples);
}

void record(const std::string& command_line, const std::string& file, profile::Profile& profile) {
  const std::string log = file + ".log";
  const std::string command = fmt::format(
      "WINEPREFIX={} WINEDEBUG=-all WINEDLLOVERRIDES='mscoree=;mshtml=;winemenubuilder.exe=' DISPLAY= "
      "{} record -F {} -v -o {} -- {} {} > {} 2>&1",
      WINDLASS_WINE_PREFIX, WINDLASS_COMMAND, kHertz, file, find_wine(), command_line, log);
  const int status = std::system(command.c_str());
  ASSERT_TRUE(WIFEXITED(status));
  ASSERT_EQ(WEXITSTATUS(status), 0) << log << " says why";
  auto read = exporter::read_pprof_file(file);
  ASSERT_TRUE(read) << read.error().text();
  profile = std::move(*read);
  std::filesystem::remove(file);
}

TEST(RecordWine, WholeStacks) {
  const std::string program = std::string(WINDLASS_WINE_WORKLOADS) + "/truth_windows.exe";
  if (const std::string reason = no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  if (find_wine().empty()) GTEST_SKIP() << "SKIPPED: there is no Wine (package wine64)";
  if (!std::filesystem::exists(program)) GTEST_SKIP() << "SKIPPED: there is no MinGW (package g++-mingw-w64-x86-64)";
  // The prefix is made, and its services are started, before anything is recorded.
  ASSERT_EQ(WineProgram(WINDLASS_WINE_PREFIX, {program, "0.1"}).wait(), 0);

  const std::string file = testing::TempDir() + fmt::format("windlass-wine-{}.pb.gz", getpid());
  profile::Profile profile;
  // When a process starts, not all of its images are known yet. That costs 0.0% to 0.6% of the samples on an idle
  // machine and 3% on a busy one. Then the test records once more.
  double whole = 0;
  for (int tries = 0; tries < 4 && whole < 0.99; ++tries) {
    ASSERT_NO_FATAL_FAILURE(record(fmt::format("{} {}", program, kSeconds), file, profile));
    whole = whole_share(profile);
  }
  EXPECT_GE(whole, 0.99);

  const TruthVerdict verdict = check_truth(profile, std::filesystem::canonical(program), windows_truth());
  fmt::print("{} with the program's code, {} complete, {} through the levels, {} wrong, {} call sites read\n",
             verdict.samples, verdict.complete, verdict.in_levels, verdict.wrong, verdict.call_sites);
  for (const auto& text : verdict.truncated) fmt::print("{}\n", text);
  for (const auto& text : verdict.examples) ADD_FAILURE() << text;
  EXPECT_EQ(verdict.wrong, 0u);
  tested_version("Wine (x64 programs)", version_of(find_wine() + " --version"), "truth", verdict.samples,
                 verdict.complete, verdict.wrong);
  // The process's start is a part of its time, and a busy machine loses ticks of the sampling clock. So only that it
  // was sampled can be required. The clock runs on in interrupts, which CPU time leaves out. Counting twice would give
  // twice as many.
  EXPECT_GT(static_cast<double>(verdict.in_levels), 0.1 * kHertz * kSeconds);
  EXPECT_LT(static_cast<double>(verdict.samples), 1.4 * kHertz * kSeconds);
  EXPECT_GT(verdict.call_sites, 15 * verdict.in_levels);
  EXPECT_GE(static_cast<double>(verdict.complete), 0.999 * static_cast<double>(verdict.samples));

  // Through msvcrt and the DLL, and out of the program by every door: PE functions, Wine's Unix side, the kernel.
  const std::string_view root = "_Z9all_pathsP6HWND__", start = "RtlUserThreadStart";
  EXPECT_GT(count_with(profile, {"_Z7comparePKvS0_", "qsort", "_Z16in_callback_pathv", root, start}), 100u);
  EXPECT_GT(count_with(profile, {"_Z4backy", "call_back", "_Z15in_library_pathv", root, start}), 100u);
  EXPECT_GT(count_with(profile, {"main", "__tmainCRTStartup", "mainCRTStartup", "BaseThreadInitThunk", start}), 100u);
  EXPECT_GT(count_with(profile, {"RtlAllocateHeap", "_Z8use_heapy", "_Z4leafy", root, start}), 0u);
  EXPECT_GT(count_with(profile, {"@ntdll.so", "NtWriteFile", "WriteFile", "_Z14write_and_readv", root, start}), 20u);
  EXPECT_GT(count_with(profile, {"@ntdll.so", "WaitForSingleObject", "_Z12wait_in_vainv", root, start}), 20u);
  // Called back by Wine's Unix side, once and out of a callback.
  const std::string_view door = "_Z14in_window_pathP6HWND__", back = "KiUserCallbackDispatcher";
  EXPECT_GT(count_with(profile, {"by_message", back, "@ntdll.so", "NtUserSetWindowPos", door, root, start}), 100u);
  EXPECT_GT(count_with(profile, {"by_message", back, "@ntdll.so", "NtUserSetWindowPos", "_Z4moveP6HWND__", "by_message",
                                 back, "@ntdll.so", "NtUserSetWindowPos", door, root, start}),
            20u);
  EXPECT_GT(count_with(profile, {"vfs_write", "@ntdll.so", "WriteFile", root, start}), 0u);

  // The checker itself: with the frame that called the C library or the DLL taken out, those stacks are wrong.
  std::uint64_t mutilated = 0;
  for (auto& sample : profile.samples) {
    const auto frames = frames_of(profile, sample);
    const auto path = std::ranges::find_if(frames, [](const Frame& frame) {
      return frame.function == "_Z16in_callback_pathv" || frame.function == "_Z15in_library_pathv";
    });
    const auto level =
        std::ranges::find_if(frames, [](const Frame& frame) { return frame.function.starts_with("_Z5levelILi0E"); });
    if (sample.end != WL_END_COMPLETE || path == frames.end() || level == frames.end()) continue;
    sample.locations.erase(sample.locations.begin() + (path - frames.begin()));
    mutilated += sample.count;
  }
  EXPECT_GT(mutilated, 100u);
  EXPECT_EQ(check_truth(profile, std::filesystem::canonical(program), windows_truth()).wrong, mutilated);
}

// ---- DLLs that live for 2 ms ----------------------------------------------------------------------------------------

struct Passing {
  std::uint64_t samples = 0;                // of which the program's use_library() or a DLL is a frame
  std::uint64_t complete = 0;               // of these
  std::uint64_t in_library = 0, named = 0;  // complete ones with code of a DLL; all of whose frames there have names
  std::uint64_t wrong = 0;
  std::vector<std::string> examples;
};

// The program's and its DLLs' frames between main and the sampled frame, outermost first. The last letter of their
// names tells the DLL: a or b. Empty: the stack is impossible.
std::string which_library(const std::vector<Frame>& frames) {
  std::vector<std::string_view> chain;
  for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame)
    if (frame->module.find("truth_passing") != std::string_view::npos) chain.push_back(frame->function);
  const auto main = std::ranges::find(chain, "use_library");
  if (main == chain.end() || main + 1 == chain.end()) return "-";
  const std::vector<std::string_view> inside(main + 1, chain.end());
  for (const char which : {'a', 'b'}) {
    const std::string names[] = {"work", std::string("work_") + which, std::string("deeper_") + which,
                                 std::string("spin_") + which};
    const auto is_known = [&](std::size_t i) {
      return inside[i] == names[std::min<std::size_t>(i, 3)] || (i == 3 && inside[i] == "now");
    };
    bool same = inside.size() <= 4;
    for (std::size_t i = 0; same && i < inside.size(); ++i) same = is_known(i);
    if (same) return std::string(1, which);
  }
  // LoadLibrary() and FreeLibrary() call the DLL's entry point; now() is called by use_library() itself, too.
  if (inside.size() == 1 && (inside[0] == "now" || inside[0] == "DllMainCRTStartup")) return "-";
  return {};
}

Passing judge_passing(const profile::Profile& profile) {
  Passing verdict;
  for (const auto& sample : profile.samples) {
    const auto frames = frames_of(profile, sample);
    const bool library = std::ranges::any_of(
        frames, [](const Frame& frame) { return frame.module.find("truth_passing_") != std::string_view::npos; });
    const bool caller = std::ranges::any_of(frames, [](const Frame& frame) { return frame.function == "use_library"; });
    if (!library && !caller) continue;
    verdict.samples += sample.count;
    if (sample.end != WL_END_COMPLETE) continue;
    verdict.complete += sample.count;
    const std::string which = which_library(frames);
    const bool known_library = which.empty() || which == "-" ? false : std::ranges::all_of(frames, [&](const Frame& f) {
      return f.module.find("truth_passing_") == std::string_view::npos || f.module.ends_with("_" + which + ".dll");
    });
    verdict.in_library += library ? sample.count : 0;
    verdict.named += library && known_library ? sample.count : 0;
    const bool outermost = frames.back().function == "RtlUserThreadStart" || frames.back().function == "_start";
    if (outermost && !which.empty() && (which == "-" || known_library)) continue;
    verdict.wrong += sample.count;
    if (verdict.examples.size() < 10) verdict.examples.push_back(text_of(frames));
  }
  return verdict;
}

// Two DLLs at one address by turns, each there for 2 ms. No stack has a frame of one DLL while the other is loaded, or
// leaves one out. Wine maps these DLLs from the file. DLLs that Wine copies are known only later, by /proc.
TEST(RecordWine, LibrariesThatLiveFor2Milliseconds) {
  const std::string folder = WINDLASS_WINE_WORKLOADS, program = folder + "/truth_passing.exe";
  if (const std::string reason = no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  if (find_wine().empty()) GTEST_SKIP() << "SKIPPED: there is no Wine (package wine64)";
  if (!std::filesystem::exists(program)) GTEST_SKIP() << "SKIPPED: there is no MinGW (package g++-mingw-w64-x86-64)";
  const std::string library = "Z:" + folder + "/truth_passing_";
  const std::string libraries = fmt::format("{}a.dll {}b.dll", library, library);
  ASSERT_EQ(WineProgram(WINDLASS_WINE_PREFIX, {program, "0.1", library + "a.dll", library + "b.dll"}).wait(), 0);
  const std::string file = testing::TempDir() + fmt::format("windlass-wine-passing-{}.pb.gz", getpid());
  profile::Profile profile;
  // Until the agent has heard of the first image that took another's place, the kernel side has the old image's table
  // (truncation-reasons.md, "Known wrong"). Usually that concerns hardly a sample, beside a compiler many. Then the
  // test records once more.
  Passing verdict;
  for (int tries = 0; tries == 0 || (tries < 6 && verdict.wrong != 0); ++tries) {
    ASSERT_NO_FATAL_FAILURE(record(fmt::format("{} {} {}", program, kSeconds, libraries), file, profile));
    verdict = judge_passing(profile);
    fmt::print("{} samples, {} complete, {} of them in a DLL, {} named, {} wrong\n", verdict.samples, verdict.complete,
               verdict.in_library, verdict.named, verdict.wrong);
  }
  EXPECT_EQ(verdict.wrong, 0u);
  for (const std::string& text : verdict.examples) ADD_FAILURE() << text;
  EXPECT_GT(verdict.samples, 1000u);
  EXPECT_GT(verdict.named, 500u);
}

#ifdef WINDLASS_PDB_FOLDER
// A program of Clang's, whose image has no symbols and exports nothing.
TEST(RecordWine, NamesFromThePdbFile) {
  if (const std::string reason = no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  if (find_wine().empty()) GTEST_SKIP() << "SKIPPED: there is no Wine (package wine64)";
  const std::string file = testing::TempDir() + fmt::format("windlass-wine-pdb-{}.pb.gz", getpid());
  profile::Profile profile;
  ASSERT_NO_FATAL_FAILURE(record(WINDLASS_PDB_FOLDER "/deep.exe", file, profile));
  std::uint64_t frames = 0, named = 0, inlined = 0;
  for (const auto& sample : profile.samples)
    for (const std::uint32_t index : sample.locations) {
      const auto& location = profile.locations[index];
      if (location.module == profile::kNone || !profile.modules[location.module].path.ends_with("/deep.exe")) continue;
      frames += sample.count;
      inlined += location.lines.size() > 1 ? sample.count : 0;
      if (location.lines.empty()) continue;
      const auto& function = profile.functions[location.lines.back().function];
      named += function.name.starts_with("work::") || function.name == "start" ? sample.count : 0;
      EXPECT_TRUE(function.file.ends_with("/deep.cpp")) << function.name << " in " << function.file;
      EXPECT_NE(location.lines.back().line, 0U) << function.name;
    }
  fmt::print("{} frames in deep.exe, {} named, {} with inlined calls\n", frames, named, inlined);
  EXPECT_GT(frames, 1000U);
  EXPECT_EQ(named, frames);
  EXPECT_GT(inlined, 0U);
}
#endif

}  // namespace
}  // namespace windlass::test
