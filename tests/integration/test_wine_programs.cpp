// Records programs of npm under Wine whose compilers write no unwind information, or none that knows their stacks:
// Haskell, OCaml, Go.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "integration/wine_recording.h"
#include "profiler/export/times.h"
#include "support/elm_source.h"
#include "support/tested_version.h"

namespace windlass::test {
namespace {

using WinePrograms = WineRecording;

bool is_in(const profile::Profile& profile, const profile::Sample& sample, std::string_view image) {
  return std::ranges::any_of(sample.locations, [&](std::uint32_t location) {
    const auto& at = profile.locations[location];
    return at.module < profile.modules.size() && profile.modules[at.module].path.ends_with(image);
  });
}

std::string_view outermost_name(const profile::Profile& profile, const profile::Sample& sample) {
  const auto& lines = profile.locations[sample.locations.back()].lines;
  return lines.empty() ? std::string_view() : profile.functions[lines.back().function].system_name;
}

// Samples with a frame in the image; of these, the whole ones, and the whole ones whose outermost frame starts neither
// a thread of Windows nor, by `starts`, one of the runtime's own stacks.
struct Share {
  std::uint64_t samples = 0, whole = 0, wrong = 0;
};
Share through(const profile::Profile& profile, std::string_view image,
              const std::vector<std::string_view>& starts = {}) {
  Share share;
  for (const auto& sample : profile.samples) {
    if (!is_in(profile, sample, image)) continue;
    share.samples += sample.count;
    if (!profile::is_whole(sample.end)) continue;
    share.whole += sample.count;
    const std::string_view outermost = outermost_name(profile, sample);
    if (outermost == "RtlUserThreadStart" || outermost == "LdrInitializeThunk" ||
        std::ranges::find(starts, outermost) != starts.end())
      continue;
    if (share.wrong == 0) fmt::print("wrong: the outermost frame is {}\n", outermost.empty() ? "?" : outermost);
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

TEST_F(WinePrograms, HaskellIsLeftByTheFrameOfItsRuntime) {
  constexpr const char* kVersion = "0.8.8-1";
  const std::string folder =
      fetched("@avh4/elm-format-win32-x64", kVersion,
              "sha512-qGYZM2oJFSVQ80Tayk1v15ba7PWCU3B89EkA3Fy4YQasvtA+UrYYR5Bv7MRF4kn6Zp7oSDk4FhknURFsZWZ7kg==");
  if (folder.empty()) GTEST_SKIP() << "SKIPPED: elm-format cannot be fetched by npm pack";
  const std::string source = testing::TempDir() + fmt::format("windlass-wine-{}.elm", getpid());
  write_elm(source, 1500);
  profile::Profile profile;
  ASSERT_NO_FATAL_FAILURE(
      record(fmt::format("{}/elm-format.exe 'Z:{}' --output 'Z:{}.out' --yes", folder, source, source), profile));
  expect_whole(through(profile, "elm-format.exe"), 0.99, "elm-format.exe", kVersion, "1,500 functions");
  std::filesystem::remove(source);
  std::filesystem::remove(source + ".out");
}

// In modules of 1,000 functions: the compiler calls itself for each item of a list, and a list of 20,000 takes stacks
// beyond 8,192 frames.
void write_rescript(const std::string& source, int functions) {
  constexpr int kInModule = 1000;
  std::ofstream res(source);
  for (int i = 0; i < functions; ++i) {
    if (i % kInModule == 0) res << fmt::format("{}module M{} = {{\n", i == 0 ? "" : "}\n", i / kInModule);
    res << fmt::format(
        "let f{0} = (x, y) => {{ let z = x + {0} * y; switch (z, y) {{ | (0, _) => Some(z) "
        "| (a, b) when a > b => None | _ => if z > 3 {{ Some([z, y]->Array.length) }} else {{ None }} "
        "}} }}\n",
        i);
  }
  res << "}\n";
  res.close();
}

TEST_F(WinePrograms, OcamlsTailCallsAreNoGuesses) {
  constexpr const char* kVersion = "11.1.4";
  const std::string folder =
      fetched("rescript", kVersion,
              "sha512-0bGU0bocihjSC6MsE3TMjHjY0EUpchyrREquLS8VsZ3ohSMD+VHUEwimEfB3kpBI1vYkw3UFZ3WD8R28guz/Vw==");
  if (folder.empty()) GTEST_SKIP() << "SKIPPED: rescript cannot be fetched by npm pack";
  const std::string source = testing::TempDir() + fmt::format("windlass-wine-{}.res", getpid());
  write_rescript(source, 20'000);
  profile::Profile profile;
  ASSERT_NO_FATAL_FAILURE(record(fmt::format("{}/win32/bsc.exe -format 'Z:{}'", folder, source), profile));
  expect_whole(through(profile, "bsc.exe"), 0.99, "bsc.exe", kVersion, "20,000 functions");
  std::filesystem::remove(source);
}

// When the first sample with a frame in the image was taken, in ns since the recording's start.
std::uint64_t first_time(const profile::Profile& profile, std::string_view image) {
  std::uint64_t first = ~std::uint64_t{0};
  for (const auto& sample : profile.samples)
    if (is_in(profile, sample, image))
      for (const auto& time : profile::times_of(profile, sample)) first = std::min(first, time.begin);
  return first;
}

// OCaml 5 runs C on another stack than OCaml. Until the image has its table, samples are raw. Those of OCaml's code
// have the outermost part of the thread's stack, too. Those of C have no part of OCaml's stack.
TEST_F(WinePrograms, OcamlsStackIsFoundBehindThatOfC) {
  constexpr const char* kVersion = "12.2.0";
  constexpr std::uint64_t kTableIsMade = 250'000'000;  // ns; 20,000,000 on an idle machine
  const std::string folder =
      fetched("@rescript/win32-x64", kVersion,
              "sha512-fhf8CBj3p1lkIXPeNko3mVTKQfXXm4BoxJtR1xAXxUn43wDpd8Lox4w8/EPBbbW6C/YFQW6H7rtpY+2AKuNaDA==");
  if (folder.empty()) GTEST_SKIP() << "SKIPPED: @rescript/win32-x64 cannot be fetched by npm pack";
  const std::string source = testing::TempDir() + fmt::format("windlass-wine-5-{}.res", getpid());
  write_rescript(source, 20'000);
  profile::Profile profile;
  ASSERT_NO_FATAL_FAILURE(record(fmt::format("{}/bin/bsc.exe -format 'Z:{}'", folder, source), profile));
  std::filesystem::remove(source);
  const auto left_by_ocaml = std::ranges::count_if(profile.samples, [&](const profile::Sample& sample) {
    return sample.end == WL_END_UNREADABLE_STACK && outermost_name(profile, sample) == "caml_start_program";
  });
  EXPECT_EQ(left_by_ocaml, 0) << "the thread's own stack is missing";
  const Share all = through(profile, "bsc.exe");
  fmt::print("with the start of the program: {} of {} whole\n", all.whole, all.samples);
  exporter::keep_times(profile, {first_time(profile, "bsc.exe") + kTableIsMade});
  expect_whole(through(profile, "bsc.exe"), 0.99, "bsc.exe", kVersion, "20,000 functions");
}

// Go 1.22 and later ask bcryptprimitives.dll for random numbers, which Wine 8 has not. False: there is
// none of our own either.
bool has_random_numbers() {
  const std::string dll = std::string(WINDLASS_WINE_WORKLOADS) + "/bcryptprimitives.dll";
  const std::string system = std::string(WINDLASS_WINE_PREFIX) + "/drive_c/windows/system32";
  std::error_code error;
  std::filesystem::copy_file(dll, system + "/bcryptprimitives.dll", std::filesystem::copy_options::overwrite_existing,
                             error);
  return !error;
}

// Stacks of Go end at the start of a goroutine or a thread. A thread that has left a goroutine for good ends in mcall.
TEST_F(WinePrograms, GosTablesAreReadInImages) {
  const struct {
    const char *package, *version, *integrity;
    bool wants_random_numbers;
  } kPrograms[] = {
      // of Go 1.18, 1.20, 1.23 and 1.26
      {"esbuild-windows-64", "0.14.54",
       "sha512-AoHTRBUuYwXtZhjXZbA1pGfTo8cJo3vZIcWGLiUcTNgHpJJMC1rVA44ZereBHMJtotyN71S8Qw0npiCIkW96cQ==", false},
      {"@esbuild/win32-x64", "0.19.12",
       "sha512-T1QyPSDCyMXaO3pzBkF96E8xMkiRYbUEZADd29SyPGabqxMViNoii+NcK7eWJAEoU6RZyEm5lVSIjTmcdoB9HA==", false},
      {"@esbuild/win32-x64", "0.25.11",
       "sha512-D7Hpz6A2L4hzsRpPaCYkQnGOotdUpDzSGRIv9I+1ITdHROSFUWW95ZPZWQmGka1Fg7W3zFJowyn9WGwMJ0+KPA==", true},
      {"@esbuild/win32-x64", "0.28.2",
       "sha512-5ebpxr3nWMzrL/rnUI755Jkuee0bHL/Gq0WTF9lvcpv73wAp5eu8MfBUgWK9bhWvZjj7yX8etf/8tI8Ney695g==", true},
  };
  const std::vector<std::string_view> starts = {
      "_rt0_amd64_windows", "_rt0_amd64",          "runtime.goexit",         "runtime.goexit.abi0",
      "runtime.mstart",     "runtime.mstart.abi0", "runtime.rt0_go",         "runtime.rt0_go.abi0",
      "runtime.mcall",      "runtime.morestack",   "runtime.morestack.abi0", "gogo"};
  const std::string source = testing::TempDir() + fmt::format("windlass-wine-{}.js", getpid());
  std::ofstream script(source);
  for (int i = 0; i < 40000; ++i)
    script << fmt::format(
        "export function f{0}(a, b) {{ const c = a * {0} + b; for (let i = 0; i < c; i++) {{ if (i % 3 === 0) "
        "return [c, `${{i}}`, {{ a, b }}]; }} return (x => x + c)(a); }}\n",
        i);
  script.close();
  for (const auto& program : kPrograms) {
    SCOPED_TRACE(program.version);
    const std::string folder = fetched(program.package, program.version, program.integrity);
    if (folder.empty()) GTEST_SKIP() << "SKIPPED: " << program.package << " cannot be fetched by npm pack";
    if (program.wants_random_numbers && !has_random_numbers()) {
      fmt::print("not run: esbuild {} needs bcryptprimitives.dll, and MinGW is not installed\n", program.version);
      continue;
    }
    // While a process starts, a raw sample may be of a thread on three stacks. Beside a compiler there are more of
    // them. Then the test records once more.
    profile::Profile profile;
    Share share;
    for (int tries = 0; tries == 0 || (tries < 3 && 100 * share.whole < 99 * share.samples); ++tries) {
      ASSERT_NO_FATAL_FAILURE(
          record(fmt::format("{}/esbuild.exe 'Z:{}' --minify --outfile='Z:{}.out'", folder, source, source), profile));
      share = through(profile, "esbuild.exe", starts);
    }
    expect_whole(share, 0.99, "esbuild.exe", program.version, "40,000 functions");
    std::uint64_t frames = 0, named = 0;
    for (const auto& sample : profile.samples)
      for (const std::uint32_t index : sample.locations) {
        const auto& location = profile.locations[index];
        if (location.module >= profile.modules.size() ||
            !profile.modules[location.module].path.ends_with("esbuild.exe"))
          continue;
        frames += sample.count;
        named += !location.lines.empty() && location.lines.back().line != 0 ? sample.count : 0;
      }
    EXPECT_GT(frames, 1000U);
    EXPECT_EQ(named, frames) << "with its line";
  }
  std::filesystem::remove(source);
  std::filesystem::remove(source + ".out");
}

}  // namespace
}  // namespace windlass::test
