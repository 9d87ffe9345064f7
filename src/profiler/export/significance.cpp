#include "profiler/export/significance.h"

#include <algorithm>
#include <cmath>

namespace windlass::exporter {

namespace {

constexpr std::uint64_t kSamplesOfFit = 50;
constexpr std::size_t kLeastOfFit = 16;  // sums; of fewer nothing can be said
constexpr double kMostNoise = 0.3;       // so that other programs are not taken for noise
constexpr double kQuarter = 0.75;
constexpr double kChiSquared = 1.3233;  // kQuarter of squares of the normal distribution are below

struct Test {
  std::size_t sum;
  double difference, variance;  // that of counting
  double spread;                // the variance of the program is this times the noise, squared
  bool fits;
};

double square(double x) { return x * x; }

// Under the hypothesis that both are alike. Both sides then have equal parts of all samples.
Test test_of(std::size_t index, const TwoSums& sums, const Divisors& by) {
  const double all = by.a + by.b;
  const double mean = (sums.a + sums.b) / all;
  const double inside = sums.a_squares + sums.b_squares;
  const double outside = by.are_totals ? std::max(0.0, by.squares - inside) : 0;
  const double rest = by.are_totals ? std::max(0.0, 1 - mean) : 1;
  const double variance = (square(rest) * inside + square(mean) * outside) / all * (1 / by.a + 1 / by.b);
  return {index, sums.b / by.b - sums.a / by.a, variance, 2 * square(mean * rest),
          sums.samples >= kSamplesOfFit && sums.a > 0 && sums.b > 0};
}

double fitted_noise(const std::vector<Test>& tests) {
  std::vector<const Test*> large;
  for (const Test& test : tests)
    if (test.fits) large.push_back(&test);
  if (large.size() < kLeastOfFit) return 0;
  std::vector<double> ratios(large.size());
  const auto quarter = ratios.begin() + static_cast<std::ptrdiff_t>(kQuarter * static_cast<double>(large.size()));
  const auto is_too_small = [&](double noise) {
    for (std::size_t i = 0; i < large.size(); ++i)
      ratios[i] = square(large[i]->difference) / (large[i]->variance + square(noise) * large[i]->spread);
    std::nth_element(ratios.begin(), quarter, ratios.end());
    return *quarter > kChiSquared;
  };
  if (!is_too_small(0)) return 0;
  double low = 0, high = kMostNoise;
  for (int i = 0; i < 30; ++i) {
    const double middle = (low + high) / 2;
    (is_too_small(middle) ? low : high) = middle;
  }
  return high;
}

}  // namespace

Significance significance_of(const std::vector<TwoSums>& sums, const Divisors& divisors) {
  Significance result{
      .p = std::vector<double>(sums.size(), 1), .differs = std::vector<bool>(sums.size()), .tests = 0, .noise = 0};
  if (!(divisors.a > 0 && divisors.b > 0)) return result;
  std::vector<Test> tests;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (sums[i].samples < kLeastSamples) continue;
    // What all samples have in common differs by nothing.
    if (const Test test = test_of(i, sums[i], divisors); test.variance > 0) tests.push_back(test);
  }
  result.tests = tests.size();
  result.noise = fitted_noise(tests);
  for (const Test& test : tests) {
    const double variance = kSamplesInBurst * test.variance + square(result.noise) * test.spread;
    result.p[test.sum] = std::erfc(std::abs(test.difference) / std::sqrt(2 * variance));
  }
  std::ranges::sort(tests, {}, [&](const Test& test) { return result.p[test.sum]; });
  std::size_t found = tests.size();
  while (found > 0 && result.p[tests[found - 1].sum] >
                          kFalseDiscoveries * static_cast<double>(found) / static_cast<double>(tests.size()))
    --found;
  for (std::size_t i = 0; i < found; ++i) result.differs[tests[i].sum] = true;
  return result;
}

}  // namespace windlass::exporter
