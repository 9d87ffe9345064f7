// Rows synthesised from AArch64 code, and what code says against unwind information, at every instruction of functions
// of Debian's arm64 libraries.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/registers.h"
#include "flow/rows.h"
#include "flow/synthesis.h"
#include "formats/dwarf/lower.h"
#include "support/elf_code.h"
#include "support/whole.h"

namespace windlass {
namespace {

constexpr Architecture kArm = Architecture::kAArch64;
constexpr std::size_t kMostListed = 12;

std::string text(const RegisterRule& rule) {
  switch (rule.kind()) {
    case RegisterRule::kUndefined: return "undefined";
    case RegisterRule::kSameValue: return "same";
    case RegisterRule::kAtCfa: return fmt::format("[c{:+}]", rule.offset());
    case RegisterRule::kInRegister: return register_text(kArm, rule.reg());
    default: return "other";
  }
}

std::string text(const FrameRow& row) {
  std::string out = "expression";
  if (row.cfa.is(CfaRule::kRegister)) out = fmt::format("{}{:+}", register_text(kArm, row.cfa.reg()), row.cfa.offset());
  out += " ra " + text(row.return_address) + (row.return_signed ? " signed" : "");
  for (const RegisterEntry entry : row.registers)
    if (is_callee_saved(kArm, entry.reg)) out += " " + register_text(kArm, entry.reg) + " " + text(entry.rule);
  return out;
}

struct Tally {
  std::uint64_t instructions = 0, same = 0, same_caller = 0, registers = 0, frame = 0, sign = 0, nothing = 0, ends = 0;
  std::uint64_t contradicted = 0;
  std::vector<std::string> differences, contradictions;
};

class Library {
 public:
  bool open(const std::string& path) { return code_.open(path); }
  ~Library() { flow::free_scratch(scratch_); }

  Tally sweep(std::size_t every) {
    Tally tally;
    const auto section = image::find_eh_frame(code_.image());
    if (!section) return tally;
    dwarf::RowEvaluator rows(*section);
    const auto fdes = code_.functions(
        *section, rows, [](const FrameRow&, const CfaRule& cfa) { return cfa == CfaRule::at(aarch64::kSp, 0); });
    for (std::size_t i = 0; i < fdes.size(); i += every) function(rows, fdes[i], tally);
    return tally;
  }

 private:
  void function(dwarf::RowEvaluator& rows, const dwarf::Fde& fde, Tally& tally) {
    const auto read_code = [this](std::uint64_t a, void* to, std::size_t size) { return code_.read(a, to, size); };
    const auto kind_of = [this](std::uint64_t a) { return code_.kind(a); };
    const auto accept = [](const FrameRow&) { return true; };
    const auto start = [this](std::uint64_t a) { return code_.start_of(a); };
    const flow::CodeSource source{kArm, read_code, kind_of, accept, start};
    (void)rows.for_each_row(fde, [&](const FrameRow& row) {
      if (row.signal_frame || row.return_address.is(RegisterRule::kUndefined)) return;
      for (std::uint64_t pc = row.begin; pc < row.end; pc += 4) compare(source, row, pc, tally);
    });
  }

  void compare(const flow::CodeSource& source, const FrameRow& row, std::uint64_t pc, Tally& tally) {
    ++tally.instructions;
    const auto note = [&](std::vector<std::string>& list, const FrameRow& other, int certainty) {
      static constexpr const char* names[] = {"certain", "likely", "guess"};
      list.push_back(fmt::format("{} {:#x}: CFI {} | code {}", names[certainty], pc, text(row), text(other)));
    };
    const CodeAddress address = CodeAddress::instruction(pc);
    if (const auto other = flow::contradicts(row, source, address, *scratch_)) {
      ++tally.contradicted;
      note(tally.contradictions, *other, 0);
    }
    const auto found = flow::synthesize(source, address, *scratch_);
    if (!found) {
      ++tally.nothing;
      return;
    }
    if (found->start != flow::Start::kNone) {
      ++tally.ends;
      return;
    }
    if (flow::same_row(kArm, row, found->row)) {
      ++tally.same;
      if (row.return_signed != found->row.return_signed) {
        ++tally.sign;
        note(tally.differences, found->row, static_cast<int>(found->certainty));
      }
      return;
    }
    if (flow::same_caller_aarch64(row, found->row)) {
      ++tally.same_caller;
      return;
    }
    if (flow::same_frame(row, found->row))
      ++tally.registers;
    else
      ++tally.frame;
    note(tally.differences, found->row, static_cast<int>(found->certainty));
  }

  test::ElfCode code_;
  flow::SynthesisScratch* scratch_ = flow::make_scratch();
};

void list(const char* title, const std::vector<std::string>& lines) {
  if (lines.empty()) return;
  const bool all = std::getenv("WINDLASS_SWEEP_ALL") != nullptr;
  fmt::print("  {}: {}\n", title, lines.size());
  const std::size_t step = all ? 1 : std::max<std::size_t>(1, lines.size() / kMostListed);
  for (std::size_t i = 0; i < lines.size(); i += step) fmt::print("    {}\n", lines[i]);
}

class AArch64Sweep : public testing::TestWithParam<const char*> {};

TEST_P(AArch64Sweep, SynthesisAgainstUnwindInformation) {
  Library library;
  const std::string path = std::string(WINDLASS_AARCH64_SYSROOT "/") + GetParam();
  if (!library.open(path)) GTEST_SKIP() << "no arm64 libraries: run cmake/aarch64_sysroot.sh " WINDLASS_AARCH64_SYSROOT;
  const Tally tally = library.sweep(test::stride(17));
  ASSERT_GT(tally.instructions, 100u);
  const auto percent = [&](std::uint64_t n) {
    return 100.0 * static_cast<double>(n) / static_cast<double>(tally.instructions);
  };
  fmt::print(
      "{}: {} instructions; same {:.3f}%, same caller {:.3f}%, registers differ {:.3f}%, frame "
      "differs {:.3f}%, signing differs {}, nothing found {:.3f}%, outermost {}; contradicted {}\n",
      GetParam(), tally.instructions, percent(tally.same), percent(tally.same_caller), percent(tally.registers),
      percent(tally.frame), tally.sign, percent(tally.nothing), tally.ends, tally.contradicted);
  list("differences", tally.differences);
  list("contradictions", tally.contradictions);
  EXPECT_GT(percent(tally.same + tally.same_caller), 94.0);
  EXPECT_LT(percent(tally.frame), 5.0);
  EXPECT_EQ(tally.sign, 0u);
  // The resolver, and a descriptor's that saves vector registers it does not describe; context switches.
  EXPECT_LT(tally.contradicted, 100u);
}

INSTANTIATE_TEST_SUITE_P(Libraries, AArch64Sweep,
                         testing::Values("lib/aarch64-linux-gnu/libc.so.6", "lib/ld-linux-aarch64.so.1",
                                         "usr/lib/aarch64-linux-gnu/libstdc++.so.6",
                                         "lib/aarch64-linux-gnu/libgcc_s.so.1"));

}  // namespace
}  // namespace windlass
