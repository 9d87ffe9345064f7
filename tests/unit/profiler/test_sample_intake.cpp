#include "profiler/samples/sample_intake.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>

#include <fmt/format.h>

#include "profiler/processes/module_registry.h"
#include "support/jitdump_text.h"
#include "support/program_file.h"

namespace windlass::profiler {
namespace {

class SampleIntakeTest : public testing::Test {
 protected:
  ModuleRegistry registry{nullptr};
  std::string proc;     // of process 10; empty: it cannot be read
  std::string program;  // a file's path, whose mappings are the registry's; others are nobody's
  bool silent = false;  // these do not answer
  ProcessTable table{[this](std::uint32_t, std::uint32_t parent, const os::ProcMap& map) {
                       const auto self = static_cast<std::uint32_t>(::getpid());
                       return map.path == program ? registry.resolve(self, parent, map)
                                                  : ProcessTable::CodeLocation{.silent = silent};
                     },
                     [this](std::uint32_t, std::string& text) {
                       text = proc;
                       return !proc.empty();
                     }};
  RawUnwinder unwinder{registry};
  Aggregator aggregator;
  std::vector<std::uint32_t> rescans;
  CodeNames names;
  std::vector<std::uint32_t> generated;  // in which code made at run time was met
  SampleIntake intake{table,
                      unwinder,
                      names,
                      aggregator,
                      [this](std::uint32_t tgid) {
                        rescans.push_back(tgid);
                        (void)table.scan(tgid, 1);
                      },
                      [this](std::uint32_t tgid) { generated.push_back(tgid); },
                      [](const wl_learned_key&, const wl_learned&) {}};

  std::uint8_t extra = 0;  // ticks that were left out before the next stack
  static wl_event_head head(std::uint32_t type) {
    wl_event_head made{};
    made.type = static_cast<decltype(made.type)>(type);
    made.tgid = 10;
    made.tid = 11;
    made.time = 5;
    std::memcpy(made.comm, "worker", 6);
    return made;
  }
  bool take_stack(std::uint16_t kernel, std::uint16_t user, std::size_t cut = 0, std::uint64_t hash = 5,
                  std::uint64_t frame = 0x1234) {
    std::vector<std::uint64_t> bytes(sizeof(wl_stack_event) / 8 + kernel + user, frame);
    wl_stack_event event{};
    event.head = head(WL_EVENT_STACK);
    event.head.extra = extra;
    event.hash = hash;
    event.kernel_frames = kernel;
    event.user_frames = user;
    event.end = WL_END_COMPLETE;
    event.certainty = WL_CHECKED;
    std::memcpy(bytes.data(), &event, sizeof event);
    return intake.take(*reinterpret_cast<const wl_event_head*>(bytes.data()), bytes.size() * 8 - cut);
  }
  bool postpone_raw(std::uint64_t pc) {
    const std::vector<std::uint64_t> bytes = raw_event(pc, {}, {});
    return intake.postpone(*reinterpret_cast<const wl_event_head*>(bytes.data()), bytes.size() * 8);
  }
  bool take_raw(std::uint64_t pc, std::size_t cut = 0) { return take_raw(pc, {}, {}, cut); }
  // `kernel`: its frames. `stack`: from sp on.
  bool take_raw(std::uint64_t pc, const std::vector<std::uint64_t>& kernel, const std::vector<std::uint64_t>& stack,
                std::size_t cut = 0) {
    std::vector<std::uint64_t> bytes = raw_event(pc, kernel, stack);
    reinterpret_cast<wl_event_head*>(bytes.data())->extra = extra;
    return intake.take(*reinterpret_cast<const wl_event_head*>(bytes.data()), bytes.size() * 8 - cut);
  }
  static std::vector<std::uint64_t> raw_event(std::uint64_t pc, const std::vector<std::uint64_t>& kernel,
                                              const std::vector<std::uint64_t>& stack) {
    constexpr std::uint64_t kSp = 0x7ffd'0000'0000;
    wl_raw_event event{};
    event.head = head(WL_EVENT_RAW);
    event.machine = WL_MACHINE_X86_64;
    event.regs[7] = kSp;
    event.regs[16] = pc;
    event.kernel_frames = static_cast<std::uint16_t>(kernel.size());
    event.stack_address = kSp;
    event.stack_size = static_cast<std::uint32_t>(stack.size() * 8);
    event.stack_pages = 1;
    std::vector<std::uint64_t> bytes(sizeof event / 8);
    std::memcpy(bytes.data(), &event, sizeof event);
    bytes.insert(bytes.end(), kernel.begin(), kernel.end());
    bytes.insert(bytes.end(), stack.begin(), stack.end());
    return bytes;
  }
  profile::Profile profile() {
    std::uint64_t unknown = 0;
    return aggregator.build([](const auto&) {}, unknown, [](std::uint32_t, profile::Module&) {});
  }
};

TEST_F(SampleIntakeTest, AStackGoesToTheProfileAsItIs) {
  proc = "1000-2000 r-xp 00000000 00:00 0 \n";
  ASSERT_TRUE(table.scan(10, 1));
  EXPECT_TRUE(take_stack(2, 3));
  const profile::Profile made = profile();
  ASSERT_EQ(made.samples.size(), 1u);
  EXPECT_EQ(made.samples[0].pid, 10u);
  EXPECT_EQ(made.samples[0].tid, 11u);
  EXPECT_EQ(made.samples[0].end, WL_END_COMPLETE);
  EXPECT_EQ(made.samples[0].certainty, WL_CHECKED);
  EXPECT_EQ(aggregator.counted_stacks(), 1u) << "the kernel side counts its repeats";
  EXPECT_TRUE(rescans.empty());
}

TEST_F(SampleIntakeTest, ASampleCountsForTheTicksThatWereLeftOutAndHasTheirTimes) {
  proc = "1000-2000 r-xp 00000000 00:00 0 \n";
  ASSERT_TRUE(table.scan(10, 1));
  TimeLine times(1 << 20);
  intake.set_times(times, 2);
  EXPECT_TRUE(take_stack(0, 1));
  extra = 2;
  EXPECT_TRUE(take_stack(0, 1));
  EXPECT_TRUE(take_raw(0x1010));
  std::vector<std::uint32_t> numbers;
  std::uint64_t unknown = 0;
  profile::Profile made =
      aggregator.build([](const auto&) {}, unknown, [](std::uint32_t, profile::Module&) {}, names, {}, &numbers);
  ASSERT_EQ(made.samples.size(), 2u);
  EXPECT_EQ(made.samples[0].count, 4u) << "one for itself, and three";
  EXPECT_EQ(made.samples[1].count, 3u);
  std::uint64_t ends = 0;
  for (unsigned end = 0; end < WL_END_COUNT; ++end) ends += intake.raw_ends(end);
  EXPECT_EQ(ends, 3u);
  made.events[0].per_time = 1;
  times.write(made, numbers, 0, [](const wl_stack_key&) { return std::nullopt; });
  ASSERT_EQ(made.samples[0].times, 4u);
  const auto begins = [&](const profile::Sample& sample) {
    std::vector<std::uint64_t> all;
    for (const profile::SampleTime& time : times_of(made, sample)) all.push_back(time.begin);
    return all;
  };
  EXPECT_EQ(begins(made.samples[0]), (std::vector<std::uint64_t>{1, 3, 5, 5}));
  EXPECT_EQ(begins(made.samples[1]), (std::vector<std::uint64_t>{1, 3, 5}));
}

// The kernel side had mappings for it (its parent's, say) of which there is nothing here.
TEST_F(SampleIntakeTest, AStackWithAFrameInNothingKnownIsNotWhole) {
  const auto end_of = [&](std::uint64_t hash, std::uint64_t frame) {
    EXPECT_TRUE(take_stack(1, 2, 0, hash, frame));
    return static_cast<unsigned>(profile().samples.back().end);
  };
  EXPECT_EQ(end_of(1, 0x1234), WL_END_NO_PROCESS);
  EXPECT_EQ(rescans.size(), 1u);
  proc = "1000-2000 r-xp 00000000 00:00 0 \n";
  EXPECT_EQ(end_of(2, 0x1235), WL_END_COMPLETE) << "it has been read meanwhile";
  EXPECT_EQ(end_of(3, 0x2000), WL_END_COMPLETE) << "a return address behind the last instruction of the mapping";
  EXPECT_EQ(end_of(4, 0x20000 | WL_FRAME_EXACT), WL_END_NO_MAPPING);
  EXPECT_EQ(end_of(5, 0x8 | WL_FRAME_EXACT), WL_END_COMPLETE) << "a method called through a null pointer";
  EXPECT_EQ(end_of(6, 0x8), WL_END_NO_MAPPING) << "nothing returns there";
}

os::RegisterWriters register_writers() {
  const std::string path = testing::TempDir() + fmt::format("windlass-writers-{}", ::getpid());
  std::ofstream(path) << "1200 T setup_rt_frame\n1240 T other\n";
  os::RegisterWriters writers(path);
  std::filesystem::remove(path);
  return writers;
}

// The kernel calls a signal handler or returns from one: some registers are new, and some are not.
TEST_F(SampleIntakeTest, AStackOfHalfWrittenRegistersIsItsInnermostFrame) {
  proc = "1000-2000 r-xp 00000000 00:00 0 \n";
  ASSERT_TRUE(table.scan(10, 1));
  std::promise<os::RegisterWriters> writers;
  writers.set_value(register_writers());
  intake.set_writers(writers.get_future().share());
  EXPECT_TRUE(take_stack(1, 3, 0, 1, 0x1234));
  EXPECT_TRUE(take_stack(1, 3, 0, 2, 0x1244));
  EXPECT_TRUE(take_raw(0x1000, {0x1238}, {}));
  const profile::Profile made = profile();
  ASSERT_EQ(made.samples.size(), 3u);
  EXPECT_EQ(made.samples[0].end, WL_END_REGISTER_LOST);
  EXPECT_EQ(made.samples[0].locations.size(), 2u) << "the kernel's frame and the innermost";
  EXPECT_EQ(made.samples[1].end, WL_END_COMPLETE);
  EXPECT_EQ(made.samples[1].locations.size(), 4u);
  EXPECT_EQ(made.samples[2].end, WL_END_REGISTER_LOST);
  EXPECT_EQ(made.samples[2].locations.size(), 2u);
  EXPECT_EQ(intake.raw_ends(WL_END_REGISTER_LOST), 1u);
}

// Nobody waits for the names of the kernel's functions while processes come and go. Were that so, take_raw() would not
// return here.
TEST_F(SampleIntakeTest, SamplesThatCannotBeJudgedYetHoldUpNothing) {
  proc = "1000-2000 r-xp 00000000 00:00 0 \n";
  ASSERT_TRUE(table.scan(10, 1));
  std::promise<os::RegisterWriters> writers;
  intake.set_writers(writers.get_future().share());
  EXPECT_TRUE(take_raw(0x1000, {0x1238}, {}));
  EXPECT_TRUE(take_stack(1, 3, 0, 1, 0x1234));
  EXPECT_TRUE(take_stack(1, 3, 0, 2, 0x1244));
  intake.settle();
  EXPECT_TRUE(profile().samples.empty());
  EXPECT_TRUE(take_stack(0, 3, 0, 3, 0x1234));
  EXPECT_EQ(profile().samples.size(), 1u) << "no function of the kernel was running";
  proc = "9000-a000 r-xp 00000000 00:00 0 \n";
  ASSERT_TRUE(table.scan(10, 2)) << "the samples are of the time before";
  writers.set_value(register_writers());
  intake.settle();
  const profile::Profile made = profile();
  ASSERT_EQ(made.samples.size(), 4u);
  EXPECT_EQ(made.samples[1].end, WL_END_REGISTER_LOST);
  EXPECT_EQ(made.samples[1].locations.size(), 2u) << "the kernel's frame and the innermost";
  EXPECT_EQ(made.samples[2].end, WL_END_REGISTER_LOST);
  EXPECT_EQ(made.samples[2].locations.size(), 2u);
  EXPECT_EQ(made.samples[3].end, WL_END_COMPLETE);
  EXPECT_EQ(made.samples[3].locations.size(), 4u);
  EXPECT_EQ(aggregator.counted_stacks(), 3u) << "the kernel side counts their repeats";
}

// Processes go on while samples wait to be unwound.
TEST_F(SampleIntakeTest, APostponedSampleIsUnwoundAsOfItsTime) {
  program = testing::TempDir() + fmt::format("windlass-intake-{}", ::getpid());
  std::ofstream(program, std::ios::binary) << test::program_file(Architecture::kX86_64);
  struct stat status {};
  ASSERT_EQ(::stat(program.c_str(), &status), 0);
  const auto mapped_at = [&](std::string_view range) {
    return fmt::format("{} r-xp 00000000 00:00 {} {}\nffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0\n", range,
                       status.st_ino, program);
  };
  EXPECT_FALSE(postpone_raw(0x10000)) << "of a process that is not known";
  proc = mapped_at("10000-12000");
  ASSERT_TRUE(table.scan(10, 1));
  table.set_epoch(10, 1);
  EXPECT_TRUE(postpone_raw(0x10000 + test::kProgramCode + 8));
  EXPECT_TRUE(intake.has_postponed());
  intake.settle();
  EXPECT_TRUE(profile().samples.empty());
  proc = mapped_at("50000-52000");
  ASSERT_TRUE(table.scan(10, 2));
  table.set_epoch(10, 2);
  EXPECT_TRUE(postpone_raw(0x50000 + test::kProgramCode + 16));
  EXPECT_TRUE(postpone_raw(0x10000 + test::kProgramCode + 24)) << "which is there no longer";
  EXPECT_FALSE(intake.work_off([] { return false; })) << "one at a time";
  EXPECT_TRUE(intake.work_off([] { return true; }));
  EXPECT_FALSE(intake.has_postponed());
  const profile::Profile made = profile();
  ASSERT_EQ(made.samples.size(), 3u);
  EXPECT_NE(made.samples[0].end, WL_END_NO_MAPPING);
  EXPECT_NE(made.samples[1].end, WL_END_NO_MAPPING);
  EXPECT_EQ(made.samples[2].end, WL_END_NO_MAPPING);
  EXPECT_EQ(rescans.size(), 1u) << "for the last one alone";
  proc = mapped_at("10000-12000") + "5000-6000 r-xp 00000000 00:00 0 \n";
  ASSERT_TRUE(table.scan(10, 3));
  EXPECT_FALSE(postpone_raw(0x5010)) << "what is said of generated code is true at once";
  std::filesystem::remove(program);
}

// A profile is made of all that there is.
TEST_F(SampleIntakeTest, AProfileWaitsUntilAllCanBeJudged) {
  proc = "1000-2000 r-xp 00000000 00:00 0 \n";
  ASSERT_TRUE(table.scan(10, 1));
  intake.set_writers(std::async(std::launch::deferred, register_writers).share());
  EXPECT_TRUE(take_stack(1, 3, 0, 1, 0x1234));
  EXPECT_TRUE(profile().samples.empty());
  intake.with_waiting([&] {
    ASSERT_EQ(profile().samples.size(), 1u);
    EXPECT_EQ(profile().samples[0].end, WL_END_REGISTER_LOST);
  });
}

TEST_F(SampleIntakeTest, PartsThatExceedTheEventAreRefused) {
  proc = "1000-2000 r-xp 00000000 00:00 0 \n";
  ASSERT_TRUE(table.scan(10, 1));
  std::vector<std::uint64_t> bytes(sizeof(wl_stack_event) / 8 + 1 + 2, 0x1234);
  wl_stack_event event{};
  event.head = head(WL_EVENT_STACK);
  event.user_frames = 1;
  event.end = WL_END_COMPLETE;
  const auto is_refused = [&](std::uint32_t interpreted, std::uint32_t taken) {
    event.interpreted_frames = interpreted;
    event.taken_words = taken;
    std::memcpy(bytes.data(), &event, sizeof event);
    const std::uint64_t before = intake.malformed();
    EXPECT_TRUE(intake.take(*reinterpret_cast<const wl_event_head*>(bytes.data()), bytes.size() * 8));
    return intake.malformed() != before;
  };
  EXPECT_FALSE(is_refused(1, 0));
  for (const std::uint32_t count : {2U, 0xffff'ffffU, 0x1000'0000U}) EXPECT_TRUE(is_refused(count, 0)) << count;
  EXPECT_FALSE(is_refused(0, 2));
  EXPECT_TRUE(is_refused(1, 1));
  for (const std::uint32_t count : {3U, 0xffff'ffffU, 0x2000'0000U}) EXPECT_TRUE(is_refused(0, count)) << count;
}

TEST_F(SampleIntakeTest, FramesThatExceedTheEventAreRefused) {
  EXPECT_TRUE(take_stack(2, 3, 8));
  EXPECT_TRUE(take_stack(0, 0, 1));
  EXPECT_TRUE(take_raw(0x1000, 1));
  EXPECT_EQ(intake.malformed(), 3u);
  EXPECT_TRUE(profile().samples.empty());
}

// What a jitdump may still tell of is held back, but for a profile in between.
TEST_F(SampleIntakeTest, ASampleWaitsForItsNames) {
  std::string folder = testing::TempDir() + "windlass-intake-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/jit-10.dump";
  std::ofstream(path) << test::JitdumpText().header().take();
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  proc = fmt::format("1000-2000 r-xp 00000000 00:00 0 \n5000-6000 r-xp 00000000 00:00 {} {}\n", status.st_ino, path);
  ASSERT_TRUE(table.scan(10, 1));
  extra = 3;
  EXPECT_TRUE(take_raw(0x1010));
  EXPECT_TRUE(profile().samples.empty());
  intake.settle();
  EXPECT_TRUE(profile().samples.empty());
  intake.with_waiting([&] {
    ASSERT_EQ(profile().samples.size(), 1u);
    EXPECT_EQ(profile().samples[0].count, 4u);
  });
  EXPECT_TRUE(profile().samples.empty());
  std::ofstream(path, std::ios::app) << test::JitdumpText().load(0, 0x1000, 0x100, 1, "late").take();
  intake.settle_all();
  std::uint64_t unknown = 0;
  const auto made = aggregator.build([](const auto&) {}, unknown, [](std::uint32_t, profile::Module&) {}, names);
  ASSERT_EQ(made.samples.size(), 1u);
  EXPECT_EQ(made.samples[0].count, 4u);
  const auto& lines = made.locations[made.samples[0].locations[0]].lines;
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(made.functions[lines[0].function].name, "late");
  std::filesystem::remove_all(folder);
}

// A runtime's structures may be large.
TEST_F(SampleIntakeTest, NothingIsKeptOfWhatAProcessPublishedOnceItIsForgotten) {
  std::string folder = testing::TempDir() + "windlass-intake-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/jit-10.dump";
  std::ofstream(path) << test::JitdumpText().header().load(0, 0x1000, 0x100, 1, "made").take();
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  proc = fmt::format("1000-2000 r-xp 00000000 00:00 0 \n5000-6000 r-xp 00000000 00:00 {} {}\n", status.st_ino, path);
  ASSERT_TRUE(table.scan(10, 1));
  EXPECT_TRUE(take_raw(0x1010));
  EXPECT_TRUE(take_stack(0, 1, 0, 5, 0x1010)) << "its name comes late";
  ASSERT_EQ(table.find(10)->maps->published().size(), 1U);
  const std::weak_ptr<manager::PublishedCode> published = table.find(10)->maps->published().front();
  table.exit(10, 100);
  intake.settle();
  intake.forget_gone();
  EXPECT_FALSE(published.expired()) << "samples of it may be on their way";
  table.forget_dead(101 + ProcessTable::kDeadNs);
  intake.forget_gone();
  EXPECT_TRUE(published.expired());
  std::filesystem::remove_all(folder);
}

TEST_F(SampleIntakeTest, ARawSampleHasItsKernelsFrames) {
  EXPECT_TRUE(take_raw(0x1000, {0xffffffff81000010, 0xffffffff81000020}, {}));
  const profile::Profile made = profile();
  ASSERT_EQ(made.samples.size(), 1u);
  ASSERT_EQ(made.samples[0].locations.size(), 3u);
  const auto& location = made.locations[made.samples[0].locations[1]];
  EXPECT_EQ(location.address, 0xffffffff8100001f);
  EXPECT_TRUE(made.modules[location.module].is_kernel);
}

// The code it was called from was mapped since the process was read.
TEST_F(SampleIntakeTest, ARawStackThroughUnknownCodeHasItsProcessRead) {
  program = testing::TempDir() + fmt::format("windlass-intake-{}", ::getpid());
  std::ofstream(program, std::ios::binary) << test::program_file(Architecture::kX86_64);
  struct stat status {};
  ASSERT_EQ(::stat(program.c_str(), &status), 0);
  proc = fmt::format("10000-12000 r-xp 00000000 00:00 {} {}\n", status.st_ino, program);
  ASSERT_TRUE(table.scan(10, 1));
  proc = "5000-6000 r-xp 00000000 00:00 0 \n" + proc;
  EXPECT_TRUE(take_raw(0x10000 + test::kProgramCode + 8, {}, {0x5010, 0, 0}));
  EXPECT_EQ(rescans.size(), 1u);
  const profile::Profile made = profile();
  ASSERT_EQ(made.samples.size(), 1u);
  EXPECT_EQ(made.samples[0].locations.size(), 2u);
  EXPECT_EQ(intake.raw_ends(WL_END_NO_MAPPING), 0u);
  std::filesystem::remove(program);
}

// Code in a file of a server that has stopped, say.
TEST_F(SampleIntakeTest, AStackThatBreaksOffInWhatDoesNotAnswerSaysSo) {
  proc = "1000-2000 r-xp 00000000 00:39 5 /served/program\n";
  ASSERT_TRUE(table.scan(10, 1));
  EXPECT_TRUE(take_raw(0x1000));
  EXPECT_EQ(intake.raw_ends(WL_END_SILENT), 0u);
  EXPECT_NE(profile().samples[0].end, WL_END_COMPLETE);
  silent = true;
  ASSERT_TRUE(table.scan(10, 1));
  EXPECT_TRUE(take_raw(0x1000));
  EXPECT_EQ(intake.raw_ends(WL_END_SILENT), 1u);
  EXPECT_EQ(profile().samples[1].end, WL_END_SILENT);
  EXPECT_TRUE(take_stack(1, 2, 0, 7, 0x1234));
  EXPECT_EQ(profile().samples[2].end, WL_END_COMPLETE) << "nothing of it was missing";
}

TEST_F(SampleIntakeTest, EventsOfProcessesAreNotItsOwn) {
  const wl_event_head exit = head(WL_EVENT_EXIT);
  EXPECT_FALSE(intake.take(exit, sizeof exit));
}

// The process is read again, once; what is known then counts.
TEST_F(SampleIntakeTest, ARawSampleOfAnUnknownProcessHasItRead) {
  EXPECT_TRUE(take_raw(0x1000));
  EXPECT_EQ(rescans, std::vector<std::uint32_t>{10});
  EXPECT_EQ(intake.raw_ends(WL_END_NO_PROCESS), 1u);

  proc = "1000-2000 r-xp 00000000 00:00 0 \n";
  EXPECT_TRUE(take_raw(0x1000));
  EXPECT_EQ(rescans.size(), 2u);
  EXPECT_EQ(intake.raw_ends(WL_END_NO_PROCESS), 1u);
  EXPECT_EQ(intake.raw_ends(WL_END_NO_MAPPING), 0u);
  std::uint64_t ends = 0;
  for (unsigned end = 0; end < WL_END_COUNT; ++end) ends += intake.raw_ends(end);
  EXPECT_EQ(ends, 2u) << "every sample ends in one way";
  EXPECT_TRUE(take_raw(0x1000));
  EXPECT_EQ(rescans.size(), 2u) << "the mapping is known";
  EXPECT_EQ(profile().samples.size(), 2u);
}

}  // namespace
}  // namespace windlass::profiler
