#include "profiler/doctor/no_samples.h"

#include <gtest/gtest.h>

namespace windlass::profiler {
namespace {

bool blames_the_program(const NoSamples& facts) {
  return explain_no_samples(facts).find("too little CPU time") != std::string::npos;
}

TEST(NoSamples, TheProgramIsBlamedOnlyForItsOwnCpuTime) {
  EXPECT_TRUE(blames_the_program({.seconds = 5, .frequency = 997, .ticks = 900, .cpu_seconds = 0.0009}));
  // Time for a sample or two, which chance has denied.
  EXPECT_FALSE(blames_the_program({.seconds = 5, .frequency = 997, .ticks = 900, .cpu_seconds = 0.003}));
  EXPECT_FALSE(blames_the_program({.seconds = 5, .frequency = 997, .ticks = 900, .cpu_seconds = 2.5}));
  EXPECT_TRUE(blames_the_program({.seconds = 5, .frequency = 1, .ticks = 3, .cpu_seconds = 0.9}));
  EXPECT_FALSE(blames_the_program({.seconds = 5, .frequency = 1, .ticks = 3, .cpu_seconds = 2.5}));
  EXPECT_FALSE(blames_the_program({.seconds = 5, .frequency = 997, .ticks = 900, .lost = 7, .cpu_seconds = 0.003}));
  EXPECT_FALSE(blames_the_program({.seconds = 5, .frequency = 997, .ticks = 900, .cpu_seconds = std::nullopt}));
  EXPECT_FALSE(blames_the_program({.seconds = 5, .frequency = 997, .ticks = 0, .cpu_seconds = std::nullopt}));
  EXPECT_FALSE(blames_the_program({.seconds = 5, .frequency = 997, .cpu_seconds = 0.001, .user_space_only = true}));
}

TEST(NoSamples, SaysWhatIsKnown) {
  EXPECT_EQ(
      explain_no_samples({.seconds = 2, .frequency = 997, .ticks = 41, .cpu_seconds = 1.5}),
      "no samples in 2.0 s, although what was recorded used 1.50 s of CPU time: 41 clock ticks met other processes. "
      "Way out: please report it with the output of windlass doctor -v");
  EXPECT_EQ(
      explain_no_samples({.seconds = 2, .frequency = 100, .ticks = 41, .cpu_seconds = 0.004}),
      "no samples in 2.0 s: what was recorded used too little CPU time (0.004 s; one sample is taken in 0.010 s). "
      "Way out: record longer, or a higher -F");
  EXPECT_EQ(
      explain_no_samples({.seconds = 2, .frequency = 100, .ticks = 41, .cpu_seconds = 0.034}),
      "no samples in 2.0 s: what was recorded used 0.034 s of CPU time, and none of 41 clock ticks, one in 0.010 s, "
      "fell into it. Way out: record longer, or a higher -F");
}

TEST(NoSamples, WhatEndedBeforeIsNotToldToRunLonger) {
  EXPECT_EQ(
      explain_no_samples({.frequency = 997, .ended_before = true}),
      "no samples in 0.0 s: what was to be recorded had ended before sampling began. Way out: record -- CMD, which "
      "holds a command until it is sampled");
}

TEST(NoSamples, CpuTimeFromProc) {
  const std::string stat = "42 (a (b) c) S 1 42 42 0 -1 4194560 100 200 0 0 150 50 20 30 20 0 1 0 100 1000 10";
  EXPECT_EQ(parse_cpu_seconds(stat, 100), 2.5);
  EXPECT_EQ(parse_cpu_seconds("42 (a) S 1 42", 100), std::nullopt);
  EXPECT_EQ(parse_cpu_seconds("", 100), std::nullopt);
  EXPECT_EQ(parse_cpu_seconds(stat, 0), std::nullopt);
}

}  // namespace
}  // namespace windlass::profiler
