// `windlass record --alloc` of a program whose allocations are known.
#include <sys/stat.h>

#include "integration/known_allocations.h"

namespace windlass::test {
namespace {

TEST_F(Allocations, AreExactIfEachIsASample) {
  const Profile profile = record("--alloc=1", WINDLASS_ALLOCATIONS " 999");
  expect_known(profile, 1);
  const std::uint32_t allocated = event_named(profile, "alloc_space");
  std::uint64_t all = 0, whole = 0;
  for (const Sample& sample : profile.samples) {
    if (sample.event != allocated) continue;
    all += sample.count;
    whole += profile::is_whole(sample.end) ? sample.count : 0;
    // The preloaded library's functions are no part of the program's stack.
    for (const std::uint32_t location : sample.locations) {
      const std::uint32_t module = profile.locations[location].module;
      ASSERT_NE(module, profile::kNone);
      EXPECT_EQ(profile.modules[module].path.find("windlass_alloc"), std::string::npos);
    }
  }
  EXPECT_EQ(whole, all) << output_;
}

TEST_F(Allocations, AreRightOnAverageIfSomeAreSamples) {
  expect_known(record("--alloc=512", WINDLASS_ALLOCATIONS " 5000"), 512);
}

bool can_be_preloaded(const std::string& library) {
  return run("LD_PRELOAD=" + library + " true 2>&1").output.find("cannot be preloaded") == std::string::npos;
}

// operator new of these calls no malloc().
TEST_F(Allocations, OfOtherAllocatorsAreExactToo) {
  for (const char* allocator : {"libjemalloc.so.2", "libtcmalloc_minimal.so.4"}) {
    SCOPED_TRACE(allocator);
    if (!can_be_preloaded(allocator)) GTEST_SKIP() << "no " << allocator;
    expect_known(record("--alloc=1", WINDLASS_ALLOCATIONS " 100", fmt::format("LD_PRELOAD={}", allocator)), 1);
  }
}

// Mappings of the program count, and those of the allocator do not: its blocks do. With a jump of bytes between samples
// each mapping is at least that large but those of 5,000 bytes, so sums are near.
TEST_F(Allocations, OfMappingsAreExact) {
  for (const char* allocator : {"", "libjemalloc.so.2", "libtcmalloc_minimal.so.4"}) {
    SCOPED_TRACE(allocator);
    if (!can_be_preloaded(allocator)) GTEST_SKIP() << "no " << allocator;
    const std::string environment = *allocator == '\0' ? "" : fmt::format("LD_PRELOAD={}", allocator);
    const Profile profile = record("--alloc=1", WINDLASS_MAPPINGS, environment);
    const auto known = mappings_in(output_);
    ASSERT_EQ(known.size(), 7u) << output_;
    for (const auto& [function, mappings] : known) {
      SCOPED_TRACE(function);
      const double printed = function == "known_mmap" ? 1 : 0;  // the buffer of printf()
      EXPECT_NEAR(sums_of(profile, "alloc_space", function).count, mappings.allocations, printed) << output_;
      EXPECT_NEAR(sums_of(profile, "alloc_space", function).bytes, mappings.bytes, printed * 4096);
      EXPECT_NEAR(sums_of(profile, "inuse_space", function).bytes, mappings.in_use, printed * 4096);
    }
  }
}

TEST_F(Allocations, OfMappingsAreRightOnAverageIfSomeAreSamples) {
  const Profile profile = record("--alloc=64K", WINDLASS_MAPPINGS " 400");
  const auto known = mappings_in(output_);
  ASSERT_EQ(known.size(), 7u) << output_;
  for (const auto& [function, mappings] : known) {
    if (function == "known_none" || function == "known_mmap" || function == "known_parent") continue;
    SCOPED_TRACE(function);
    // 400 mappings of a piece: each a sample with the chance 0.63, so one in 26 off.
    EXPECT_NEAR(sums_of(profile, "alloc_space", function).bytes / mappings.bytes, 1, 5 / 26.0) << output_;
    EXPECT_NEAR(sums_of(profile, "inuse_space", function).bytes / mappings.in_use, 1, 5 / 26.0);
  }
}

// No operators stand behind those of the preloaded library then.
TEST_F(Allocations, OfAModuleThatHasItsOwnOperators) {
  const Profile profile = record("--alloc=1", WINDLASS_ALLOCATIONS_OPENER);
  const Sums all = sums_of(profile, "alloc_space", "known_module");
  EXPECT_EQ(all.count, 3000) << output_;
  EXPECT_EQ(all.bytes, 1000.0 * (101 + 64 + 4)) << output_;
  EXPECT_EQ(sums_of(profile, "inuse_space", "known_module").count, 0) << output_;
}

// Its children go on starting programs. What these load is no file that another process has put there meanwhile.
TEST_F(Allocations, LeaveNothingToOthersWhenTheCommandEnds) {
  const std::string late = folder_ + "/late";
  (void)record("--alloc",
               fmt::format("sh -c '(sleep 1; env >{0}.env; ls / >{0} 2>&1; touch {0}.done) & sleep 0.1'", late));
  for (int i = 0; i < 3000 && !std::filesystem::exists(late + ".done"); ++i) usleep(100'000);
  const std::string said = run("cat " + late).output, environment = run("cat " + late + ".env").output;
  EXPECT_EQ(said.find("ld.so"), std::string::npos) << said;
  EXPECT_NE(said.find("etc"), std::string::npos) << said;
  const std::size_t at = environment.find("LD_PRELOAD=");
  ASSERT_NE(at, std::string::npos) << environment;
  const std::string path = environment.substr(at + 11, environment.find('\n', at) - at - 11);
  for (std::string up = path; up != "/"; up = std::filesystem::path(up).parent_path().string()) {
    struct stat status {};
    ASSERT_EQ(lstat(up.c_str(), &status), 0) << up;
    EXPECT_TRUE(status.st_uid == 0 || status.st_uid == geteuid()) << up;
    EXPECT_EQ(status.st_mode & 022, 0u) << up;
  }
}

// Events have their numbers whatever else is recorded.
TEST_F(Allocations, BesideWaits) {
  const Profile profile = record("--off-cpu --alloc=1", WINDLASS_WAITS " 10");
  ASSERT_EQ(profile.events.size(), 4u) << output_;
  EXPECT_EQ(profile.events[1].name, "off-cpu");
  EXPECT_EQ(profile.events[2].name, "alloc_space");
  EXPECT_EQ(profile.events[2].counted, "alloc_objects");
  EXPECT_EQ(profile.events[3].name, "inuse_space");
  EXPECT_EQ(profile.events[3].counted, "inuse_objects");
  double waited = 0;
  for (const Sample& sample : profile.samples)
    if (sample.event == 1 && has_frame(profile, sample, "wait_sleep")) waited += static_cast<double>(sample.value);
  EXPECT_GT(waited, 10 * 7e6);
  EXPECT_GE(sums_of(profile, "alloc_space", "main").count, 2) << "the stacks of two threads, at least";
}

// Of the smallest thread, of a signal handler, and of a coroutine with 8 KiB.
TEST_F(Allocations, OnStacksThatAreNearlyUsedUp) {
  expect_known(record("--alloc=1", WINDLASS_SMALL_STACKS " 300"), 1, 3);
  expect_known(record("--alloc=512", WINDLASS_SMALL_STACKS " 5000"), 512, 3);
}

// The stack of the signal handler lies below the one that the library walks on.
TEST_F(Allocations, OnStacksOfTheLibraryAreFollowedByGdb) {
  if (run("command -v gdb").status != 0) GTEST_SKIP() << "SKIPPED: there is no gdb";
  (void)record(
      "--alloc=1",
      "gdb -batch -nx -ex 'set debuginfod enabled off' -ex 'handle SIGUSR1 nostop' -ex 'break known_signal_stack' "
      "-ex run -ex 'break process_vm_readv' -ex continue -ex bt --args " WINDLASS_SMALL_STACKS " 3");
  if (output_.find("Breakpoint 2, ") == std::string::npos) GTEST_SKIP() << "SKIPPED: gdb runs no programs here";
  std::size_t at = 0;
  for (const char* frame : {"#0 ", "libwindlass_alloc-", "in known_signal_stack ", "in main "}) {
    at = output_.find(frame, at);
    ASSERT_NE(at, std::string::npos) << frame << output_;
  }
}

// libstdc++'s other forms call those of the program.
TEST_F(Allocations, AProgramMayReplaceTwoOperatorsOnly) {
  (void)record("--alloc=1", WINDLASS_OWN_OPERATORS);
  EXPECT_NE(output_.find("fine"), std::string::npos) << output_;
}

TEST_F(Allocations, OfAStaticProgramCannotBeSeen) {
  const Profile profile = record("--alloc=1", WINDLASS_ALLOCATIONS_STATIC);
  EXPECT_NE(output_.find("it is statically linked"), std::string::npos) << output_;
  EXPECT_EQ(profile.events.size(), 3u);
}

// Neither is a heap that is not seen taken for one without allocations.
TEST_F(Allocations, OfManagedHeapsAreNotThere) {
  const std::pair<const char*, const char*> programs[] = {{"java", "java -version"}, {"go", "go version"}};
  const char* const languages[] = {"Java", "Go"};
  for (std::size_t i = 0; i < std::size(programs); ++i) {
    const auto& [program, command] = programs[i];
    if (run(fmt::format("command -v {}", program)).status != 0) GTEST_SKIP() << "SKIPPED: there is no " << program;
    (void)record("--alloc=64K", command);
    EXPECT_NE(output_.find(fmt::format("the heap of {} is not in these values", languages[i])), std::string::npos)
        << output_;
  }
  (void)record("--alloc=64K", WINDLASS_ALLOCATIONS " 10");
  EXPECT_EQ(output_.find("the heap of"), std::string::npos) << output_;
}

// Of a program that lives on when the recording ends: the live heap.
TEST_F(Allocations, OfALivingProgramAreThoseAtTheEnd) {
  expect_known(record("--alloc=1 --duration 2", WINDLASS_ALLOCATIONS " 20 60"), 1);
}

// What has been counted stays, and blocks that a killed process had are in use.
TEST_F(Allocations, OfAKilledProgramAreKept) {
  const Profile profile = record("--alloc=1", "sh -c '" WINDLASS_ALLOCATIONS " 50; kill -9 $$'");
  expect_known(profile, 1);
}

}  // namespace
}  // namespace windlass::test
