// Names of the kernel's functions, by /proc/kallsyms and by texts in its form.
#include <gtest/gtest.h>
#include <linux/bpf.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "frames_at.h"
#include "os/descriptor.h"
#include "symbols/kernel_symbols.h"
#include "symbols/symbolize.h"

namespace windlass::symbols {
namespace {

using test::frames_at;

struct TextFile {
  explicit TextFile(const std::string& text) {
    char name[] = "/tmp/windlass-text-XXXXXX";
    ::close(::mkstemp(name));
    path = name;
    std::ofstream(path) << text;
  }
  ~TextFile() { ::unlink(path.c_str()); }
  std::string path;
};

TEST(Symbolize, Kallsyms) {
  const TextFile file(
      "ffffffff81000000 T _text\nffffffff81000000 T startup_64\nffffffff81001000 t local_one\n"
      "ffffffff81001000 T global_alias\nffffffff81002000 D some_data\nffffffff81003000 T last_of_kernel\n"
      "ffffffffc0000000 t mod_fn\t[mod]\nffffffffc0000000 t $x\t[mod]\nffffffffc0000020 t $d\t[mod]\nffffffffc0000100 "
      "t mod_last\t[mod]\nffffffffc0800000 t other\t[other]\n");
  const profile::Module kernel{.path = "[kernel]", .is_kernel = true};
  const auto name = [&](std::uint64_t address) {
    const auto frames = frames_at(kernel, address, {.kallsyms = file.path});
    return frames.empty() ? std::string() : frames[0];
  };
  EXPECT_EQ(name(0xffffffff81001010), "global_alias");
  EXPECT_EQ(name(0xffffffffc0000040), "mod_fn");
  EXPECT_EQ(name(0xffffffff80ffffff), "");
  EXPECT_EQ(name(0xffffffff81003800), "") << "the last symbol of the kernel has no known end";
  EXPECT_EQ(name(0xffffffffc0000180), "") << "nor has a module's";
  EXPECT_EQ(name(0xffffffffc0800010), "");
}

// What was read before serves where it cannot have changed since; else all is read anew.
TEST(Symbolize, KallsymsReadAhead) {
  const std::string before =
      "ffffffff81000000 T first\nffffffff81001000 T second\nffffffffc0000000 t mod_fn\t[mod]\n"
      "ffffffffc0000100 t mod_next\t[mod]\nffffffffc0001000 t bpf_old\t[bpf]\nffffffffc0001100 t bpf_last\t[bpf]\n";
  const TextFile file(before);
  const TextFile modules("mod 4096 1 - Live 0xffffffffc0000000\n");
  std::vector<std::uint32_t> programs = {7, 8};
  KernelSymbolsAhead ahead(file.path, modules.path, [&] { return programs; });
  std::string note;
  ASSERT_FALSE(ahead.at({}, note)->empty());
  std::ofstream(file.path) << "ffffffff81000000 T new_first\nffffffff81001000 T new_second\n"
                              "ffffffffc0000000 t new_fn\t[mod]\nffffffffc0000100 t new_next\t[mod]\n"
                              "ffffffffc0001000 t bpf_new\t[bpf]\nffffffffc0001100 t bpf_last\t[bpf]\n";
  const profile::Module kernel{.path = "[kernel]", .is_kernel = true};
  const auto name = [&](std::uint64_t address) {
    const auto frames = frames_at(kernel, address, {.kallsyms = file.path, .kernel = &ahead});
    return frames.empty() ? std::string() : frames[0];
  };
  EXPECT_EQ(name(0xffffffff81000010), "first");
  EXPECT_EQ(name(0xffffffffc0000010), "mod_fn");
  EXPECT_EQ(name(0xffffffffc0001010), "bpf_old");
  std::ofstream(modules.path) << "mod 4096 7 - Live 0xffffffffc0000000\n";
  EXPECT_EQ(name(0xffffffffc0000010), "mod_fn") << "the count of users says nothing";
  EXPECT_EQ(ahead.readings(), 1u);
  programs = {7, 9};
  EXPECT_EQ(name(0xffffffff81000010), "first") << "the kernel's own functions stay";
  EXPECT_EQ(name(0xffffffffc0001010), "bpf_new") << "programs come and go";
  EXPECT_EQ(ahead.readings(), 2u);
  EXPECT_EQ(name(0xffffffffc0001020), "bpf_new");
  EXPECT_EQ(ahead.readings(), 2u) << "the programs are those of the last reading";
}

// Those of the recorder itself are there all the time, while others come and go.
TEST(Symbolize, KallsymsReadAheadServeForProgramsThatStay) {
  const TextFile file(
      "ffffffff81000000 T first\nffffffff81001000 T second\nffffffffc0001000 t bpf_stays\t[bpf]\n"
      "ffffffffc0001100 t bpf_goes\t[bpf]\nffffffffc0001200 t bpf_trampoline_1\t[bpf]\n"
      "ffffffffc0001300 t bpf_last\t[bpf]\n");
  const TextFile modules("");
  std::vector<std::uint32_t> programs = {7, 8}, asked;
  KernelSymbolsAhead ahead(
      file.path, modules.path, [&] { return programs; },
      [&](std::span<const std::uint32_t> numbers) {
        asked.assign(numbers.begin(), numbers.end());
        return std::vector<AddressRange>{{0xffffffffc0001000, 0xffffffffc0001080}};
      });
  std::string note;
  const auto readings = [&](std::uint64_t address) {
    (void)ahead.at(std::span(&address, 1), note);
    return ahead.readings();
  };
  EXPECT_EQ(readings(0xffffffffc0001110), 1U) << "the same programs";
  EXPECT_TRUE(asked.empty());
  programs = {7, 9};
  EXPECT_EQ(readings(0xffffffffc0001000), 1U);
  EXPECT_EQ(asked, std::vector<std::uint32_t>{7}) << "which was there then, and is now";
  EXPECT_EQ(readings(0xffffffffc000107f), 1U);
  EXPECT_EQ(readings(0xffffffffc0001080), 2U) << "behind the program's code";
  programs = {7};
  EXPECT_EQ(readings(0xffffffffc0001210), 3U) << "a trampoline is no program's";
  programs = {7, 10};
  EXPECT_EQ(readings(0xffffffff81000010), 3U);
  EXPECT_EQ(readings(0xffffffffc0001010), 3U);
  EXPECT_EQ(readings(0xffffffffc0001110), 4U);
}

// return 0
os::Descriptor load_program() {
  const bpf_insn code[] = {{BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 0}, {BPF_JMP | BPF_EXIT, 0, 0, 0, 0}};
  bpf_attr load{};
  load.prog_type = BPF_PROG_TYPE_SOCKET_FILTER;
  load.insns = reinterpret_cast<std::uint64_t>(code), load.insn_cnt = std::size(code);
  load.license = reinterpret_cast<std::uint64_t>("GPL");
  std::strcpy(load.prog_name, "wl_test");
  return os::Descriptor(static_cast<int>(::syscall(SYS_bpf, BPF_PROG_LOAD, &load, sizeof load)));
}

bpf_prog_info info_of(const os::Descriptor& program) {
  bpf_prog_info info{};
  bpf_attr asked{};
  asked.info.bpf_fd = static_cast<std::uint32_t>(program.get());
  asked.info.info_len = sizeof info, asked.info.info = reinterpret_cast<std::uint64_t>(&info);
  EXPECT_EQ(::syscall(SYS_bpf, BPF_OBJ_GET_INFO_BY_FD, &asked, sizeof asked), 0);
  return info;
}

// By the kernel's own list, of two programs loaded here. The last program in memory may have no name: its end is not
// known.
TEST(Symbolize, CodeOfLoadedProgramsIsWhereKallsymsHasIt) {
  const os::Descriptor one = load_program(), other = load_program();
  if (!one || !other) GTEST_SKIP() << "no privilege to sample";
  const std::vector<std::uint32_t> programs = bpf_programs();
  EXPECT_TRUE(std::ranges::is_sorted(programs));
  std::vector<AddressRange> found;
  for (const bpf_prog_info& info : {info_of(one), info_of(other)}) {
    EXPECT_TRUE(std::ranges::binary_search(programs, info.id));
    const std::vector<AddressRange> code = bpf_code(std::span(&info.id, 1));
    if (code.empty()) GTEST_SKIP() << "this kernel does not compile BPF programs";
    ASSERT_EQ(code.size(), 1U);
    EXPECT_EQ(code[0].end - code[0].begin, info.jited_prog_len);
    found.push_back(code[0]);
  }
  const AddressRange first = std::ranges::min(found, {}, &AddressRange::begin);
  std::string note;
  const KernelSymbols symbols("/proc/kallsyms", note);
  for (const std::uint64_t at : {first.begin, first.end - 1}) {
    const std::string name(symbols.name_of(at).value_or(""));
    EXPECT_TRUE(name.starts_with("bpf_prog_") && name.ends_with("_wl_test")) << name;
  }
  constexpr std::uint32_t kNone = ~0U;
  EXPECT_TRUE(bpf_code(std::span(&kNone, 1)).empty());
}

TEST(Symbolize, KallsymsReadAheadAreReadAgain) {
  const auto listing = [](const std::string& function) {
    return "ffffffff81000000 T first\nffffffff81001000 T second\nffffffffc0000000 t " + function +
           "\t[mod]\nffffffffc0000100 t next\t[mod]\nffffffffc0001000 t bpf\t[bpf]\nffffffffc0001100 t last\t[bpf]\n";
  };
  const TextFile file(listing("one")), modules("mod 4096 1 - Live 0xffffffffc0000000\n");
  std::vector<std::uint32_t> programs = {7};
  KernelSymbolsAhead ahead(file.path, modules.path, [&] { return programs; });
  std::string note;
  const auto name = [&](std::uint64_t address) {
    return std::string(ahead.at(std::span(&address, 1), note)->name_of(address).value_or(""));
  };
  EXPECT_EQ(name(0xffffffffc0000010), "one");
  std::ofstream(file.path) << listing("two");
  std::ofstream(modules.path) << "other 4096 1 - Live 0xffffffffc0000000\n";
  EXPECT_EQ(name(0xffffffffc0000010), "two") << "a module has come";
  EXPECT_EQ(name(0xffffffffc0000010), "two");
  EXPECT_EQ(ahead.readings(), 2u);
  programs = {};  // nobody may ask for programs
  EXPECT_EQ(name(0xffffffffc0001010), "bpf");
  EXPECT_EQ(name(0xffffffffc0001010), "bpf");
  EXPECT_EQ(ahead.readings(), 4u);
}

TEST(Symbolize, NothingReadAheadIsNothingKnown) {
  const TextFile hidden("0000000000000000 T _text\n"), modules("");
  KernelSymbolsAhead ahead(hidden.path, modules.path);
  std::string note;
  EXPECT_TRUE(ahead.at({}, note)->empty());
  EXPECT_NE(note.find("hidden"), std::string::npos) << note;
}

TEST(Symbolize, HiddenKallsymsAreNoted) {
  const TextFile file("0000000000000000 T _text\n0000000000000000 T startup_64\n");
  profile::Profile profile;
  profile.locations = {{.module = profile::kNone, .address = 0xffffffff81000000}};
  const auto stats = symbolize(profile, {.kallsyms = file.path});
  EXPECT_TRUE(profile.locations[0].lines.empty());
  ASSERT_EQ(stats.notes.size(), 1u);
  EXPECT_NE(stats.notes[0].find("hidden"), std::string::npos);
}

}  // namespace
}  // namespace windlass::symbols
