#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/shown.h"
#include "profiler/export/diff.h"
#include "profiler/export/frames.h"
#include "profiler/export/numbers.h"
#include "profiler/export/shorten_name.h"
#include "profiler/export/significance.h"

namespace windlass::exporter {

namespace {

constexpr const char* kStrong = "\x1b[1m";
constexpr const char* kFaint = "\x1b[2m";
constexpr const char* kMore = "\x1b[31m";
constexpr const char* kLess = "\x1b[32m";
constexpr const char* kPlain = "\x1b[0m";

class DiffWriter {
 public:
  DiffWriter(const ProfileDifference& difference, TextWriter& out, const DiffOptions& options)
      : difference_(difference), out_(out), options_(options) {}

  void write(const profile::Profile& a, const profile::Profile& b) {
    write_side("A", options_.name_a, a, difference_.a.type);
    write_side("B", options_.name_b, b, difference_.b.type);
    const std::size_t all = difference_.functions.size();
    line(kStrong, fmt::format("{} of {} functions differ; {} are noise (~), or too few samples", difference_.differing,
                              grouped(all), grouped(all - difference_.differing)));
    line(kFaint,
         fmt::format("  {}; {} tests, at most {:.0f}% of what differs is noise; functions vary by {:.1f}% between runs",
                     unit_text(), grouped(difference_.tests), 100 * kFalseDiscoveries, 100 * difference_.noise));
    write_functions();
  }

 private:
  [[nodiscard]] std::string coloured(const char* colour, const std::string& text) const {
    return options_.colour && colour != nullptr ? colour + text + kPlain : text;
  }
  void line(const char* colour, const std::string& text) { out_.text(coloured(colour, text) + "\n"); }

  void write_side(const char* side, const std::string& name, const profile::Profile& profile, profile::ValueType type) {
    line(kStrong, fmt::format("{}: {}", side, shorten_name(name, options_.width - 3)));
    line(nullptr, "  " + summary_line(profile, type, totals_of(profile, type)));
    for (const std::string& comment : profile.comments) line(kFaint, "  " + shorten_name(comment, options_.width - 2));
  }

  [[nodiscard]] std::string unit_text() const {
    switch (difference_.normalise) {
      case Normalise::kSamples: return "shares of all " + shown(difference_.value);
      case Normalise::kTime: return shown(difference_.value) + " a second of recording";
      case Normalise::kNothing: break;
    }
    return "sums of " + shown(difference_.value);
  }
  // A share in percent, or an amount.
  [[nodiscard]] std::string number(double normalised) const {
    if (difference_.normalise == Normalise::kSamples) return fmt::format("{:.2f}%", 100 * normalised);
    if (difference_.normalise == Normalise::kTime && difference_.unit == "count" && normalised < 100)
      return fmt::format("{:.2f}", normalised);
    return amount(whole_number(normalised), difference_.unit);
  }
  [[nodiscard]] std::string signed_number(double normalised) const {
    return (normalised < 0 ? "-" : "+") + number(std::abs(normalised));
  }

  // A sum of one side. Sums as they are may have more digits than a double.
  [[nodiscard]] std::string side_number(std::uint64_t sum, const ProfileSide& side) const {
    if (difference_.normalise == Normalise::kNothing) return amount(sum, difference_.unit);
    return number(static_cast<double>(sum) / side.divisor);
  }

  void write_functions() {
    const std::size_t fixed = 2 * (2 * kNumber + kNumber + 1) + 7;
    const std::size_t name_width = options_.width > fixed + 10 ? options_.width - fixed : 10;
    out_.text("\n");
    line(kStrong, fmt::format("{0:>{6}}{1:>{6}}{2:>{7}}{3:>{6}}{4:>{6}}{5:>{7}}       FUNCTION", "SELF A", "SELF B",
                              "DIFF", "TOTAL A", "TOTAL B", "DIFF", kNumber, kNumber + 1));
    const std::size_t rows = std::min(options_.functions, difference_.functions.size());
    for (std::size_t i = 0; i < rows; ++i) write_function(difference_.functions[i], name_width);
    if (rows < difference_.functions.size())
      line(kFaint, fmt::format("  … {} more functions", grouped(difference_.functions.size() - rows)));
  }

  void write_function(const FunctionDifference& one, std::size_t name_width) {
    std::string row;
    for (const auto& numbers : {one.self, one.total}) {
      row += fmt::format("{:>{}}{:>{}}", side_number(numbers.a, difference_.a), kNumber,
                         side_number(numbers.b, difference_.b), kNumber);
      const std::string text =
          fmt::format("{:>{}}", (numbers.differs ? "" : "~") + signed_number(numbers.difference), kNumber + 1);
      row += coloured(!numbers.differs ? kFaint : numbers.difference > 0 ? kMore : kLess, text);
    }
    const bool differs = one.self.differs || one.total.differs;
    row += fmt::format("  {:4} ", !one.in_a ? "new" : !one.in_b ? "gone" : "");
    row += coloured(differs ? kStrong : kFaint, shorten_name(one.name, name_width));
    line(nullptr, row);
  }

  static constexpr std::size_t kNumber = 9;  // columns

  const ProfileDifference& difference_;
  TextWriter& out_;
  const DiffOptions& options_;
};

}  // namespace

Expected<void> write_diff_report(const ProfileDifference& difference, const profile::Profile& a,
                                 const profile::Profile& b, TextWriter& out, const DiffOptions& options) {
  DiffWriter(difference, out, options).write(a, b);
  return out.finish();
}

}  // namespace windlass::exporter
