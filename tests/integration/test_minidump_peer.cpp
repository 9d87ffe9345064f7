// Minidumps of our writer, as Breakpad's own reader (the npm package minidump) reads them: so that the writer and our
// reader do not agree in an error.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <set>
#include <sstream>
#include <string>

#include "support/dump_file.h"
#include "support/minidump_writer.h"
#include "support/run_command.h"
#include "windlass/target.h"

namespace windlass {
namespace {

using test::run;

constexpr const char* kIntegrity =
    "sha512-1CJ6kQDd1UawXgmht3pHKzLPuZPb8xrZlgrN+H6/3zKWsUKapTSF2FE7g2Nji/NnVi+GOsVwM8sm2md6BjJUgg==";
const std::string kDirectory = WINDLASS_PEER_DIRECTORY "/minidump";
const std::string kReader = kDirectory + "/bin/linux-x64/minidump_dump";

// All values of lines "  name = 0x...", in order.
std::vector<std::uint64_t> values_of(const std::string& text, const std::string& name) {
  std::vector<std::uint64_t> values;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word, equals, value;
    if (words >> word >> equals >> value && word == name && equals == "=")
      values.push_back(std::stoull(value, nullptr, 0));
  }
  return values;
}

class MinidumpPeer : public testing::Test {
 protected:
  void SetUp() override {
    if (::access(kReader.c_str(), X_OK) == 0) return;
    const auto fetched =
        run(std::string("sh ") + WINDLASS_FETCH + " minidump 0.26.0 '" + kIntegrity + "' " + kDirectory + " 2>&1");
    ASSERT_NE(fetched.status, 2) << fetched.output;
    if (fetched.status != 0) GTEST_SKIP() << "SKIPPED: " << fetched.output;
    ::chmod(kReader.c_str(), 0755);
    if (run(kReader + " --no-such-file 2>&1").status == 126) GTEST_SKIP() << "SKIPPED: the peer does not run here";
  }
};

TEST_F(MinidumpPeer, ReadsTheSame) {
  struct Case {
    Architecture architecture;
    test::MinidumpWriter::Context context;
    const char* pc;
    const char* sp;
  };
  using Context = test::MinidumpWriter::Context;
  for (const Case& c : {Case{Architecture::kX86_64, Context::kMicrosoft, "rip", "rsp"},
                        Case{Architecture::kAArch64, Context::kMicrosoft, "pc", "sp"},
                        Case{Architecture::kAArch64, Context::kBreakpadOld, "pc", "sp"}}) {
    test::MinidumpWriter writer(c.architecture);
    writer.context = c.context;
    for (std::uint32_t id = 7; id < 9; ++id) {
      Registers registers(c.architecture);
      for (std::uint64_t reg = 0; reg <= Registers::pc_number(c.architecture); ++reg)
        registers.set(reg, 0x10000 * id + reg);
      writer.threads.push_back({id, registers, "", 0x7000000 * std::uint64_t{id}, std::vector<std::byte>(64)});
    }
    writer.modules = {{0x400000, 0x10000, "/bin/program", std::vector<std::uint8_t>(20, 0xab)},
                      {0x600000, 0x8000, "/lib/library", std::vector<std::uint8_t>(20, 0xcd)}};
    writer.memory = {{0x7000000 * 7, std::vector<std::byte>(64)}, {0x400000, std::vector<std::byte>(32)}};
    writer.crashed = 8;
    const test::DumpFile file(writer.write());
    const auto target = open_minidump(file.path());
    ASSERT_TRUE(target);
    EXPECT_TRUE(target->problems.empty());
    const std::string printed = run(kReader + " " + file.path() + " 2>/dev/null").output;
    std::vector<std::uint64_t> ids, pcs, sps;
    for (const Thread& thread : target->threads) {
      ids.push_back(thread.id);
      pcs.push_back(thread.registers.pc().value());
      sps.push_back(thread.registers.sp());
    }
    // The exception's thread and context come once more, last.
    for (auto* list : {&ids, &pcs, &sps}) list->push_back(list->back());
    EXPECT_EQ(values_of(printed, "thread_id"), ids) << printed;
    if (c.architecture == Architecture::kX86_64) {
      EXPECT_EQ(values_of(printed, c.pc), pcs) << printed;
      EXPECT_EQ(values_of(printed, c.sp), sps);
    } else {  // it prints them as iregs[n]
      EXPECT_EQ(values_of(printed, "iregs[32]"), pcs) << printed;
      EXPECT_EQ(values_of(printed, "iregs[31]"), sps);
    }
    std::set<std::uint64_t> begins;
    for (const ModuleInfo* module : target->space.modules()) begins.insert(module->begin);
    const auto bases = values_of(printed, "base_of_image");
    EXPECT_EQ(std::set<std::uint64_t>(bases.begin(), bases.end()), begins);
    EXPECT_NE(printed.find("abababababababababababababababababababab"), std::string::npos);
  }
}

}  // namespace
}  // namespace windlass
