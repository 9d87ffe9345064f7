// Which bytes are sampled, and what a sample stands for.
//
// Each allocated byte is sampled with the same small chance, by which the distance between two samples is distributed
// exponentially, with the period as its mean. An allocation is a sample if at least one of its bytes is:
//   P = 1 - exp(-size / period)
// It stands for 1 / P allocations, and size / P bytes: the expectation of the sums is what was allocated. Weights are
// rounded up or down by chance, so that whole numbers keep it.
#pragma once

#include <cstdint>
#include <numbers>

namespace windlass::alloc {

// xorshift64*: its state is all that a thread keeps. Never 0.
inline std::uint64_t next_random(std::uint64_t& state) {
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return state * 0x2545f4914f6cdd1dull;
}

// In (0, 1].
inline double next_unit(std::uint64_t& state) { return (static_cast<double>(next_random(state) >> 11) + 1) * 0x1p-53; }

// exp(x) - 1 and log(x), without the C library: it may not be there yet when a process begins.
inline double expm1_of(double x) {
  if (x < -40) return -1;
  constexpr int kHalvings = 12;
  const double y = x / (1 << kHalvings);
  double result = y * (1 + y / 2 * (1 + y / 3 * (1 + y / 4)));
  for (int i = 0; i < kHalvings; ++i) result *= 2 + result;
  return result;
}
inline double log_of(double x) {  // x in (0, 1]
  double powers = 0;
  while (x < 0.5) {
    x *= 2;
    ++powers;
  }
  const double z = (x - 1) / (x + 1), square = z * z;  // log(x) = 2 atanh(z), |z| <= 1/3
  double term = z, sum = 0;
  for (int i = 1; i < 40; i += 2, term *= square) sum += term / i;
  return 2 * sum - powers * std::numbers::ln2;
}

// Of the next sampled byte: 1 is the next byte.
inline std::uint64_t next_distance(std::uint64_t& state, std::uint64_t period) {
  return static_cast<std::uint64_t>(-log_of(next_unit(state)) * static_cast<double>(period)) + 1;
}

struct Weight {
  std::uint64_t count, bytes;
};

// A sample as it is kept: the allocation's size, and which way chance has rounded.
class SizeOfSample {
 public:
  static constexpr unsigned kBits = 48;
  constexpr explicit SizeOfSample(std::uint64_t word) : word_(word) {}
  SizeOfSample(std::uint64_t size, std::uint64_t period, std::uint64_t& state) : word_(size << 2) {
    if (period <= 1) return;
    const double count = 1 / chance_of(size, period);
    const auto up = [&](double value) { return next_unit(state) <= value - whole(value) ? 1u : 0u; };
    word_ |= up(count);
    word_ |= up(static_cast<double>(size) * count) << 1;
  }
  [[nodiscard]] constexpr std::uint64_t word() const { return word_; }
  [[nodiscard]] Weight weight(std::uint64_t period) const {
    const std::uint64_t size = word_ >> 2;
    if (period <= 1) return {1, size};
    const double count = 1 / chance_of(size, period);
    return {static_cast<std::uint64_t>(count) + (word_ & 1),
            static_cast<std::uint64_t>(static_cast<double>(size) * count) + (word_ >> 1 & 1)};
  }

 private:
  static double chance_of(std::uint64_t size, std::uint64_t period) {
    return -expm1_of(-static_cast<double>(size) / static_cast<double>(period));
  }
  static double whole(double value) { return static_cast<double>(static_cast<std::uint64_t>(value)); }

  std::uint64_t word_;
};

}  // namespace windlass::alloc
