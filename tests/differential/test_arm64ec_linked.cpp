// An ARM64EC image of LLVM's assembler and linker: both function tables are listed, and the code ranges are those that
// llvm-readobj prints.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>
#include <tuple>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "support/run_command.h"
#include "support/seh_assembly.h"

namespace windlass {
namespace {

constexpr const char* kEc = R"(
  .text
  .globl "#ec"
  .p2align 2
  .seh_proc "#ec"
"#ec":
  stp x29, x30, [sp, #-32]!
  .seh_save_fplr_x 32
  stp x19, x20, [sp, #16]
  .seh_save_regp x19, 16
  .seh_endprologue
  mov x19, x0
  .seh_startepilogue
  ldp x19, x20, [sp, #16]
  .seh_save_regp x19, 16
  ldp x29, x30, [sp], #32
  .seh_save_fplr_x 32
  .seh_endepilogue
  ret
  .seh_endproc
)";
constexpr const char* kX64 = R"(
  .text
  .globl x64
  .seh_proc x64
x64:
  pushq %rbx
  .seh_pushreg %rbx
  subq $32, %rsp
  .seh_stackalloc 32
  .seh_endprologue
  addq $32, %rsp
  popq %rbx
  retq
  .seh_endproc
)";
// The load configuration leads to the metadata. The linker defines the symbols of the code map and of the second table.
constexpr const char* kMetadata = R"(
  .section .00cfg,"dr"
  .globl _load_config_used
  .p2align 3
_load_config_used:
  .word 0x140
  .fill 0xc4, 1, 0
  .xword __chpe_metadata
  .fill 0x78, 1, 0
  .globl __chpe_metadata
__chpe_metadata:
  .word 1
  .rva __hybrid_code_map
  .word __hybrid_code_map_count
  .fill 0x34, 1, 0
  .rva __arm64x_extra_rfe_table
  .word __arm64x_extra_rfe_table_size
  .fill 0x28, 1, 0
)";

using Range = std::tuple<std::uint64_t, std::uint64_t, std::string>;

class Arm64EcLinked : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = test::SehAssembly::missing(); !missing.empty()) GTEST_SKIP() << missing;
    folder_ = testing::TempDir() + "windlass-ec-XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    std::ofstream(folder_ + "/ec.s") << kEc;
    std::ofstream(folder_ + "/x64.s") << kX64;
    std::ofstream(folder_ + "/metadata.s") << kMetadata;
    const auto made = test::run(fmt::format(
        "cd {} && for s in ec metadata; do llvm-mc-22 -triple arm64ec-windows -filetype=obj $s.s -o $s.obj || exit 1; "
        "done 2>&1 && llvm-mc-22 -triple x86_64-windows -filetype=obj x64.s -o x64.obj 2>&1 && lld-link-19 /dll "
        "/noentry /machine:arm64ec /out:a.dll ec.obj x64.obj metadata.obj 2>&1",
        folder_));
    ASSERT_EQ(made.status, 0) << made.output;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::set<Range> theirs() {
    std::set<Range> ranges;
    const std::string text = test::run("llvm-readobj-22 --coff-load-config " + folder_ + "/a.dll").output;
    const std::regex line("0x([0-9A-F]+) - 0x([0-9A-F]+)  (ARM64EC|X64|ARM64)\\n");
    for (std::sregex_iterator it(text.begin(), text.end(), line), end; it != end; ++it) {
      const std::string machine = (*it)[3];
      ranges.emplace(std::stoull((*it)[1], nullptr, 16), std::stoull((*it)[2], nullptr, 16),
                     machine == "X64" ? "x64" : machine);
    }
    return ranges;
  }
  std::string folder_;
};

TEST_F(Arm64EcLinked, JsonHasTheCodeRangesAndBothTables) {
  const std::set<Range> expected = theirs();
  ASSERT_EQ(expected.size(), 2U);
  for (const char* const command : {"dump", "rows"}) {
    std::set<Range> ranges;
    std::set<std::uint64_t> begins;
    const auto listed = test::run(fmt::format("{} {} --json {}/a.dll", WINDLASS_COMMAND, command, folder_));
    EXPECT_EQ(listed.status, 0) << listed.output;
    std::size_t at = 0;
    while (at < listed.output.size()) {
      const std::size_t end = listed.output.find('\n', at);
      const auto line = nlohmann::json::parse(listed.output.substr(at, end - at));
      at = end + 1;
      if (line.contains("machine")) {
        EXPECT_TRUE(begins.empty()) << "ranges come first: " << line;
        ranges.emplace(line["begin"], line["end"], line["machine"]);
      } else {
        begins.insert(line["begin"].get<std::uint64_t>());
      }
    }
    EXPECT_EQ(ranges, expected) << command;
    for (const auto& [begin, end, machine] : expected) {
      const auto first = begins.lower_bound(begin);
      EXPECT_TRUE(first != begins.end() && *first < end) << command << " lists no function of " << machine;
    }
  }
}

}  // namespace
}  // namespace windlass
