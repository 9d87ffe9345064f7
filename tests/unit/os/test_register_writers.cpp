#include "os/register_writers.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include <fmt/format.h>

namespace windlass::os {
namespace {

RegisterWriters writers_of(const std::string& symbols) {
  const std::string path = testing::TempDir() + fmt::format("windlass-kallsyms-{}", ::getpid());
  std::ofstream(path) << symbols;
  RegisterWriters writers(path);
  std::filesystem::remove(path);
  return writers;
}

constexpr const char* kSymbols =
    "0000000000000000 A fixed_percpu_data\n"
    "ffffffff81000000 T __entry_text_start\n"
    "ffffffff81000100 T asm_sysvec_apic_timer_interrupt\n"
    "ffffffff81000800 T __entry_text_end\n"
    "ffffffff81001000 T get_sigframe\n"
    "ffffffff81002000 T __pfx_x64_setup_rt_frame\n"
    "ffffffff81002010 T x64_setup_rt_frame\n"
    "ffffffff81002100 t restore_sigcontext.isra.0\n"
    "ffffffff81002100 d a_variable\n"
    "ffffffff81002200 t its_neighbour\n"
    "ffffffffc0000000 t handle_signal\t[module]\n"
    "ffffffffc0000100 t other\t[module]\n";

TEST(RegisterWriters, AreInTheirFunctionItself) {
  const RegisterWriters writers = writers_of(kSymbols);
  using Frames = std::vector<std::uint64_t>;
  EXPECT_TRUE(writers.were_writing(Frames{0xffffffff81002010, 0xffffffff81001000}));
  EXPECT_TRUE(writers.were_writing(Frames{0xffffffff810020ff}));
  EXPECT_TRUE(writers.were_writing(Frames{0xffffffff81002150})) << "with a compiler's suffix";
  EXPECT_FALSE(writers.were_writing(Frames{0xffffffff81002200}));
  EXPECT_FALSE(writers.were_writing(Frames{0xffffffff81002008})) << "before it";
  EXPECT_FALSE(writers.were_writing(Frames{0xffffffff81001004, 0xffffffff81002020})) << "what it calls";
  EXPECT_FALSE(writers.were_writing(Frames{0xffffffffc0000050})) << "a module's of the same name";
  EXPECT_FALSE(writers.were_writing(Frames{}));
}

TEST(RegisterWriters, AreCallersOnlyIfTheyWriteThemselves) {
  const std::string caller = "ffffffff81000100 T arch_do_signal_or_restart\nffffffff81000200 T x64_setup_rt_frame";
  const std::vector<std::uint64_t> frames{0xffffffff81000110};
  EXPECT_FALSE(writers_of(caller + "\nffffffff81000300 T end\n").were_writing(frames));
  EXPECT_TRUE(writers_of(caller + "_of_other_name\nffffffff81000300 T end\n").were_writing(frames));
}

TEST(RegisterWriters, AreInterrupted) {
  const RegisterWriters writers = writers_of(kSymbols);
  EXPECT_TRUE(
      writers.were_writing(std::vector<std::uint64_t>{0xffffffff81003000, 0xffffffff81000110, 0xffffffff81002020}));
}

TEST(RegisterWriters, AreNoneWhereAddressesAreHidden) {
  const RegisterWriters writers = writers_of("0000000000000000 T do_signal\n0000000000000000 T other\n");
  EXPECT_FALSE(writers.were_writing(std::vector<std::uint64_t>{0}));
  EXPECT_FALSE(RegisterWriters("/nonexistent").were_writing(std::vector<std::uint64_t>{0}));
}

}  // namespace
}  // namespace windlass::os
