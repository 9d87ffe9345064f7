// Names compared with programs whose source is here, in every form a distribution ships them: with debug information,
// with separate debug files found by build id or link, stripped. What has no name must get none.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "frames_at.h"
#include "nm.h"
#include "os/readers.h"
#include "symbols/live_names.h"
#include "symbols/names_ahead.h"
#include "symbols/symbolize.h"

namespace windlass::symbols {
namespace {

using test::frames_at;
using test::symbols_of;

std::string output_of(const std::string& command) {
  std::string text;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  char buffer[4096];
  for (std::size_t got; pipe != nullptr && (got = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    text.append(buffer, got);
  if (pipe != nullptr) ::pclose(pipe);
  return text;
}
void must_run(const std::string& command) { ASSERT_EQ(std::system((command + " 2>&1").c_str()), 0) << command; }

std::string build_id_of(const std::string& file) {
  const auto text = output_of("readelf -n " + file);
  const auto at = text.find("Build ID: ");
  return at == std::string::npos ? "" : text.substr(at + 10, text.find('\n', at) - at - 10);
}

using Frames = std::vector<std::string>;

// By readers (os/readers.h), too, which open what libdw opens without them.
class SymbolizeFiles : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    char name[] = "/tmp/windlass-symbolize-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    directory_ = name;
    must_run("cp " WINDLASS_INLINED " " + directory_ + "/prog && cp " WINDLASS_LIBRARY " " + directory_ + "/lib.so");
    symbols_ = symbols_of(path("prog"));
    if (GetParam()) os::use_readers(os::Readers::start({.patience = std::chrono::seconds(10)}));
    ASSERT_EQ(os::readers() != nullptr, GetParam());
  }
  void TearDown() override {
    os::use_readers(nullptr);
    must_run("rm -r " + directory_);
  }

  std::string path(const std::string& name) const { return directory_ + "/" + name; }
  profile::Module module(const std::string& name) const { return {.path = path(name), .open_path = path(name)}; }
  std::uint64_t at(const std::string& symbol) const { return symbols_.at(symbol); }

  const Frames inlined_ = {"outer::innermost inlined.cpp:7", "outer::middle(int) inlined.cpp:11",
                           "outer::Box::work(int) inlined.cpp:19"};
  std::string directory_;
  std::map<std::string, std::uint64_t> symbols_;
};

INSTANTIATE_TEST_SUITE_P(ByReaders, SymbolizeFiles, ::testing::Bool());

TEST_P(SymbolizeFiles, InlinedFramesWithTheirLines) {
  EXPECT_EQ(frames_at(module("prog"), at("wl_mark_inlined")), inlined_);
  EXPECT_EQ(frames_at(module("prog"), at("wl_mark_plain")), Frames{"plain_c inlined.cpp:37"});
  const auto local = frames_at(module("prog"), at("wl_mark_local"));
  ASSERT_EQ(local.size(), 1u);
  EXPECT_NE(local[0].find("around(int)::Local::inside(int)"), std::string::npos) << local[0];
  EXPECT_NE(local[0].find("inlined.cpp:28"), std::string::npos) << local[0];
}

TEST_P(SymbolizeFiles, SymbolsOnlyWhenLinesAreNotWanted) {
  EXPECT_EQ(frames_at(module("prog"), at("wl_mark_inlined"), {.lines = false}), Frames{"outer::Box::work(int)"});
}

// Profiles that come one after the other get the names that each would get by itself.
TEST_P(SymbolizeFiles, LiveNamesAreThoseOfEachProfile) {
  constexpr std::uint64_t kIdle = 6;
  LiveNames live({.lines = false}, kIdle);
  profile::Profile first;
  first.modules = {module("prog"), module("lib.so")};
  for (const auto& [name, address] : symbols_) first.locations.push_back({.module = 0, .address = address});
  for (const auto& [name, address] : symbols_of(path("lib.so")))
    first.locations.push_back({.module = 1, .address = address});
  first.locations.push_back({.module = 0, .address = 1});  // has no name
  // Of what an interpreter ran there.
  first.functions = {{.name = "_ZN1a1bEv", .system_name = "_ZN1a1bEv"}};
  first.locations[0].lines = {{.function = 0}};
  first.locations[0].interpreted = true;
  std::vector<profile::Profile> profiles(3, first);
  std::erase_if(profiles[0].locations, [](const auto& location) { return location.address / 16 % 2 == 0; });
  // A recording that forgets gives modules other numbers.
  std::swap(profiles[2].modules[0], profiles[2].modules[1]);
  for (auto& location : profiles[2].locations) location.module = 1 - location.module;
  for (profile::Profile profile : profiles) {
    profile::Profile expected = profile;
    symbolize(expected, {.lines = false});
    live.name(profile);
    EXPECT_EQ(live.files(), 2u);
    std::size_t named = 0;
    for (std::size_t i = 0; i < profile.locations.size(); ++i) {
      const auto names = [i](const profile::Profile& of) {
        Frames frames;
        for (const auto& line : of.locations[i].lines) frames.push_back(of.functions.at(line.function).name);
        return frames;
      };
      EXPECT_EQ(names(profile), names(expected)) << i;
      EXPECT_EQ(profile.locations[i].function_begin, expected.locations[i].function_begin) << i;
      named += names(profile).empty() ? 0 : 1;
    }
    EXPECT_GT(named, 5u);
    EXPECT_LT(named, profile.locations.size());
  }
  // Files are closed that no profile has had for long.
  for (std::uint64_t i = 0; i < LiveNames::kLongestUnused; ++i) {
    EXPECT_EQ(live.files(), 2u);
    if (i == 0 || i >= kIdle) {
      EXPECT_EQ(live.open_files(), i == 0 ? 2u : 0u) << i;
    }
    profile::Profile nothing;
    live.name(nothing);
  }
  profile::Profile nothing;
  live.name(nothing);
  EXPECT_EQ(live.files(), 0u);
}

// With inlined calls and lines, whatever part was named before, and where a file is two modules.
TEST_P(SymbolizeFiles, NamesAheadAreThoseOfTheWholeProfile) {
  profile::Profile whole;
  whole.modules = {module("prog"), module("lib.so"), module("prog")};
  for (const auto& [name, address] : symbols_)
    for (const std::uint32_t number : {0U, 2U}) whole.locations.push_back({.module = number, .address = address});
  for (const auto& [name, address] : symbols_of(path("lib.so")))
    whole.locations.push_back({.module = 1, .address = address});
  whole.locations.push_back({.module = 0, .address = 1});  // has no name
  profile::Profile expected = whole;
  const SymbolizeStats without = symbolize(expected);
  EXPECT_EQ(without.ahead, 0U);
  for (const std::uint64_t part : {1U, 2U, 1000U}) {
    SCOPED_TRACE(part);
    NamesAhead ahead({});
    profile::Profile code;
    code.modules = whole.modules;
    std::set<std::pair<std::uint32_t, std::uint64_t>> told;
    for (const auto& location : whole.locations) {
      if (location.module == 2 || location.address / 16 % part != 0) continue;
      code.locations.push_back(location);
      told.emplace(location.module, location.address);
    }
    ahead.add(std::move(code));
    ahead.wait();
    profile::Profile named = whole;
    const SymbolizeStats with = symbolize(named, {.ahead = &ahead});
    EXPECT_EQ(with.ahead, told.size());
    EXPECT_EQ(with.addresses, without.addresses);
    EXPECT_EQ(with.named, without.named);
    EXPECT_EQ(with.with_lines, without.with_lines);
    EXPECT_EQ(with.opened, without.opened);
    const auto lines = [](const profile::Profile& of) {
      std::vector<std::string> all;
      for (const auto& location : of.locations) {
        all.push_back(std::to_string(location.function_begin));
        for (const auto& line : location.lines) {
          const auto& function = of.functions.at(line.function);
          all.back() += fmt::format(" {} {} {}:{}+{}", function.name, function.system_name, function.file,
                                    function.start_line, line.line);
        }
      }
      return all;
    };
    EXPECT_EQ(lines(named), lines(expected));
  }
}

TEST_P(SymbolizeFiles, OtherCompilersAndForms) {
  EXPECT_EQ(frames_at({.path = WINDLASS_INLINED_SPLIT, .open_path = WINDLASS_INLINED_SPLIT},
                      symbols_of(WINDLASS_INLINED_SPLIT).at("wl_mark_inlined")),
            inlined_);
  EXPECT_EQ(frames_at({.path = WINDLASS_INLINED_DWARF4, .open_path = WINDLASS_INLINED_DWARF4},
                      symbols_of(WINDLASS_INLINED_DWARF4).at("wl_mark_inlined")),
            inlined_);
}

TEST_P(SymbolizeFiles, StrippedProgramNamesNothing) {
  must_run("strip -s " + path("prog"));
  for (const auto& [name, address] : symbols_)
    if (name.starts_with("wl_mark") || name == "main") {
      EXPECT_TRUE(frames_at(module("prog"), address).empty()) << name;
    }
}

TEST_P(SymbolizeFiles, DebugFileByLink) {
  must_run("cd " + directory_ +
           " && objcopy --only-keep-debug prog prog.debug && strip -s prog && "
           "objcopy --add-gnu-debuglink=prog.debug prog");
  EXPECT_EQ(frames_at(module("prog"), at("wl_mark_inlined")), inlined_);
  must_run("cd " + directory_ + " && mkdir .debug && mv prog.debug .debug/");
  EXPECT_EQ(frames_at(module("prog"), at("wl_mark_inlined")), inlined_);
  // A debug file of another build does not match the checksum.
  must_run("cd " + directory_ + " && objcopy --only-keep-debug lib.so .debug/prog.debug");
  EXPECT_TRUE(frames_at(module("prog"), at("wl_mark_inlined")).empty());
}

TEST_P(SymbolizeFiles, DebugFileByBuildId) {
  const auto id = build_id_of(path("prog"));
  ASSERT_GT(id.size(), 8u);
  const auto place = path("tree/.build-id/" + id.substr(0, 2));
  must_run("mkdir -p " + place + " && objcopy --only-keep-debug " + path("prog") + " " + place + "/" + id.substr(2) +
           ".debug && strip -s " + path("prog"));
  EXPECT_TRUE(frames_at(module("prog"), at("wl_mark_inlined")).empty());
  EXPECT_EQ(frames_at(module("prog"), at("wl_mark_inlined"), {.debug_directory = path("tree")}), inlined_);
  // The program itself is gone: its debug file alone still names it.
  must_run("rm " + path("prog"));
  profile::Module gone = module("prog");
  gone.build_id = id;
  EXPECT_EQ(frames_at(gone, at("wl_mark_inlined"), {.debug_directory = path("tree")}), inlined_);
}

TEST_P(SymbolizeFiles, AnotherBuildUnderTheNameIsNotUsed) {
  profile::Module other = module("prog");
  other.build_id = "00112233445566778899aabbccddeeff00112233";
  EXPECT_TRUE(frames_at(other, at("wl_mark_plain")).empty());
  profile::Module same = module("prog");
  same.build_id = build_id_of(path("prog"));
  EXPECT_EQ(frames_at(same, at("wl_mark_plain")), Frames{"plain_c inlined.cpp:37"});
  same.open_path.clear();  // only the path: fine, since the build id agrees
  EXPECT_EQ(frames_at(same, at("wl_mark_plain")), Frames{"plain_c inlined.cpp:37"});
  same.build_id.clear();  // nothing to recognise it by
  EXPECT_TRUE(frames_at(same, at("wl_mark_plain")).empty());
}

TEST_P(SymbolizeFiles, NeverAWrongNeighbour) {
  const auto all = symbols_of(path("lib.so"));
  const std::uint64_t hidden = all.at("hidden_function"), first = all.at("exported_first");
  must_run("strip -s " + path("lib.so"));
  EXPECT_TRUE(frames_at(module("lib.so"), hidden).empty());
  EXPECT_TRUE(frames_at(module("lib.so"), hidden + 4).empty());
  EXPECT_EQ(frames_at(module("lib.so"), first), Frames{"exported_first"});
  EXPECT_EQ(frames_at(module("lib.so"), first + 3), Frames{"exported_first"});
  EXPECT_TRUE(frames_at(module("lib.so"), 0).empty());
  EXPECT_TRUE(frames_at(module("lib.so"), ~0ull).empty());
}

TEST_P(SymbolizeFiles, EveryAddressOfAStrippedLibraryIsNamedByASizedSymbolOrNot) {
  must_run("strip -s " + path("lib.so"));
  struct Range {
    std::uint64_t begin, end;
    std::string name;
  };
  std::vector<Range> ranges;
  std::istringstream lines(output_of("nm -D -S --defined-only " + path("lib.so")));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string begin, size, type, name;
    if (!(fields >> begin >> size >> type >> name) || type != "T") continue;
    const auto start = std::strtoull(begin.c_str(), nullptr, 16);
    ranges.push_back({start, start + std::strtoull(size.c_str(), nullptr, 16), name});
  }
  ASSERT_EQ(ranges.size(), 2u);
  for (std::uint64_t address = ranges[0].begin - 64; address < ranges[1].end + 64; ++address) {
    const auto frames = frames_at(module("lib.so"), address);
    const auto range = std::find_if(ranges.begin(), ranges.end(),
                                    [&](const Range& r) { return address >= r.begin && address < r.end; });
    if (range != ranges.end()) {
      EXPECT_EQ(frames, Frames{range->name}) << address;
    } else {
      EXPECT_TRUE(frames.empty() || frames[0].ends_with("@plt")) << address << " " << frames[0];
    }
  }
}

TEST_P(SymbolizeFiles, LinkageStubs) {
  const auto listing = output_of("objdump -d --no-show-raw-insn " + path("lib.so"));
  const auto mark = listing.find("<abs_of_other@plt>:");
  ASSERT_NE(mark, std::string::npos) << "objdump sees no stub";
  const std::uint64_t stub = std::strtoull(listing.c_str() + listing.rfind('\n', mark) + 1, nullptr, 16);
  for (const bool stripped : {false, true}) {
    if (stripped) must_run("strip -s " + path("lib.so"));
    EXPECT_EQ(frames_at(module("lib.so"), stub), Frames{"abs_of_other@plt"});
    EXPECT_EQ(frames_at(module("lib.so"), stub + 11), Frames{"abs_of_other@plt"});
  }
}

// The stubs that objdump names, by the address of each instruction.
std::map<std::uint64_t, std::string> stubs_in(const std::string& file) {
  std::istringstream lines(output_of("objdump -d --no-show-raw-insn " + file));
  std::map<std::uint64_t, std::string> stubs;
  std::string name;
  for (std::string line; std::getline(lines, line);) {
    const auto begin = line.find(" <"), end = line.find("@plt>:");
    if (end != std::string::npos) name = line.substr(begin + 2, end - begin - 2) + "@plt";
    if (line.empty()) name.clear();
    if (!name.empty() && line[0] == ' ') stubs[std::strtoull(line.c_str(), nullptr, 16)] = name;
  }
  return stubs;
}

#ifdef __x86_64__  // whose objdump reads them
TEST_P(SymbolizeFiles, StubsOfI386AtEveryInstruction) {
  const std::string made = WINDLASS_FIXTURES "/i386.so";
  if (::access(made.c_str(), R_OK) != 0) GTEST_SKIP() << "SKIPPED: no Clang or no LLD on this machine";
  must_run("cp " + made + " " + path("i386.so"));
  const auto stubs = stubs_in(path("i386.so"));
  ASSERT_GE(stubs.size(), 3u) << "objdump sees no stubs";
  must_run("strip -s " + path("i386.so"));
  for (const auto& [address, expected] : stubs)
    EXPECT_EQ(frames_at(module("i386.so"), address), Frames{expected}) << std::hex << address;
}
#endif

TEST_P(SymbolizeFiles, StubsWithLandingPadsAtEveryInstruction) {
  must_run("cp " WINDLASS_STUBS " " + path("stubs"));
  const auto stubs = stubs_in(path("stubs"));
  ASSERT_GT(stubs.size(), 6u) << "objdump sees no stubs";
  must_run("strip -s " + path("stubs"));
  for (const auto& [address, expected] : stubs)
    EXPECT_EQ(frames_at(module("stubs"), address), Frames{expected}) << std::hex << address;
}

TEST_P(SymbolizeFiles, AssemblyWithoutSizes) {
  EXPECT_EQ(frames_at(module("prog"), at("asm_with_size") + 1, {.lines = false}), Frames{"asm_with_size"});
  EXPECT_TRUE(frames_at(module("prog"), at("asm_with_size") + at("asm_size_of_sized")).empty())
      << "past the end of a symbol with a size";
  EXPECT_EQ(frames_at(module("prog"), at("asm_without_size") + 2, {.lines = false}), Frames{"asm_without_size"});
  EXPECT_EQ(frames_at(module("prog"), at("asm_before_unnamed"), {.lines = false}), Frames{"asm_before_unnamed"});
  EXPECT_TRUE(frames_at(module("prog"), at("asm_before_unnamed") + at("asm_offset_of_unnamed") + 1).empty())
      << "another function's FDE";
}

// As musl's memset: its own code is named, the hidden function's behind it is not.
TEST_P(SymbolizeFiles, AssemblyWithoutSizesInAStrippedLibrary) {
  must_run("cp " WINDLASS_ASSEMBLY " " + path("asm.so"));
  const auto all = symbols_of(path("asm.so"));
  must_run("strip -s " + path("asm.so"));
  const auto named = [&](const char* label, std::uint64_t offset = 0) {
    return frames_at(module("asm.so"), all.at(label) + offset);
  };
  EXPECT_EQ(named("asm_exported"), Frames{"asm_exported"});
  EXPECT_EQ(named("asm_behind_branch"), Frames{"asm_exported"});
  EXPECT_EQ(named("asm_behind_return"), Frames{"asm_exported"}) << "a branch leads there";
  EXPECT_EQ(named("asm_behind_call", ~0ull), Frames{"asm_exported"}) << "as a return address is looked up";
  EXPECT_EQ(named("asm_last"), Frames{"asm_exported"});
  EXPECT_TRUE(named("asm_hidden").empty());
  EXPECT_TRUE(named("asm_in_hidden").empty());
  EXPECT_EQ(named("asm_next"), Frames{"asm_next"});
}

TEST_P(SymbolizeFiles, MiniDebugInfo) {
  if (output_of("command -v xz").empty()) GTEST_SKIP() << "xz is not installed";
  must_run("cd " + directory_ +
           " && objcopy --strip-debug prog mini && xz --format=xz -c mini > mini.xz && strip -s prog && "
           "objcopy --add-section .gnu_debugdata=mini.xz prog");
  EXPECT_EQ(frames_at(module("prog"), at("wl_mark_inlined")), Frames{"outer::Box::work(int)"});
}

// A server as debuginfod's web interface is defined, over the loopback: asked only if DEBUGINFOD_URLS says so.
TEST_P(SymbolizeFiles, DebuginfodOnlyIfAsked) {
  if (output_of("command -v python3").empty()) GTEST_SKIP() << "no python3 to serve with";
  if (void* client = ::dlopen("libdebuginfod.so.1", RTLD_LAZY); client == nullptr)
    GTEST_SKIP() << "libdw finds no libdebuginfod";
  const auto id = build_id_of(path("prog"));
  must_run("mkdir -p " + path("www/buildid/" + id) + " && objcopy --only-keep-debug " + path("prog") + " " +
           path("www/buildid/" + id + "/debuginfo") + " && strip -s " + path("prog"));
  std::FILE* server = ::popen(("cd " + path("www") +
                               " && exec python3 -u -c '\n"
                               "import http.server as h\n"
                               "s = h.HTTPServer((\"127.0.0.1\", 0), h.SimpleHTTPRequestHandler)\n"
                               "print(s.server_port, flush=True)\n"
                               "s.timeout = 20\n"
                               "s.handle_request()' 2>/dev/null")
                                  .c_str(),
                              "r");  // one request, then it ends
  int port = 0;
  ASSERT_EQ(std::fscanf(server, "%d", &port), 1);
  ::setenv("DEBUGINFOD_CACHE_PATH", path("cache").c_str(), 1);
  ::unsetenv("DEBUGINFOD_URLS");
  EXPECT_TRUE(frames_at(module("prog"), at("wl_mark_inlined")).empty());
  ::setenv("DEBUGINFOD_URLS", ("http://127.0.0.1:" + std::to_string(port) + "/").c_str(), 1);
  ::setenv("no_proxy", "127.0.0.1", 1);
  EXPECT_EQ(frames_at(module("prog"), at("wl_mark_inlined")), inlined_);
  ::unsetenv("DEBUGINFOD_URLS");
  ::pclose(server);
}

TEST_P(SymbolizeFiles, DamagedFilesNameNothingAndCrashNothing) {
  std::ifstream in(path("prog"), std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  profile::Profile addresses;
  for (const auto& [name, address] : symbols_) addresses.locations.push_back({.module = 0, .address = address});
  std::uint32_t random = 1;
  for (int round = 0; round < 60; ++round) {
    std::string bytes = whole;
    if (round < 20) bytes.resize(bytes.size() * static_cast<std::size_t>(round) / 20);
    for (int n = 0; round >= 20 && n < 400; ++n) {
      random = random * 1664525 + 1013904223;
      // Past the first 64 bytes in half of the rounds: what a damaged header hides is damaged too.
      bytes[round % 2 == 0 ? random % bytes.size() : 64 + random % (bytes.size() - 64)] =
          static_cast<char>(random >> 24);
    }
    std::ofstream(path("damaged"), std::ios::binary) << bytes;
    profile::Profile profile = addresses;
    profile.modules = {module("damaged")};
    symbolize(profile);
  }
}

TEST(Symbolize, ManyModulesInParallelGiveTheSame) {
  profile::Profile profile;
  for (int i = 0; i < 8; ++i) profile.modules.push_back({.path = WINDLASS_INLINED, .open_path = WINDLASS_INLINED});
  const auto symbols = symbols_of(WINDLASS_INLINED);
  for (std::uint32_t m = 0; m < 8; ++m)
    for (int twice = 0; twice < 2; ++twice)
      for (const auto& [name, address] : symbols)
        if (name.starts_with("wl_mark")) profile.locations.push_back({.module = m, .address = address});
  profile::Profile alone = profile;
  const auto stats = symbolize(profile, {.threads = 4});
  symbolize(alone, {.threads = 1});
  EXPECT_EQ(stats.addresses, 8u * 3);  // once an address, however many locations have it
  EXPECT_EQ(stats.with_lines, 8u * 3);
  ASSERT_EQ(profile.functions.size(), alone.functions.size());
  for (std::size_t i = 0; i < profile.locations.size(); ++i) {
    ASSERT_EQ(profile.locations[i].lines.size(), alone.locations[i].lines.size());
    for (std::size_t n = 0; n < profile.locations[i].lines.size(); ++n)
      EXPECT_EQ(profile.functions[profile.locations[i].lines[n].function].name,
                alone.functions[alone.locations[i].lines[n].function].name);
  }
}

TEST(Symbolize, Vdso) {
  if (::getauxval(AT_SYSINFO_EHDR) == 0) GTEST_SKIP() << "no vdso here (qemu-user)";
  profile::Profile profile;
  profile.modules = {{.path = "[vdso]"}};
  for (std::uint64_t address = 0; address < 0x4000; address += 16)
    profile.locations.push_back({.module = 0, .address = address});
  symbolize(profile);
  const bool found = std::any_of(profile.functions.begin(), profile.functions.end(),
                                 [](const auto& f) { return f.name.find("clock_gettime") != std::string::npos; });
  EXPECT_TRUE(found);
}

TEST(Symbolize, PerfMap) {
  char directory[] = "/tmp/windlass-map-XXXXXX";
  ASSERT_NE(::mkdtemp(directory), nullptr);
  const std::string path = std::string(directory) + "/perf-77.map";
  std::ofstream(path) << "7f0000001000 100 LazyCompile:~first app.js:1\n7f0000001100 80 Second\nnonsense\n7f00 zz bad\n"
                         "7f0000001080 40 later code\n"
                      << std::string(200'000, 'x') << "\n7f0000002000 10 third\n";
  const SymbolizeOptions options{.perf_map_directory = directory};
  const profile::Module jit{.path = "[anon]", .pid = 77};
  EXPECT_EQ(frames_at(jit, 0x7f0000001010, options), Frames{"LazyCompile:~first app.js:1"});
  EXPECT_EQ(frames_at(jit, 0x7f0000001090, options), Frames{"later code"});  // written after: it is there now
  EXPECT_EQ(frames_at(jit, 0x7f00000010c0, options), Frames{"LazyCompile:~first app.js:1"});
  EXPECT_EQ(frames_at(jit, 0x7f000000117f, options), Frames{"Second"});
  EXPECT_TRUE(frames_at(jit, 0x7f0000001180, options).empty());
  EXPECT_EQ(frames_at(jit, 0x7f0000002008, options), Frames{"third"});
  EXPECT_TRUE(frames_at({.path = "[anon]", .pid = 78}, 0x7f0000001010, options).empty()) << "another process";
  must_run("rm " + path + " && mkfifo " + path);
  EXPECT_TRUE(frames_at(jit, 0x7f0000001010, options).empty()) << "a FIFO must not block";
  must_run("rm -r " + std::string(directory));
}

TEST(Demangle, CppRustAndD) {
  EXPECT_EQ(demangle("_ZN5outer3Box4workEi"), "outer::Box::work(int)");
  EXPECT_EQ(demangle("_ZN5outer3Box4workEi@plt"), "outer::Box::work(int)@plt");
  EXPECT_EQ(demangle("_Z@plt"), "_Z@plt");
  EXPECT_EQ(demangle("_ZNSt6vectorIiSaIiEE9push_backERKi"),
            "std::vector<int, std::allocator<int> >::push_back(int const&)");
  EXPECT_EQ(demangle("_ZZ4mainENKUliE_clEi"), "main::{lambda(int)#1}::operator()(int) const");
  EXPECT_EQ(demangle("_ZN3foo3barEv.cold"), "foo::bar() [clone .cold]");
  // Rust, legacy: the hash goes.
  EXPECT_EQ(demangle("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE"), "core::fmt::Formatter::pad");
  EXPECT_EQ(
      demangle("_ZN71_$LT$Test$u20$$u2b$$u20$$u27$static$u20$as$u20$foo..Bar$LT$Test$GT$$GT$3bar17h930b740aa94f1d3aE"),
      "<Test + 'static as foo::Bar<Test>>::bar");
  // Rust v0 (RFC 2603's examples).
  EXPECT_EQ(demangle("_RNvC6_123foo3bar"), "123foo::bar");
  EXPECT_EQ(demangle("_RNvMsr_NtCs3ssYzQotkvD_3std4pathNtB5_7PathBuf3newCs15kBYyAo9fc_7mycrate"),
            "<std::path::PathBuf>::new");
  EXPECT_EQ(demangle("_RINvNtC3std3mem8align_ofjE"), "std::mem::align_of::<usize>");
  EXPECT_EQ(demangle("_D8demangle4testFaZv"), "demangle.test(char)");
  for (const char* plain :
       {"main", "", "_", "_Z", "_R", "_D", "_Dynamic", "_ZN", "_RNvC", "malloc", "_start", "_Zfoo bar"})
    EXPECT_EQ(demangle(plain), plain);
  EXPECT_EQ(demangle(("_Z" + std::string(100'000, 'P')).c_str()).size(), 100'002u);
}

}  // namespace
}  // namespace windlass::symbols
