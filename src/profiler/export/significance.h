// Which differences of two profiles are more than noise.
#pragma once

#include <cstdint>
#include <vector>

namespace windlass::exporter {

// One sum in two profiles.
struct TwoSums {
  double a = 0, b = 0;                  // sums of samples' values
  double a_squares = 0, b_squares = 0;  // sums of their squares; of counted samples, the sums themselves
  std::uint64_t samples = 0;            // of both profiles
};

// How the sums are made comparable: divided by these.
struct Divisors {
  double a = 1, b = 1;
  bool are_totals = true;  // of the same values, so that a sum is a share
  double squares = 0;      // with `are_totals`: of all samples of both profiles
};

struct Significance {
  std::vector<double> p;      // of each sum: how likely such a difference is by noise; 1 where nothing was tested
  std::vector<bool> differs;  // more than noise, with kFalseDiscoveries
  std::size_t tests = 0;
  double noise = 0;  // how much a share varies from recording to recording, relatively: 0.03
};

inline constexpr double kFalseDiscoveries = 0.05;
inline constexpr std::uint64_t kLeastSamples = 10;  // of both profiles; fewer show nothing
// Samples of a stack are not independent: those of a burst come together. Each counts as half a sample.
inline constexpr double kSamplesInBurst = 2;

// A test of two proportions (or, without totals, of two rates) for each sum of kLeastSamples. The variance of a
// difference has two parts:
// - That of counting, times kSamplesInBurst. Of a share p: (1 - p)^2 of the squares in the function, and p^2 of those
//   outside. A single heavy sample elsewhere moves every share.
// - That of the program: it does not take the same time in each run. Most functions of two recordings did not change.
// So
//   this part is fitted to the differences themselves: three quarters of those with 50 samples, on both sides, are as
//   the normal distribution has them.
// Of many tests, Benjamini and Hochberg's procedure takes those that differ.
[[nodiscard]] Significance significance_of(const std::vector<TwoSums>& sums, const Divisors& divisors);

}  // namespace windlass::exporter
