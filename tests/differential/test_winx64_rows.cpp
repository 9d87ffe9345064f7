// Rows compared with the unwinder at every instruction of real functions, over memory of which every word is known.
// test_winx64_truth shows that the unwinder itself is right.
#include <algorithm>
#include <string>

#include <Zydis/Zydis.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "formats/winx64/exec.h"
#include "formats/winx64/instruction_length.h"
#include "formats/winx64/lower.h"
#include "support/known_unwind.h"
#include "support/pe_corpora.h"
#include "support/same_rows.h"
#include "walk/apply.h"

namespace windlass {
namespace {

struct HashedMemory {
  bool read(std::uint64_t address, void* to, std::size_t size) const {
    const std::uint64_t value = (address ^ 0x5bd1'e995) * 0x9e37'79b9'7f4a'7c15;
    std::memcpy(to, &value, std::min(size, sizeof value));
    return true;
  }
};

struct Tally {
  std::size_t functions = 0, rows = 0, instructions = 0, without_row = 0, different = 0;
  std::size_t otherwise_known = 0;  // unwound otherwise once the pc has been met
  std::size_t reached = 0;          // instructions that the linear decoding does not see
  std::vector<std::string> first;
};

Registers frame_at(std::uint64_t pc) {
  Registers frame(Architecture::kX86_64);
  for (unsigned i = 0; i < 16; ++i) frame.set(i, 0x2000'0000 + 0x10'0000 * i);
  frame.set_sp(0x1000'0000);
  frame.set_pc(CodeAddress::instruction(pc));
  return frame;
}

// Empty: they agree.
std::string difference(const FrameRow& row, const Registers& frame, const winx64::Unwound& unwound,
                       const winx64::SavedAddresses& saved) {
  Registers caller;
  const auto status = walk::apply(row, HashedMemory(), walk::ApplyContext{0, 0, false}, frame, caller, nullptr);
  if (!status.ok()) return status.error.text();
  std::string what;
  if (caller.pc() != unwound.caller.pc()) what += " rip";
  if (caller.sp() != unwound.caller.sp()) what += " rsp";
  for (const unsigned reg : {3U, 5U, 6U, 7U, 12U, 13U, 14U, 15U}) {
    const RegisterNumber number = winx64::dwarf_number(reg);
    if (caller.get(number) != unwound.caller.get(number)) what += fmt::format(" {}", winx64::register_name(reg));
  }
  for (unsigned i = 6; i < 16; ++i) {
    const RegisterRule* rule = row.registers.find(static_cast<RegisterNumber>(17 + i));
    std::uint64_t at = 0;
    if (rule != nullptr) {
      const bool from_cfa = rule->is(RegisterRule::kAtCfa);
      at = (from_cfa ? caller.sp() : frame.get(rule->reg())) + static_cast<std::uint64_t>(std::int64_t{rule->offset()});
    }
    if (at != saved.xmm[i]) what += fmt::format(" xmm{}", i);
  }
  return what;
}

class FileRows {
 public:
  FileRows(std::string name, const image::PeImage& image, Tally& tally)
      : name_(std::move(name)), functions_(image), evaluator_(functions_), tally_(tally) {
    ZydisDecoderInit(&decoder_, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
  }
  [[nodiscard]] const winx64::Functions& functions() const { return functions_; }

  void function(const winx64::RuntimeFunction& entry) {
    rows_.clear();
    winx64::lower(
        functions_, entry, [&](const FrameRow& row) { rows_.push_back(row); }, [](const Error&) {});
    ++tally_.functions;
    tally_.rows += rows_.size();
    keep_rows(entry);
    for (std::size_t i = 1; i < rows_.size(); ++i) ASSERT_LE(rows_[i - 1].end, rows_[i].begin) << name_;
    const ByteView code = functions_.bytes(entry.begin, entry.end - entry.begin);
    seen_.assign(code.size(), false);
    ZydisDecodedInstruction instruction;
    for (std::uint32_t at = 0; at < code.size(); at += instruction.length) {
      if (!decode(code, at, instruction)) break;  // data behind the code
      seen_[at] = true;
      instruction_at(entry, entry.begin + at);
    }
    follow(entry, code);
  }

 private:
  // What is kept from the functions before changes nothing.
  void keep_rows(const winx64::RuntimeFunction& entry) {
    std::size_t count = 0;
    bool same = true;
    const auto compare = [&](const FrameRow& row) {
      same =
          same && count < rows_.size() && test::is_same(row, rows_[count]) && numbers_.fits(row, evaluator_.number());
      ++count;
    };
    evaluator_.for_each_row(entry, compare, [](const Error&) {});
    ASSERT_TRUE(same && count == rows_.size()) << name_ << " " << std::hex << entry.begin;
  }

  bool decode(ByteView code, std::uint32_t at, ZydisDecodedInstruction& instruction) {
    return ZYAN_SUCCESS(
        ZydisDecoderDecodeInstruction(&decoder_, nullptr, code.u8() + at, code.size() - at, &instruction));
  }

  static bool is_padding(ByteView code, std::uint32_t at) {
    const std::uint8_t first = code.u8()[at], second = at + 1 < code.size() ? code.u8()[at + 1] : std::uint8_t{0};
    return first == 0xcc || first == 0x90 || (first == 0x66 && second == 0x90) || (first == 0x0f && second == 0x1f);
  }

  // Data between instructions leads linear decoding astray. So the targets of the function's jumps are looked at as
  // well.
  void follow(const winx64::RuntimeFunction& entry, ByteView code) {
    std::vector<bool> followed(code.size(), false);
    std::vector<std::uint32_t> open = {0};
    ZydisDecodedInstruction instruction;
    while (!open.empty()) {
      std::uint32_t at = open.back();
      open.pop_back();
      while (at < code.size() && !followed[at] && decode(code, at, instruction)) {
        followed[at] = true;
        if (!seen_[at]) {
          ++tally_.reached;
          instruction_at(entry, entry.begin + at);
        }
        const std::uint32_t next = at + instruction.length;
        const auto category = instruction.meta.category;
        const bool branches = category == ZYDIS_CATEGORY_COND_BR || category == ZYDIS_CATEGORY_UNCOND_BR;
        if (branches && instruction.raw.imm[0].is_relative) {
          const std::int64_t target = std::int64_t{next} + instruction.raw.imm[0].value.s;
          if (target >= 0 && target < static_cast<std::int64_t>(code.size()))
            open.push_back(static_cast<std::uint32_t>(target));
        }
        if (category == ZYDIS_CATEGORY_UNCOND_BR || category == ZYDIS_CATEGORY_RET) break;
        // A call that does not come back has padding behind it, and then perhaps a table.
        if (category == ZYDIS_CATEGORY_CALL && next < code.size() && is_padding(code, next)) break;
        if (category == ZYDIS_CATEGORY_INTERRUPT) break;
        at = next;
      }
    }
  }

  // Data that reads as a jump out of the image. The unwinder takes it for a tail call, and rows do not.
  bool is_no_jump(std::uint32_t rva) {
    const ByteView code = functions_.bytes(rva, 5);
    if (code.size() < 5 || code.u8()[0] != 0xe9) return false;
    const std::int64_t target = std::int64_t{rva} + 5 + *code.at<std::int32_t>(1);
    return target < 0 || target >= static_cast<std::int64_t>(functions_.image().image_size());
  }

  void instruction_at(const winx64::RuntimeFunction& entry, std::uint32_t rva) {
    if (is_no_jump(rva)) return;
    const Registers frame = frame_at(functions_.image().image_base() + rva);
    winx64::Unwound unwound;
    winx64::SavedAddresses saved;
    const std::uint64_t base = functions_.image().image_base();
    if (!test::same_when_known(functions_, base, HashedMemory(), frame)) ++tally_.otherwise_known;
    const auto ok = winx64::virtual_unwind(functions_, base, HashedMemory(), frame, unwound, &saved);
    if (!ok) return;
    ++tally_.instructions;
    const auto row =
        std::find_if(rows_.begin(), rows_.end(), [&](const FrameRow& r) { return rva >= r.begin && rva < r.end; });
    FrameRow alone;
    const bool has_row = winx64::row_at(functions_, entry, rva, alone).has_value();
    const std::string of_one = has_row ? difference(alone, frame, unwound, saved) : std::string();
    if (has_row != (row != rows_.end()) || !of_one.empty()) {
      ++tally_.different;
      if (tally_.first.size() < 10)
        tally_.first.push_back(fmt::format("{}: row_at {:#x} in function {:#x}:{}", name_, rva, entry.begin, of_one));
    }
    if (row == rows_.end()) {
      ++tally_.without_row;
      return;
    }
    const std::string what = difference(*row, frame, unwound, saved);
    if (what.empty()) return;
    ++tally_.different;
    if (tally_.first.size() < 10)
      tally_.first.push_back(
          fmt::format("{}: function {:#x}..{:#x} at {:#x}:{}", name_, entry.begin, entry.end, rva, what));
  }

  std::string name_;
  winx64::Functions functions_;
  winx64::RowEvaluator evaluator_;
  test::RowNumbers numbers_;
  Tally& tally_;
  ZydisDecoder decoder_;
  std::vector<FrameRow> rows_;
  std::vector<bool> seen_;
};

TEST(WinX64Rows, SayWhatTheUnwinderDoes) {
  const auto corpora = test::pe_corpora(WINDLASS_PE_CORPORA, 40);
  if (corpora.empty()) GTEST_SKIP() << test::missing_corpora(WINDLASS_PE_CORPORA);
  const std::size_t wanted = test::whole() ? SIZE_MAX : 2000;  // functions a corpus
  for (const test::PeCorpus& corpus : corpora) {
    Tally tally;
    for (const std::string& path : corpus.files) {
      const auto opened = test::open_pe(path);
      ASSERT_TRUE(opened) << path;
      const image::PeImage& image = opened->image;
      FileRows rows(path.substr(path.rfind('/') + 1), image, tally);
      const std::size_t count = rows.functions().size();
      const std::size_t step = std::max<std::size_t>(1, count * corpus.files.size() / wanted);
      for (std::size_t i = 0; i < count; i += step) rows.function(rows.functions().stored(i));
    }
    std::printf(
        "%-8s %zu functions, %zu rows; %zu instructions, %zu of them behind data: %zu different, %zu where no row can "
        "say it\n",
        corpus.name.c_str(), tally.functions, tally.rows, tally.instructions, tally.reached, tally.different,
        tally.without_row);
    for (const std::string& line : tally.first) std::printf("  %s\n", line.c_str());
    EXPECT_EQ(tally.different, 0U);
    EXPECT_EQ(tally.otherwise_known, 0U);
    EXPECT_LT(tally.without_row * 1000, tally.instructions);  // a thousandth; see lower.h for the reasons
  }
}

// The lengths of instructions, from every byte of code, instruction or not. Not those of Knights Corner, which share
// encodings with others' but never ran Windows.
TEST(WinX64Rows, InstructionLengthsAreZydis) {
  const auto corpora = test::pe_corpora(WINDLASS_PE_CORPORA, 40);
  if (corpora.empty()) GTEST_SKIP() << test::missing_corpora(WINDLASS_PE_CORPORA);
  const std::size_t step = test::whole() ? 1 : 61;
  ZydisDecoder decoder;
  ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
  for (const test::PeCorpus& corpus : corpora) {
    std::size_t compared = 0, different = 0;
    std::string first;
    for (const std::string& path : corpus.files) {
      const auto file = MappedFile::open(path);
      ASSERT_TRUE(file);
      const auto image = image::PeImage::parse(file->bytes());
      ASSERT_TRUE(image);
      for (const image::PeSection& section : image->sections()) {
        if (!section.executable()) continue;
        const ByteView code = image->rest_from(section.rva);
        for (std::size_t at = 0; at < code.size(); at += step) {
          const ByteView rest = *code.sub(at, code.size() - at);
          ZydisDecodedInstruction instruction;
          if (!ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&decoder, nullptr, rest.data(), rest.size(), &instruction)))
            continue;
          if (instruction.encoding == ZYDIS_INSTRUCTION_ENCODING_MVEX ||
              (instruction.meta.isa_set >= ZYDIS_ISA_SET_KNCE && instruction.meta.isa_set <= ZYDIS_ISA_SET_KNC_PF_HINT))
            continue;
          ++compared;
          const unsigned length = winx64::instruction_length(rest);
          if (length == instruction.length) continue;
          if (different++ == 0)
            first = fmt::format("{} {:#x}: {} is {}, not {}", path, section.rva + at,
                                ZydisMnemonicGetString(instruction.mnemonic), instruction.length, length);
        }
      }
    }
    std::printf("%-8s %zu instructions, %zu of another length\n", corpus.name.c_str(), compared, different);
    EXPECT_EQ(different, 0U) << first;
  }
}

}  // namespace
}  // namespace windlass
