// Two profiles compared, function by function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/text_writer.h"
#include "profiler/export/frames.h"
#include "profiler/profile/profile.h"
#include "windlass/error.h"

namespace windlass::exporter {

// What makes sums of two profiles comparable.
enum class Normalise : std::uint8_t {
  kSamples,  // shares of all samples
  kTime,     // a second of recording
  kNothing,  // as they are
};
// "samples", "time" or "none".
[[nodiscard]] const char* text_of(Normalise normalise);

struct FunctionDifference : FunctionKey {
  struct Numbers {
    std::uint64_t a = 0, b = 0;
    double difference = 0;  // normalised, b less a
    double p = 1;           // as of Significance
    bool differs = false;
  };
  std::vector<std::string> modules;  // paths, of both profiles
  bool in_a = false, in_b = false;
  Numbers self, total;
};

struct ProfileSide {
  profile::ValueType type;
  std::uint64_t sum = 0;  // of all samples
  double divisor = 1;
};

struct ProfileDifference {
  Normalise normalise;
  std::string value, unit;
  ProfileSide a, b;
  std::vector<FunctionDifference> functions;  // whose self differs first, then whose total does, then noise
  std::size_t tests = 0;
  std::size_t differing = 0;
  double noise = 0;
};

// Functions are compared by name; those of the kernel are apart. Samples in an interrupt count in the numbers, and not
// in the test: interrupts serve other programs, too. Code made at run time without a name is not tested, as it is many
// functions. What one profile has more of it, or of truncated stacks, may be of any function: a function of which that
// profile has less differs only by what this does not explain. Both profiles have the value of its type. An error:
// there are no samples, or no duration to divide by.
[[nodiscard]] Expected<ProfileDifference> difference_of(const profile::Profile& a, profile::ValueType type_of_a,
                                                        const profile::Profile& b, profile::ValueType type_of_b,
                                                        Normalise normalise);

struct DiffOptions {
  std::string name_a{}, name_b{};  // as people know the profiles
  unsigned width = 100;
  bool colour = false;
  std::size_t functions = 20;
};

[[nodiscard]] Expected<void> write_diff_report(const ProfileDifference& difference, const profile::Profile& a,
                                               const profile::Profile& b, TextWriter& out, const DiffOptions& options);
// An object a line: {"type":"diff",...}, then {"type":"difference",...} for each function.
[[nodiscard]] Expected<void> write_diff_json(const ProfileDifference& difference, const profile::Profile& a,
                                             const profile::Profile& b, TextWriter& out);
// A page with a flame graph of both.
[[nodiscard]] Expected<void> write_diff_html(const ProfileDifference& difference, const profile::Profile& a,
                                             const profile::Profile& b, TextWriter& out, const DiffOptions& options);
// As write_page_data().
[[nodiscard]] Expected<void> write_diff_page_data(const ProfileDifference& difference, const profile::Profile& a,
                                                  const profile::Profile& b, TextWriter& out,
                                                  const DiffOptions& options);
[[nodiscard]] Expected<void> write_diff_csv(const ProfileDifference& difference, TextWriter& out);
// "stack A B", as difffolded.pl writes it: of A what would be in as much as B.
[[nodiscard]] Expected<void> write_diff_folded(const ProfileDifference& difference, const profile::Profile& a,
                                               const profile::Profile& b, TextWriter& out);

}  // namespace windlass::exporter
