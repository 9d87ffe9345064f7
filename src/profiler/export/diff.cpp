#include "profiler/export/diff.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include "base/shown.h"
#include "profiler/export/call_tree.h"
#include "profiler/export/csv.h"
#include "profiler/export/folded.h"
#include "profiler/export/numbers.h"
#include "profiler/export/significance.h"
#include "profiler/profile/interrupts.h"

namespace windlass::exporter {

namespace {

struct Sums {
  std::uint64_t all = 0;
  // Of these, what the program did itself: without interrupts, which come for the work of other programs and devices.
  std::uint64_t sum = 0, samples = 0;
  double squares = 0;
  void add(std::uint64_t weight, std::uint64_t count, double weight_squares, bool is_own) {
    all += weight;
    if (!is_own) return;
    sum += weight;
    samples += count;
    squares += weight_squares;
  }
};
struct FunctionSums {
  Sums self, total;
};
struct SideSums {
  Sums all;
  // Of all: samples of which the innermost function has no name, and those of which any may be missing.
  std::uint64_t unknown_self = 0, unknown_total = 0;
};

// How many draws a sample is, and the sum of their squares.
struct Draws {
  std::uint64_t count = 1;
  double squares = 0;
};

// - Counts of allocations are estimates: a sample of 512 KiB may count as 10,000 blocks, but was drawn once.
// - Waits are as long as their times say. Without times they count as equally long.
Draws draws_of(const profile::Profile& profile, const profile::Sample& sample, profile::ValueType type,
               std::uint64_t weight) {
  const auto square = [](double x) { return x * x; };
  const profile::Event& event = profile.events[sample.event];
  if (event.unit == "bytes") return {1, square(static_cast<double>(weight))};
  const std::uint64_t count = std::max<std::uint64_t>(sample.count, 1);
  if (!type.counts && event.period == 0 && sample.times == count) {
    double squares = 0;
    for (const profile::SampleTime& time : times_of(profile, sample))
      squares += square(static_cast<double>(time.lasted));
    return {count, squares};
  }
  return {count, square(static_cast<double>(weight)) / static_cast<double>(count)};
}

bool is_interrupt(const profile::Profile& profile, const Frame& frame) {
  return frame.module < profile.modules.size() && profile.modules[frame.module].is_kernel &&
         profile::enters_interrupt(frame.name);
}

// Code made at run time that nothing names: one frame for all of its functions.
bool is_unknown(const profile::Profile& profile, const Frame& frame) {
  return frame.kind == FrameKind::kUnnamed && frame.module < profile.modules.size() &&
         profile.modules[frame.module].path == "[anon]";
}

// Of each frame.
std::vector<FunctionSums> sums_of(const profile::Profile& profile, Frames& frames, profile::ValueType type,
                                  SideSums& side) {
  std::vector<FunctionSums> sums(frames.size());
  std::vector<std::size_t> last(frames.size(), ~std::size_t{0});
  std::vector<bool> interrupts, unknown;
  std::vector<std::uint32_t> path;
  for (std::size_t i = 0; i < profile.samples.size(); ++i) {
    const profile::Sample& sample = profile.samples[i];
    const std::uint64_t weight = weight_of(profile, sample, type);
    if (weight == 0) continue;
    const auto [count, squares] = draws_of(profile, sample, type, weight);
    frames.path_of(sample, path);
    sums.resize(frames.size());
    last.resize(frames.size(), ~std::size_t{0});
    for (std::size_t id = interrupts.size(); id < frames.size(); ++id) {
      const Frame& frame = frames[static_cast<std::uint32_t>(id)];
      interrupts.push_back(is_interrupt(profile, frame));
      unknown.push_back(is_unknown(profile, frame));
    }
    const bool is_own = std::ranges::none_of(path, [&](std::uint32_t frame) { return interrupts[frame]; });
    side.all.add(weight, count, squares, is_own);
    const bool is_missing = profile::is_truncated(sample.end) ||
                            std::ranges::any_of(path, [&](std::uint32_t frame) { return unknown[frame]; });
    if (is_own && is_missing) side.unknown_total += weight;
    if (is_own && unknown[path.back()]) side.unknown_self += weight;
    for (const std::uint32_t frame : path)
      if (std::exchange(last[frame], i) != i) sums[frame].total.add(weight, count, squares, is_own);
    sums[path.back()].self.add(weight, count, squares, is_own);
  }
  return sums;
}

// What both profiles have of a function.
struct Both {
  FunctionDifference difference;
  TwoSums self, total;
};

// Returns the sums of all samples.
SideSums add_side(const profile::Profile& profile, profile::ValueType type, bool is_a,
                  std::map<FunctionKey, Both>& all) {
  Frames frames(profile);
  SideSums side;
  const auto sums = sums_of(profile, frames, type, side);
  for (std::uint32_t id = 0; id < frames.size(); ++id) {
    const Frame& frame = frames[id];
    if (frame.kind == FrameKind::kComm || frame.kind == FrameKind::kTruncated || sums[id].total.all == 0) continue;
    Both& both = all[function_key(profile, frame)];
    (is_a ? both.difference.in_a : both.difference.in_b) = true;
    for (const std::uint32_t module : frame.modules()) {
      auto& modules = both.difference.modules;
      const std::string& path = profile.modules[module].path;
      if (std::ranges::find(modules, path) == modules.end()) modules.push_back(path);
    }
    const auto add = [&](const Sums& from, FunctionDifference::Numbers& numbers, TwoSums& to) {
      (is_a ? numbers.a : numbers.b) += from.all;
      (is_a ? to.a : to.b) += static_cast<double>(from.sum);
      (is_a ? to.a_squares : to.b_squares) += from.squares;
      if (!is_unknown(profile, frame)) to.samples += from.samples;  // else too few for a test
    };
    add(sums[id].self, both.difference.self, both.self);
    add(sums[id].total, both.difference.total, both.total);
  }
  return side;
}

double divisor_of(const profile::Profile& profile, std::uint64_t sum, Normalise normalise) {
  if (normalise == Normalise::kSamples) return static_cast<double>(sum);
  return normalise == Normalise::kTime ? static_cast<double>(profile.duration_ns) / 1e9 : 1;
}

// What one side lost more than the other may be of any function. So where that side has less of a function, what is
// lost may fill the gap. What both sides lost alike says nothing about a difference.
void fill_gap(TwoSums& sums, double unknown_a, double unknown_b, const Divisors& divisors) {
  const double b_in_a = divisors.a / divisors.b;
  const double more_in_b = unknown_b * b_in_a - unknown_a, gap_in_b = sums.a - sums.b * b_in_a;  // as of A
  if (more_in_b > 0 && gap_in_b > 0) sums.b += std::min(more_in_b, gap_in_b) / b_in_a;
  if (more_in_b < 0 && gap_in_b < 0) sums.a += std::min(-more_in_b, -gap_in_b);
}

// Sums as they are may have more digits than a double.
double difference_of_numbers(const FunctionDifference::Numbers& numbers, const ProfileDifference& of) {
  const auto [a, b] = std::pair(numbers.a, numbers.b);
  if (of.normalise == Normalise::kNothing) return b >= a ? static_cast<double>(b - a) : -static_cast<double>(a - b);
  return static_cast<double>(b) / of.b.divisor - static_cast<double>(a) / of.a.divisor;
}

auto rank_of(const FunctionDifference& one) {
  const int group = one.self.differs ? 0 : one.total.differs ? 1 : 2;
  return std::tuple(group, -std::abs(group == 1 ? one.total.difference : one.self.difference),
                    -std::abs(one.total.difference), std::string_view(one.name));
}

}  // namespace

const char* text_of(Normalise normalise) {
  switch (normalise) {
    case Normalise::kSamples: return "samples";
    case Normalise::kTime: return "time";
    case Normalise::kNothing: break;
  }
  return "none";
}

Expected<ProfileDifference> difference_of(const profile::Profile& a, profile::ValueType type_of_a,
                                          const profile::Profile& b, profile::ValueType type_of_b,
                                          Normalise normalise) {
  ProfileDifference result{.normalise = normalise,
                           .value = name_of(a, type_of_a),
                           .unit = unit_of(a, type_of_a),
                           .a = {.type = type_of_a, .sum = totals_of(a, type_of_a).samples},
                           .b = {.type = type_of_b, .sum = totals_of(b, type_of_b).samples},
                           .functions = {}};
  if (result.a.sum == 0 || result.b.sum == 0)
    return fail(ErrorCode::kUnsupported, "a profile without samples cannot be compared", 0);
  if (normalise == Normalise::kTime && (a.duration_ns == 0 || b.duration_ns == 0))
    return fail(ErrorCode::kUnsupported, "a profile that does not say how long it took has no values a second", 0);
  result.a.divisor = divisor_of(a, result.a.sum, normalise);
  result.b.divisor = divisor_of(b, result.b.sum, normalise);
  std::map<FunctionKey, Both> all;
  const SideSums of_a = add_side(a, type_of_a, true, all), of_b = add_side(b, type_of_b, false, all);
  const Divisors divisors{.a = divisor_of(a, of_a.all.sum, normalise),
                          .b = divisor_of(b, of_b.all.sum, normalise),
                          .are_totals = normalise == Normalise::kSamples,
                          .squares = of_a.all.squares + of_b.all.squares};
  const auto as_double = [](std::uint64_t sum) { return static_cast<double>(sum); };
  std::vector<TwoSums> sums;
  for (auto& [key, both] : all) {
    fill_gap(both.self, as_double(of_a.unknown_self), as_double(of_b.unknown_self), divisors);
    fill_gap(both.total, as_double(of_a.unknown_total), as_double(of_b.unknown_total), divisors);
    sums.push_back(both.self);
    sums.push_back(both.total);
  }
  const auto found = significance_of(sums, divisors);
  result.tests = found.tests;
  result.noise = found.noise;
  std::size_t at = 0;
  for (auto& [key, both] : all) {
    static_cast<FunctionKey&>(both.difference) = key;
    for (FunctionDifference::Numbers* numbers : {&both.difference.self, &both.difference.total}) {
      numbers->difference = difference_of_numbers(*numbers, result);
      numbers->p = found.p[at];
      numbers->differs = found.differs[at++];
    }
    result.differing += both.difference.self.differs || both.difference.total.differs;
    result.functions.push_back(std::move(both.difference));
  }
  std::ranges::sort(result.functions, {}, rank_of);
  return result;
}

Expected<void> write_diff_csv(const ProfileDifference& difference, TextWriter& out) {
  out.text(
      "function,module,in,unit,self_a,self_b,self_difference,self_p,self_differs,"
      "total_a,total_b,total_difference,total_p,total_differs,value\n");
  for (const FunctionDifference& one : difference.functions) {
    out.text(fmt::format("{},{},{},{}", csv_cell(one.name), one.modules.empty() ? "" : csv_cell(one.modules.front()),
                         !one.in_b   ? "a"
                         : !one.in_a ? "b"
                                     : "both",
                         csv_cell(difference.unit)));
    for (const auto& numbers : {one.self, one.total})
      out.text(fmt::format(",{},{},{:.6f},{:.6f},{}", numbers.a, numbers.b, numbers.difference, numbers.p,
                           numbers.differs ? 1 : 0));
    out.text(fmt::format(",{}\n", csv_cell(difference.value)));
  }
  return out.finish();
}

Expected<void> write_diff_folded(const ProfileDifference& difference, const profile::Profile& a,
                                 const profile::Profile& b, TextWriter& out) {
  // Stacks as numbers of names, which both profiles share.
  std::unordered_map<std::string, std::uint32_t> numbers;
  std::map<std::vector<std::uint32_t>, std::pair<std::uint64_t, std::uint64_t>> stacks;
  const auto add = [&](const profile::Profile& profile, profile::ValueType type, bool is_a) {
    Frames frames(profile);
    std::vector<std::uint32_t> of_frame, path;
    for (const profile::Sample& sample : profile.samples) {
      const std::uint64_t weight = weight_of(profile, sample, type);
      if (weight == 0) continue;
      frames.path_of(sample, path);
      of_frame.resize(frames.size(), profile::kNone);
      for (std::uint32_t& frame : path) {
        std::uint32_t& number = of_frame[frame];
        if (number == profile::kNone)
          number = numbers.try_emplace(folded_name(frames[frame].name), static_cast<std::uint32_t>(numbers.size()))
                       .first->second;
        frame = number;
      }
      auto& counts = stacks[path];
      (is_a ? counts.first : counts.second) += weight;
    }
  };
  add(a, difference.a.type, true);
  add(b, difference.b.type, false);
  std::vector<std::pair<std::string_view, std::uint32_t>> names(numbers.begin(), numbers.end());
  std::ranges::sort(names);
  std::vector<std::uint32_t> ranks(names.size());
  for (std::uint32_t rank = 0; rank < names.size(); ++rank) ranks[names[rank].second] = rank;
  std::vector<std::pair<std::vector<std::uint32_t>, std::pair<std::uint64_t, std::uint64_t>>> sorted(stacks.begin(),
                                                                                                     stacks.end());
  for (auto& [path, counts] : sorted)
    for (std::uint32_t& name : path) name = ranks[name];
  std::ranges::sort(sorted);
  for (const auto& [path, counts] : sorted) {
    for (std::size_t i = 0; i < path.size(); ++i) {
      if (i != 0) out.character(';');
      out.text(names[path[i]].first);
    }
    const double as_b = static_cast<double>(counts.first) / difference.a.divisor * difference.b.divisor;
    const bool as_it_is = difference.a.divisor == difference.b.divisor;
    out.text(fmt::format(" {} {}\n", as_it_is ? counts.first : whole_number(as_b), counts.second));
  }
  return out.finish();
}

}  // namespace windlass::exporter
