// `windlass record --alloc -p` of a program whose allocations are known.
#include "integration/known_allocations.h"

namespace windlass::test {
namespace {

using RunningAllocations = Allocations;

// Probes on the functions of libc.
TEST_F(RunningAllocations, AreExactIfEachIsASample) {
  expect_known_outside(record_running("--alloc=1", "999"), 1, false);
  EXPECT_NE(output_.find("each allocation of process"), std::string::npos) << output_;
}

TEST_F(RunningAllocations, AreRightOnAverage) {
  expect_known_outside(record_running("--alloc=512", "5000"), 512, false);
}

// A fork of the shell, which then runs another program.
TEST_F(RunningAllocations, OfAChildThatStartsLater) {
  expect_known_outside(record_child("--alloc=1", "999"), 1, false);
}

// The program takes the samples.
TEST_F(RunningAllocations, ThatOffersProbes) {
  const std::string preload = "LD_PRELOAD=" WINDLASS_ALLOC_LIBRARY;
  expect_known_outside(record_running("--alloc", "999", preload + " WINDLASS_ALLOC_PERIOD=1"), 1, true);
  EXPECT_NE(output_.find("takes samples of its allocations itself"), std::string::npos) << output_;
  expect_known_outside(record_running("--alloc", "5000", preload + " WINDLASS_ALLOC_PERIOD=512"), 512, true);
}

TEST_F(RunningAllocations, WithoutSymbolsAreRefused) {
  output_ = run(fmt::format("{} 60 & program=$!; {} record --alloc -o {}/p.pb.gz -p $program 2>&1; kill $program",
                            WINDLASS_ALLOCATIONS_STATIC, WINDLASS_COMMAND, folder_))
                .output;
  EXPECT_NE(output_.find("or a function malloc"), std::string::npos) << output_;
}

}  // namespace
}  // namespace windlass::test
