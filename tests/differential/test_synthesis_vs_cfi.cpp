// Rows synthesised from the code, compared with call frame information at every instruction of real libraries.
#include <Zydis/Zydis.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <map>
#include <ostream>
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

// What one comparison comes to.
enum Verdict { kSame, kPopped, kOtherBase, kRegisters, kCfa, kNotFound, kVerdicts };
const char* const kVerdictNames[kVerdicts] = {"the same",          "the same; CFI leaves out that a register is popped",
                                              "other base of CFA", "preserved registers differ",
                                              "CFA differs",       "nothing found"};

struct Sweep {
  std::map<flow::Certainty, std::array<std::size_t, kVerdicts>> count;
  std::size_t not_found = 0, instructions = 0, outermost = 0;
  std::vector<std::string> certain_differences, contradictions;
  std::vector<double> nanoseconds, contradiction_nanoseconds;
  [[nodiscard]] std::size_t of(flow::Certainty certainty, Verdict verdict) const {
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

const char* name_of(flow::Certainty certainty) {
  return certainty == flow::Certainty::kCertain  ? "certain"
         : certainty == flow::Certainty::kLikely ? "likely"
                                                 : "guess";
}

bool is_same(const RegisterRule* rule) { return rule == nullptr || rule->is(RegisterRule::kSameValue); }

Verdict compare(const FrameRow& cfi, const FrameRow& code) {
  if (flow::same_row(Architecture::kX86_64, cfi, code)) return kSame;
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

  [[nodiscard]] const std::string& build_id() const { return code_.image().build_id(); }

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
    flow::CodeSource source{Architecture::kX86_64, read_code, kind_of, accept};
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
        const auto found = flow::synthesize(source, CodeAddress::instruction(pc), *scratch_);
        result.nanoseconds.push_back(
            std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - before).count());
        const auto asked = std::chrono::steady_clock::now();
        const auto better = flow::contradicts(row, source, CodeAddress::instruction(pc), *scratch_);
        result.contradiction_nanoseconds.push_back(
            std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - asked).count());
        if (better && compare(row, *better) >= kRegisters)
          result.contradictions.push_back(
              fmt::format("{:#x} (of {:#x}) CFI {} | code {}", pc, fde.begin, text(row), text(*better)));
        if (!found) {
          ++result.not_found;
        } else if (found->start != flow::Start::kNone) {
          ++result.outermost;
        } else {
          const Verdict verdict = compare(row, found->row);
          ++result.count[found->certainty][verdict];
          if (verdict >= kRegisters &&
              (found->certainty == flow::Certainty::kCertain || std::getenv("WINDLASS_SWEEP_LIKELY") != nullptr))
            result.certain_differences.push_back(fmt::format("{:#x} (of {:#x}) {} CFI {} | code {}", pc, fde.begin,
                                                             name_of(found->certainty), text(row), text(found->row)));
        }
        pc += instruction.length;
      }
    });
  }

  test::ElfCode code_;
  ZydisDecoder decoder_;
  flow::SynthesisScratch* scratch_ = flow::make_scratch();
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

// What a sweep of every 17th function comes to, for Debian 12's libraries: instructions by certainty and verdict.
constexpr std::size_t kEvery = 17;
constexpr std::size_t kCertainties = 3;
using Counts = std::array<std::array<std::size_t, kVerdicts>, kCertainties>;  // certain, likely, guess
struct Known {
  std::size_t instructions, contradictions;
  Counts count;  // kNotFound apart: there is no certainty
  std::size_t not_found;
};
struct KnownLibrary {
  const char* path;
  const char* build_id;
  Known starts_unknown, starts_known;
  friend void PrintTo(const KnownLibrary& library, std::ostream* out) { *out << library.path; }
};
// What does not agree: parts that never return (no stack to check against here), assembly with conventions of its own,
// and unwind information that is wrong (glibc's __mpn_ functions push without saying so). Where the code is certain, it
// is nearly always the unwind information that is wrong.
const KnownLibrary kLibraries[] = {
    {"/usr/lib/x86_64-linux-gnu/libc.so.6",
     "93ac61ec5a8eb1396f9fbd350e3169a558528a40",
     {20208, 67, {{{10082, 451, 186, 8, 67, 0}, {8611, 28, 26, 9, 142, 0}, {107, 6, 0, 1, 484, 0}}}, 0},
     {20208, 67, {{{17103, 467, 198, 13, 67, 0}, {2008, 18, 201, 1, 0, 0}, {0, 0, 0, 4, 128, 0}}}, 0}},
    {"/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
     "289ee39f8c07bd4fa48102dfeeb7e6f9c76158b4",
     {17483, 0, {{{6536, 579, 3149, 0, 0, 0}, {5974, 8, 41, 13, 311, 0}, {69, 7, 40, 6, 750, 0}}}, 0},
     {17483, 0, {{{11561, 584, 3160, 12, 0, 0}, {1193, 10, 316, 1, 34, 0}, {2, 0, 36, 18, 556, 0}}}, 0}},
    {"/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
     "30563306a0d30a4acfe7ce1e066c8696b5e7856f",
     {43674, 0, {{{10009, 3084, 11183, 0, 0, 0}, {18641, 52, 0, 0, 96, 0}, {25, 14, 0, 563, 5, 0}}}, 2},
     {43674, 0, {{{28320, 3122, 11183, 0, 0, 0}, {466, 28, 0, 553, 0, 0}, {0, 0, 0, 0, 0, 0}}}, 2}},
};

Known known_form(const Sweep& sweep) {
  Known result{sweep.instructions, sweep.contradictions.size(), {}, sweep.not_found};
  for (const auto& [certainty, counts] : sweep.count) result.count[static_cast<std::size_t>(certainty)] = counts;
  return result;
}

// As it stands in the list above.
std::string text(const Known& known) {
  std::string rows;
  for (const auto& row : known.count) rows += fmt::format("{{{}}}, ", fmt::join(row, ", "));
  return fmt::format("{{{}, {}, {{{{{}}}}}, {}}}", known.instructions, known.contradictions,
                     rows.substr(0, rows.size() - 2), known.not_found);
}

class SynthesisVsCfi : public testing::TestWithParam<KnownLibrary> {};

TEST_P(SynthesisVsCfi, EveryInstruction) {
  const KnownLibrary& expected = GetParam();
  Library library;
  if (!library.open(expected.path)) GTEST_SKIP() << expected.path << " is not on this machine";
  for (const bool know_starts : {false, true}) {
    const std::size_t every = test::stride(kEvery);
    Sweep sweep = library.sweep(every, know_starts);
    report(std::string(expected.path) + (know_starts ? ", starts known" : ", starts unknown"), sweep);
    const Known is = known_form(sweep);
    const Known& was = know_starts ? expected.starts_known : expected.starts_unknown;
    if (every == kEvery && library.build_id() == expected.build_id) {
      EXPECT_EQ(text(is), text(was)) << expected.path << (know_starts ? ", starts known" : ", starts unknown");
      continue;
    }
    // Another version, or another part: the same shares, nearly.
    const auto share = [](std::size_t count, const Known& of) {
      return static_cast<double>(count) / static_cast<double>(of.instructions);
    };
    ASSERT_GT(is.instructions, was.instructions / 2);
    EXPECT_LT(share(is.contradictions, is), 1.5 * share(was.contradictions, was) + 0.001);
    EXPECT_LT(share(is.not_found, is), 1.5 * share(was.not_found, was) + 0.001);
    for (std::size_t certainty = 0; certainty < kCertainties; ++certainty) {
      std::size_t agrees_now = 0, agreed = 0;
      for (const Verdict verdict : {kSame, kPopped, kOtherBase}) {
        agrees_now += is.count[certainty][verdict];
        agreed += was.count[certainty][verdict];
      }
      if (certainty == static_cast<std::size_t>(flow::Certainty::kCertain)) {
        EXPECT_GT(share(agrees_now, is), share(agreed, was) - 0.05);
      }
      for (const Verdict verdict : {kRegisters, kCfa})
        EXPECT_LT(share(is.count[certainty][verdict], is), 1.5 * share(was.count[certainty][verdict], was) + 0.002)
            << certainty << " " << kVerdictNames[verdict];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Libraries, SynthesisVsCfi, testing::ValuesIn(kLibraries));

}  // namespace
}  // namespace windlass
