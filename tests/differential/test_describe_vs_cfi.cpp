// Frames described from the code alone, compared with the call frame information of real libraries at every
// instruction.
#include <Zydis/Zydis.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "base/registers.h"
#include "flow/rows.h"
#include "formats/dwarf/lower.h"
#include "support/elf_code.h"
#include "support/whole.h"
#include "windlass/jit/describe.h"

namespace windlass {
namespace {

// What one instruction comes to.
enum Verdict { kSame, kOtherBase, kLost, kMoreSaved, kMute, kWrong, kUnproved, kVerdicts };
const char* const kVerdictNames[kVerdicts] = {"the same",
                                              "CFI counts from another register",
                                              "a register is said to be lost",
                                              "the same; CFI does not tell yet of a save",
                                              "CFI tells nothing of what the code pushes",
                                              "different",
                                              "unproved"};

std::string text(const RegisterRule* rule) {
  if (rule == nullptr) return "=";
  switch (rule->kind()) {
    case RegisterRule::kUndefined: return "?";
    case RegisterRule::kSameValue: return "=";
    case RegisterRule::kAtCfa: return fmt::format("[c{:+}]", rule->offset());
    case RegisterRule::kCfaValue: return fmt::format("c{:+}", rule->offset());
    case RegisterRule::kInRegister: return fmt::format("r{}", rule->reg());
    case RegisterRule::kAtRegister: return fmt::format("[r{}{:+}]", rule->reg(), rule->offset());
    default: return "expr";
  }
}

std::string text(Architecture architecture, const FrameRow& row) {
  std::string out;
  if (row.cfa.is(CfaRule::kRegister))
    out = fmt::format("{}{:+}", register_text(architecture, row.cfa.reg()), row.cfa.offset());
  else if (row.cfa.is(CfaRule::kLoaded))
    out = fmt::format("[{}{:+}]{:+}", register_text(architecture, row.cfa.reg()), row.cfa.offset(), row.cfa.addend());
  else
    out = "expr";
  out += " ra" + text(&row.return_address);
  for (const RegisterEntry entry : row.registers)
    out += fmt::format(" {}{}", register_text(architecture, entry.reg), text(&entry.rule));
  return out;
}

struct Sweep {
  std::size_t functions = 0, whole = 0, described = 0, instructions = 0;
  std::size_t verdicts[kVerdicts] = {};
  std::map<std::string_view, std::size_t> reasons, no_prologue;
  std::vector<std::string> differences;
};

bool is_same(Architecture architecture, RegisterNumber reg, const RegisterRule* rule) {
  (void)architecture;
  return rule == nullptr || rule->is(RegisterRule::kSameValue) || *rule == RegisterRule::in_register(reg);
}

const FrameRow* row_at(const std::vector<FrameRow>& rows, std::uint64_t offset) {
  auto next = std::upper_bound(rows.begin(), rows.end(), offset,
                               [](std::uint64_t at, const FrameRow& row) { return at < row.begin; });
  if (next == rows.begin()) return nullptr;
  --next;
  return offset < next->end ? &*next : nullptr;
}

class Library {
 public:
  bool open(const std::string& path) {
    if (!code_.open(path)) return false;
    if (code_.image().machine() == image::Machine::kAArch64) architecture_ = Architecture::kAArch64;
    ZydisDecoderInit(&decoder_, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
    return true;
  }
  [[nodiscard]] const std::string& build_id() const { return code_.image().build_id(); }

  Sweep sweep(std::size_t every) {
    Sweep result;
    const auto section = image::find_eh_frame(code_.image());
    if (!section) return result;
    dwarf::RowEvaluator rows(*section);
    const auto is_entry = [](const FrameRow& row, const CfaRule& cfa) {
      const bool x86 = cfa == CfaRule::at(x86_64::kRsp, 8) && row.registers.size() == 0;
      return x86 || (cfa == CfaRule::at(aarch64::kSp, 0) && row.registers.size() == 0);
    };
    auto fdes = code_.functions(*section, rows, is_entry);
    std::sort(fdes.begin(), fdes.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
    for (std::size_t i = 0; i < fdes.size(); i += every)
      if (is_function(fdes[i].begin)) function(rows, fdes[i], result);
    return result;
  }

 private:
  Verdict compare(const FrameRow& cfi, const FrameRow& by_sp, const FrameRow& by_fp) const {
    const FrameRow* mine = &by_sp;
    if (cfi.cfa != by_sp.cfa) {
      const bool base = cfi.cfa.is(CfaRule::kRegister) && by_sp.cfa.is_at(cfi.cfa.reg());
      if (base) return kWrong;
      if (cfi.cfa.is(CfaRule::kRegister) && by_fp.cfa.is_at(cfi.cfa.reg()) && cfi.cfa != by_fp.cfa) return kWrong;
      mine = &by_fp;
    }
    const std::int64_t depth =
        by_sp.cfa.is_at(Registers::sp_number(architecture_)) ? std::int64_t{by_sp.cfa.offset()} : 0;
    if (cfi.cfa != mine->cfa) return kOtherBase;
    Verdict verdict = kSame;
    const auto judge = [&](RegisterNumber reg, const RegisterRule* x, const RegisterRule* y) {
      if (is_same(architecture_, reg, x) && is_same(architecture_, reg, y)) return;
      if (text(x) == text(y) && text(x) != "expr") return;
      if (y != nullptr && y->is(RegisterRule::kUndefined)) {
        verdict = std::max(verdict, kLost);
        return;
      }
      const bool saved = x != nullptr && x->is(RegisterRule::kAtCfa);
      if (saved && is_same(architecture_, reg, y) && -x->offset() > depth) return;  // popped, which CFI leaves out
      // A copy in a register is as good (vfork, mcount).
      const bool copied = x != nullptr && x->is(RegisterRule::kInRegister);
      verdict = std::max(verdict, copied || is_same(architecture_, reg, x) ? kMoreSaved : kWrong);
    };
    for (unsigned slot = 0; slot < Registers::kSlots; ++slot) {
      const RegisterNumber reg = flow::register_of_slot(slot);
      if (is_callee_saved(architecture_, reg)) judge(reg, cfi.registers.find(reg), mine->registers.find(reg));
    }
    const RegisterNumber home = architecture_ == Architecture::kAArch64 ? aarch64::kX30 : 0xfffe;
    judge(home, &cfi.return_address, &mine->return_address);
    return verdict;
  }

  // The call sites of an LSDA as GCC and LLVM write it (GCC's except_tab: output_one_function_exception_table); those
  // of other encodings than ULEB128 are left out.
  [[nodiscard]] std::vector<LandingPad> landing_pads(const dwarf::Fde& fde) const {
    constexpr std::uint8_t kOmitted = 0xff, kUleb = 1;
    std::vector<LandingPad> pads;
    if (!fde.lsda || fde.lsda->indirect) return pads;
    std::vector<std::byte> bytes(1 << 16);
    while (!bytes.empty() && !code_.read(fde.lsda->value, bytes.data(), bytes.size())) bytes.resize(bytes.size() / 2);
    ByteCursor table{ByteView(bytes.data(), bytes.size())};
    const auto start = table.read<std::uint8_t>(), types = table.read<std::uint8_t>();
    if (!start || *start != kOmitted || !types || (*types != kOmitted && !table.uleb())) return pads;
    const auto encoding = table.read<std::uint8_t>();
    const auto length = table.uleb();
    if (!encoding || *encoding != kUleb || !length) return pads;
    const std::uint64_t end = table.position() + *length;
    while (table.position() < end) {
      const auto begin = table.uleb(), size = table.uleb(), pad = table.uleb(), action = table.uleb();
      if (!begin || !size || !pad || !action) break;
      if (*pad != 0)
        pads.push_back({static_cast<std::uint32_t>(*begin), static_cast<std::uint32_t>(*begin + *size),
                        static_cast<std::uint32_t>(*pad)});
    }
    return pads;
  }

  void function(dwarf::RowEvaluator& rows, const dwarf::Fde& fde, Sweep& result) {
    std::vector<std::byte> code(fde.end - fde.begin);
    if (code.empty() || !code_.read(fde.begin, code.data(), code.size())) return;
    DescribeOptions options;
    options.read = [this](std::uint64_t address, void* to, std::size_t size) { return code_.read(address, to, size); };
    const std::vector<LandingPad> pads = landing_pads(fde);
    options.landing_pads = pads;
    const auto by_fp = describe(code, fde.begin, architecture_, options);
    options.by_frame_pointer = false;
    const auto by_sp = describe(code, fde.begin, architecture_, options);
    ASSERT_TRUE(by_fp && by_sp);
    ++result.functions;
    result.whole += by_fp->whole();
    result.described += by_fp->prologue.has_value();
    if (!by_fp->prologue) ++result.no_prologue[by_fp->no_prologue == nullptr ? "" : by_fp->no_prologue];
    std::uint64_t pc = fde.begin;
    (void)rows.for_each_row(fde, [&](const FrameRow& row) {
      while (pc < row.end) {
        const unsigned length = length_at(code, pc - fde.begin);
        const std::uint64_t at = pc - fde.begin;
        pc += length & 0xff;
        if (length > 0xff || row.return_address.is(RegisterRule::kUndefined)) continue;
        ++result.instructions;
        const FrameRow *sp = row_at(by_sp->rows, at), *fp = row_at(by_fp->rows, at);
        if (sp == nullptr || fp == nullptr) {
          ++result.verdicts[kUnproved];
          for (const Unproved& stretch : by_sp->unproved)
            if (at >= stretch.begin && at < stretch.end) ++result.reasons[reason_text(stretch.reason)];
          continue;
        }
        Verdict verdict = compare(row, *sp, *fp);
        if (verdict == kWrong && row.begin == fde.begin && row.end == fde.end) verdict = kMute;
        ++result.verdicts[verdict];
        if (verdict == kWrong)
          result.differences.push_back(fmt::format("{:#x} (of {:#x}) {}: CFI {} | code {} | {}", fde.begin + at,
                                                   fde.begin, kVerdictNames[verdict], text(architecture_, row),
                                                   text(architecture_, *sp), text(architecture_, *fp)));
      }
    });
  }

  // Cold parts of functions, some of which begin as functions do, are aligned by GCC to 2.
  [[nodiscard]] bool is_function(std::uint64_t begin) const {
    return code_.start_of(begin) == begin && (architecture_ == Architecture::kAArch64 || begin % 16 == 0);
  }

  // 0x100 is added for padding.
  [[nodiscard]] unsigned length_at(const std::vector<std::byte>& code, std::uint64_t at) const {
    if (architecture_ == Architecture::kAArch64) {
      std::uint32_t word = 0;
      if (code.size() - at >= 4) std::memcpy(&word, &code[at], 4);
      return word == 0xd503201f || word == 0 ? 0x104 : 4;
    }
    ZydisDecodedInstruction info;
    if (!ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&decoder_, nullptr, &code[at], code.size() - at, &info)))
      return 0x101;
    return info.length + (info.mnemonic == ZYDIS_MNEMONIC_NOP ? 0x100u : 0);
  }

  test::ElfCode code_;
  Architecture architecture_ = Architecture::kX86_64;
  ZydisDecoder decoder_;
};

void report(const std::string& name, const Sweep& sweep) {
  const auto share = [&](std::size_t count) {
    return 100.0 * static_cast<double>(count) / static_cast<double>(std::max<std::size_t>(sweep.instructions, 1));
  };
  fmt::print("{}: {} functions, {} whole, {} with a prologue; {} instructions\n", name, sweep.functions, sweep.whole,
             sweep.described, sweep.instructions);
  for (int i = 0; i < kVerdicts; ++i)
    fmt::print("  {:48} {:9} {:8.4f}%\n", kVerdictNames[i], sweep.verdicts[i], share(sweep.verdicts[i]));
  for (const auto& [reason, count] : sweep.reasons) fmt::print("    unproved: {:42} {:8}\n", reason, count);
  for (const auto& [reason, count] : sweep.no_prologue) fmt::print("    no prologue: {:54} {:8}\n", reason, count);
  const bool all = std::getenv("WINDLASS_SWEEP_ALL") != nullptr;
  for (std::size_t i = 0; i < sweep.differences.size() && (all || i < 20); ++i)
    fmt::print("  {}\n", sweep.differences[i]);
}

// The shares that must be reached; nothing may differ. Left out are rows of the C libraries that are not those of the
// code's own frame: longjmp and setcontext count from the context to which they go. Left out are also functions with
// one row that push all the same (__mpn_mul_1). Not proved there: assembly with jump tables of its own, and printf's
// computed jumps.
struct Goal {
  const char* path;
  double proved, with_prologue;  // of instructions, of functions
  friend void PrintTo(const Goal& goal, std::ostream* out) { *out << goal.path; }
};
const Goal kGoals[] = {{"/usr/lib/x86_64-linux-gnu/libstdc++.so.6", 0.998, 0.998},
                       {"/usr/lib/x86_64-linux-gnu/libc.so.6", 0.93, 0.98},
                       {"/usr/aarch64-linux-gnu/lib/libstdc++.so.6", 0.998, 0.998},
                       {"/usr/aarch64-linux-gnu/lib/libc.so.6", 0.96, 0.98}};

class DescribeVsCfi : public testing::TestWithParam<Goal> {};

TEST_P(DescribeVsCfi, EveryInstruction) {
  const Goal& goal = GetParam();
  Library library;
  if (!library.open(goal.path)) GTEST_SKIP() << "SKIPPED: " << goal.path << " is not on this machine";
  const Sweep sweep = library.sweep(test::stride(17));
  report(goal.path, sweep);
  const auto instructions = static_cast<double>(sweep.instructions);
  ASSERT_GT(sweep.functions, 100u);
  EXPECT_GE(1 - static_cast<double>(sweep.verdicts[kUnproved]) / instructions, goal.proved);
  EXPECT_GE(static_cast<double>(sweep.described), goal.with_prologue * static_cast<double>(sweep.functions));
  EXPECT_EQ(sweep.verdicts[kWrong], 0u);
  EXPECT_LE(static_cast<double>(sweep.verdicts[kOtherBase] + sweep.verdicts[kMute]), 0.01 * instructions);
  // On ways that only meet where the program ends.
  EXPECT_LE(static_cast<double>(sweep.verdicts[kLost]), 0.001 * instructions);
}

// Any other library: WINDLASS_SWEEP_FILE=FILE.
TEST(DescribeVsCfiOf, ChosenFile) {
  const char* const path = std::getenv("WINDLASS_SWEEP_FILE");
  if (path == nullptr) return;
  Library library;
  ASSERT_TRUE(library.open(path));
  report(path, library.sweep(test::stride(17)));
}

INSTANTIATE_TEST_SUITE_P(Libraries, DescribeVsCfi, testing::ValuesIn(kGoals), [](const auto& goal) {
  const std::string path = goal.param.path;
  return std::string(path.find("aarch64") != std::string::npos ? "aarch64_" : "x86_64_") +
         (path.find("++") != std::string::npos ? "libstdcxx" : "libc");
});

}  // namespace
}  // namespace windlass
