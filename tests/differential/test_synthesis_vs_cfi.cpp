// Rows synthesised from the code, compared with call frame information at every instruction of real libraries.
#include <Zydis/Zydis.h>
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "arch/registers.h"
#include "code/rows.h"
#include "code/synthesis.h"
#include "dwarf/lower.h"
#include "support/elf_code.h"
#include "support/whole.h"

namespace windlass {
namespace {

// What one comparison comes to.
enum Verdict { kSame, kPopped, kOtherBase, kRegisters, kCfa, kNotFound, kVerdicts };
const char* const kVerdictNames[kVerdicts] = {"the same",          "the same; CFI leaves out that a register is popped",
                                              "other base of CFA", "preserved registers differ",
                                              "CFA differs",       "nothing found"};

struct Sweep {
  std::map<code::Certainty, std::array<std::size_t, kVerdicts>> count;
  std::size_t not_found = 0, instructions = 0, outermost = 0;
  std::vector<std::string> certain_differences, contradictions;
  std::vector<double> nanoseconds, contradiction_nanoseconds;
  [[nodiscard]] std::size_t of(code::Certainty certainty, Verdict verdict) const {
    const auto found = count.find(certainty);
    return found == count.end() ? 0 : found->second[verdict];
  }
};

std::string text(const RegisterRule* rule) {
  if (rule == nullptr) return "=";
  switch (rule->kind()) {
    case RegisterRule::kUndefined: return "?";
    case RegisterRule::kSameValue: return "=";
    case RegisterRule::kAtCfa: return fmt::format("[c{:+}]", rule->offset());
    case RegisterRule::kCfaValue: return fmt::format("c{:+}", rule->offset());
    case RegisterRule::kInRegister: return fmt::format("r{}", rule->reg());
    default: return "expr";
  }
}

std::string text(const FrameRow& row) {
  std::string out;
  if (row.cfa.is(CfaRule::kRegister))
    out = fmt::format("{}{:+}", register_text(Architecture::kX86_64, row.cfa.reg()), row.cfa.offset());
  else
    out = "expr";
  out += " ra" + text(&row.return_address);
  for (const unsigned reg : {3, 6, 12, 13, 14, 15})
    out += fmt::format(" {}{}", register_text(Architecture::kX86_64, reg), text(row.registers.find(reg)));
  return out;
}

const char* name_of(code::Certainty certainty) {
  return certainty == code::Certainty::kCertain  ? "certain"
         : certainty == code::Certainty::kLikely ? "likely"
                                                 : "guess";
}

bool is_same(const RegisterRule* rule) { return rule == nullptr || rule->is(RegisterRule::kSameValue); }

Verdict compare(const FrameRow& cfi, const FrameRow& code) {
  if (code::same_row(Architecture::kX86_64, cfi, code)) return kSame;
  const CfaRule &a = cfi.cfa, &b = code.cfa;
  const bool same_base = a.is(CfaRule::kRegister) && b.is_at(a.reg());
  if (same_base && a.offset() != b.offset()) return kCfa;
  Verdict verdict = same_base ? kSame : kOtherBase;
  for (const std::uint16_t reg : {3, 6, 12, 13, 14, 15}) {
    const RegisterRule* x = cfi.registers.find(reg);
    const RegisterRule* y = code.registers.find(reg);
    if ((is_same(x) && is_same(y)) || text(x) == text(y)) continue;
    const bool saved = x != nullptr && x->is(RegisterRule::kAtCfa);
    // Below sp, if the CFA is given by sp: popped. Else it is not known here.
    const bool dead =
        saved && is_same(y) && b.is(CfaRule::kRegister) && (!b.is_at(x86_64::kRsp) || -x->offset() > b.offset());
    if (!dead) return kRegisters;
    if (verdict == kSame) verdict = kPopped;
  }
  return verdict;
}

class Library {
 public:
  bool open(const std::string& path) {
    if (!code_.open(path)) return false;
    ZydisDecoderInit(&decoder_, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
    return true;
  }

  // Every instruction of each `every`th function.
  Sweep sweep(std::size_t every, bool know_starts) {
    Sweep result;
    const auto section = image::find_eh_frame(code_.image());
    if (!section) return result;
    dwarf::RowEvaluator rows(*section);
    auto fdes = code_.functions(*section, rows, [](const FrameRow& row, const CfaRule& cfa) {
      return cfa == CfaRule::at(x86_64::kRsp, 8) && row.registers.size() == 0;
    });
    std::sort(fdes.begin(), fdes.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
    for (std::size_t i = 0; i < fdes.size(); i += every) function(rows, fdes[i], know_starts, result);
    return result;
  }

 private:
  void function(dwarf::RowEvaluator& rows, const dwarf::Fde& fde, bool know_starts, Sweep& result) {
    const auto read_code = [this](std::uint64_t address, void* to, std::size_t size) {
      return code_.read(address, to, size);
    };
    const auto kind_of = [this](std::uint64_t address) { return code_.kind(address); };
    const auto accept = [](const FrameRow&) { return true; };
    const auto start = [this](std::uint64_t address) { return code_.start_of(address); };
    code::CodeSource source{Architecture::kX86_64, read_code, kind_of, accept};
    if (know_starts) source.function_start = start;
    std::uint64_t pc = fde.begin;
    (void)rows.for_each_row(fde, [&](const FrameRow& row) {
      if (row.return_address.is(RegisterRule::kUndefined)) return;
      for (; pc < row.end;) {
        std::uint8_t bytes[ZYDIS_MAX_INSTRUCTION_LENGTH] = {};
        std::size_t size = sizeof bytes;
        while (size > 0 && !code_.read(pc, bytes, size)) --size;
        ZydisDecodedInstruction instruction;
        if (!ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&decoder_, nullptr, bytes, size, &instruction))) {
          ++pc;
          continue;
        }
        if (instruction.mnemonic == ZYDIS_MNEMONIC_NOP) {  // padding, more often than not
          pc += instruction.length;
          continue;
        }
        ++result.instructions;
        const auto before = std::chrono::steady_clock::now();
        const auto found = code::synthesize(source, CodeAddress::instruction(pc), *scratch_);
        result.nanoseconds.push_back(
            std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - before).count());
        const auto asked = std::chrono::steady_clock::now();
        const auto better = code::contradicts(row, source, CodeAddress::instruction(pc), *scratch_);
        result.contradiction_nanoseconds.push_back(
            std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - asked).count());
        if (better && compare(row, *better) >= kRegisters)
          result.contradictions.push_back(
              fmt::format("{:#x} (of {:#x}) CFI {} | code {}", pc, fde.begin, text(row), text(*better)));
        if (!found) {
          ++result.not_found;
        } else if (found->outermost) {
          ++result.outermost;
        } else {
          const Verdict verdict = compare(row, found->row);
          ++result.count[found->certainty][verdict];
          if (verdict >= kRegisters &&
              (found->certainty == code::Certainty::kCertain || std::getenv("WINDLASS_SWEEP_LIKELY") != nullptr))
            result.certain_differences.push_back(fmt::format("{:#x} (of {:#x}) {} CFI {} | code {}", pc, fde.begin,
                                                             name_of(found->certainty), text(row), text(found->row)));
        }
        pc += instruction.length;
      }
    });
  }

  test::ElfCode code_;
  ZydisDecoder decoder_;
  code::SynthesisScratch* scratch_ = code::make_scratch();
};

void report(const std::string& name, Sweep& sweep) {
  fmt::print("{}: {} instructions, {} nothing found, {} outermost\n", name, sweep.instructions, sweep.not_found,
             sweep.outermost);
  for (const auto& [certainty, counts] : sweep.count)
    for (int i = 0; i < kVerdicts; ++i)
      if (counts[i] != 0)
        fmt::print("  {:8} {:52} {:9} {:8.4f}%\n", name_of(certainty), kVerdictNames[i], counts[i],
                   100.0 * static_cast<double>(counts[i]) / static_cast<double>(sweep.instructions));
  const auto print_times = [](const char* what, std::vector<double>& times) {
    std::sort(times.begin(), times.end());
    if (!times.empty())
      fmt::print("  ns {}: median {:.0f}, p99 {:.0f}, most {:.0f}\n", what, times[times.size() / 2],
                 times[times.size() * 99 / 100], times.back());
  };
  print_times("a synthesis", sweep.nanoseconds);
  print_times("a check for contradictions", sweep.contradiction_nanoseconds);
  fmt::print("  {} instructions contradict their unwind information\n", sweep.contradictions.size());
  if (std::getenv("WINDLASS_SWEEP_ALL") != nullptr)
    for (const std::string& line : sweep.contradictions) fmt::print("  contradiction {}\n", line);
  if (std::getenv("WINDLASS_SWEEP_ALL") != nullptr)
    for (const std::string& line : sweep.certain_differences) fmt::print("  {}\n", line);
}

class SynthesisVsCfi : public testing::TestWithParam<const char*> {};

TEST_P(SynthesisVsCfi, EveryInstruction) {
  Library library;
  if (!library.open(GetParam())) GTEST_SKIP() << GetParam() << " is not on this machine";
  for (const bool know_starts : {false, true}) {
    Sweep sweep = library.sweep(test::stride(17), know_starts);
    report(std::string(GetParam()) + (know_starts ? ", starts known" : ", starts unknown"), sweep);
    ASSERT_GT(sweep.instructions, 1000u);
    const double all = static_cast<double>(sweep.instructions);
    std::size_t agrees = 0;
    for (const auto& [certainty, counts] : sweep.count) agrees += counts[kSame] + counts[kPopped] + counts[kOtherBase];
    // What does not agree: parts that never return (no stack to check against here), assembly with conventions of its
    // own, and unwind information that is wrong (glibc's __mpn_ functions push without saying so).
    EXPECT_GT(static_cast<double>(agrees) / all, know_starts ? 0.93 : 0.90);
    // Where the code is certain, it is nearly always the unwind information that is wrong.
    const std::size_t wrong =
        sweep.of(code::Certainty::kCertain, kCfa) + sweep.of(code::Certainty::kCertain, kRegisters);
    EXPECT_LT(static_cast<double>(wrong) / all, 0.006);
    EXPECT_LT(static_cast<double>(sweep.contradictions.size()) / all, 0.006);
  }
}

INSTANTIATE_TEST_SUITE_P(Libraries, SynthesisVsCfi,
                         testing::Values("/usr/lib/x86_64-linux-gnu/libc.so.6",
                                         "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
                                         "/usr/lib/x86_64-linux-gnu/libcrypto.so.3"));

}  // namespace
}  // namespace windlass
