// What is written for functions compared with the processor: Unicorn runs their code, and at every instruction the
// caller must be the same by virtual_unwind, by the rows of what was written, by those of its DWARF, and by the rows of
// the Prologue.
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "formats/winarm64/exec.h"
#include "formats/winarm64/frame_codes.h"
#include "formats/winarm64/lower.h"
#include "support/arm64_emulator.h"
#include "support/arm64_prologues.h"
#include "support/random_arm64_prologue.h"
#include "support/written_frames.h"
#include "walk/apply.h"

namespace windlass {
namespace {

using namespace prologue;

using test::Arm64Emulator;

struct Truth {
  std::size_t functions = 0, entries = 0, packed = 0, states = 0, epilogues = 0, wrong = 0;
  std::string first_wrong;
};

class Judge {
 public:
  Judge(const winarm64::Functions& functions, Arm64Emulator& emulator, Truth& truth)
      : functions_(functions), evaluator_(functions), emulator_(emulator), truth_(truth) {}

  void check(const test::Arm64PrologueImage::Function& function) {
    function_ = &function;
    ++truth_.functions;
    truth_.entries += function.entries.size();
    for (const winarm64::RuntimeFunction& entry : function.entries) truth_.packed += entry.packed() ? 1 : 0;
    const auto rows = rows_of(function.prologue);
    if (!rows) return wrong(0, rows.error().text());
    rows_ = *rows;
    frames_ = test::written_frames(function.prologue);
    Registers state = entry_ = emulator_.call(emulator_.base() + function.begin);
    good_ = true;
    const Prologue& f = function.prologue;
    auto part = f.parts.begin();
    auto epilogue = f.epilogues.begin();
    while (good_ && (part != f.parts.end() || epilogue != f.epilogues.end())) {
      if (epilogue == f.epilogues.end() || (part != f.parts.end() && part->begin < epilogue->begin))
        run_part(*part++, state);
      else
        run_epilogue(*epilogue++, state, true);
    }
    run_to(f.code_size, state);
  }

 private:
  [[nodiscard]] std::uint32_t offset_of(const Registers& state) const {
    return static_cast<std::uint32_t>(state.pc().value() - emulator_.base() - function_->begin);
  }
  void jump(Registers& state, std::uint32_t offset) const {
    state.set_pc(CodeAddress::instruction(emulator_.base() + function_->begin + offset));
  }

  void run_part(const prologue::Part& part, Registers& state) {
    run_to(part.begin, state);
    const Registers around = state;
    for (const Epilogue& epilogue : part.epilogues) run_epilogue(epilogue, state, false);
    run_to(part.end, state);
    Registers behind = around;
    jump(behind, part.end);
    state = behind;
  }

  // Up to its last instruction and through it; then the body goes on behind it as it was in front.
  void run_epilogue(const Epilogue& epilogue, Registers& state, bool returns) {
    run_to(epilogue.begin, state);
    Registers behind = state;
    run_to(epilogue.end - 4, state);
    if (offset_of(state) < epilogue.end) step(state);
    if (good_ && returns && !(state.pc().value() == entry_.get(30) && state.sp() == entry_.sp()))
      wrong(epilogue.begin, "epilogue does not return: the test's code is wrong");
    ++truth_.epilogues;
    jump(behind, epilogue.end);
    state = behind;
  }

  // Bodies of any length are alike: of a long one, both ends and what is near the ends of entries.
  void run_to(std::uint32_t end, Registers& state) {
    std::uint32_t steps = 0;
    while (good_ && offset_of(state) < end) {
      step(state);
      if (++steps < 200 || end - offset_of(state) < 800 || offset_of(state) < function_->prologue.prologue_end())
        continue;
      for (const winarm64::RuntimeFunction& entry : function_->entries)
        for (std::uint32_t near = entry.begin - function_->begin - 16, i = 0; i < 8; ++i, near += 4)
          if (near > offset_of(state) && near < end) judge_at(near, state);
      for (std::uint32_t at = offset_of(state); at < end && good_; at += 4001 * 4) judge_at(at, state);
      jump(state, end - 400);
    }
  }
  void judge_at(std::uint32_t offset, Registers state) {
    jump(state, offset);
    judge(state);
  }
  void step(Registers& state) {
    judge(state);
    const std::uint32_t offset = offset_of(state);
    if (good_ && !emulator_.step(state)) wrong(offset, "instruction faults");
  }

  void wrong(std::uint32_t offset, const std::string& what) {
    good_ = false;
    if (truth_.wrong++ == 0)
      truth_.first_wrong =
          fmt::format("function {} at {:#x}+{:#x}: {}", truth_.functions - 1, function_->begin, offset, what);
  }

  void judge(const Registers& state) {
    ++truth_.states;
    const std::uint32_t offset = offset_of(state);
    winarm64::ExecContext context;
    context.image_base = emulator_.base();
    Registers caller(Architecture::kAArch64);
    const auto unwound = winarm64::virtual_unwind(functions_, context, emulator_, state, caller);
    if (!unwound) return wrong(offset, unwound.error().text());
    compare(offset, "executed", caller);
    const auto apply_of = [&](const std::vector<FrameRow>& rows, const char* which) {
      const auto row = std::upper_bound(rows.begin(), rows.end(), offset,
                                        [](std::uint32_t at, const FrameRow& of) { return at < of.end; });
      if (row == rows.end()) return wrong(offset, "no row of the model, or of its DWARF");
      apply(offset, which, *row, state);
    };
    apply_of(rows_, "the model's row");
    apply_of(frames_, "the DWARF's row");
    if (unwound->place == winarm64::Place::kLeaf) return;
    FrameRow row;
    const auto lowered = evaluator_.row_at(unwound->function, function_->begin + offset, row);
    if (!lowered) return wrong(offset, lowered.error().text());
    apply(offset, "the written row", row, state);
  }
  void apply(std::uint32_t offset, const char* which, const FrameRow& row, const Registers& state) {
    walk::ApplyContext context;
    context.pac_mask = winarm64::ExecContext().pac_mask;
    context.slots_below_sp_are_dead = false;
    Registers caller(Architecture::kAArch64);
    const auto status = walk::apply(row, emulator_, context, state, caller, nullptr);
    if (!status.ok()) return wrong(offset, std::string(which) + ": " + status.error.text());
    compare(offset, which, caller);
  }
  void compare(std::uint32_t offset, const char* which, const Registers& caller) {
    const auto same = [&](RegisterNumber reg, std::uint64_t expected) {
      if (good_ && (!caller.has(reg) || caller.get(reg) != expected))
        wrong(offset, fmt::format("{}: register {} is {:#x}, not {:#x}", which, reg,
                                  caller.has(reg) ? caller.get(reg) : 0, expected));
    };
    if (caller.pc().value() != entry_.get(30) && good_)
      wrong(offset, fmt::format("{}: pc is {:#x}, not {:#x}", which, caller.pc().value(), entry_.get(30)));
    same(31, entry_.sp());
    for (RegisterNumber reg = 19; reg < 30; ++reg) same(reg, entry_.get(reg));
    for (RegisterNumber reg = 72; reg < 80; ++reg) same(reg, entry_.get(reg));
  }

  const winarm64::Functions& functions_;
  winarm64::RowEvaluator evaluator_;
  Arm64Emulator& emulator_;
  Truth& truth_;
  const test::Arm64PrologueImage::Function* function_ = nullptr;
  std::vector<FrameRow> rows_, frames_;
  Registers entry_{Architecture::kAArch64};
  bool good_ = true;
};

Truth judge_all(const char* name, test::Arm64PrologueImage& made) {
  Truth truth;
  const std::vector<std::uint8_t> bytes = made.build();
  const auto image = image::PeImage::parse(ByteView(bytes));
  EXPECT_TRUE(image && image->problems().empty());
  if (!image) return truth;
  const winarm64::Functions functions(*image);
  Arm64Emulator emulator(*image);
  EXPECT_TRUE(emulator.ok());
  Judge judge(functions, emulator, truth);
  for (const auto& function : made.functions()) judge.check(function);
  for (std::size_t i = 0; i < functions.size(); ++i) {
    winarm64::Expansion storage;
    const auto record = winarm64::read_record(*image, functions.stored(i), storage);
    EXPECT_TRUE(record);
    if (record)
      winarm64::check_record(*record, [&](const Error& error) { ADD_FAILURE() << name << ": " << error.text(); });
  }
  std::printf("%-10s %zu functions, %zu entries (%zu packed), %zu epilogues, %zu states, %zu wrong\n", name,
              truth.functions, truth.entries, truth.packed, truth.epilogues, truth.states, truth.wrong);
  EXPECT_EQ(truth.wrong, 0U) << name << ": " << truth.first_wrong;
  return truth;
}

TEST(WinArm64Write, RandomFunctions) {
  for (const auto fragments : {winarm64::Fragments::kWhenNeeded, winarm64::Fragments::kWhenSmaller}) {
    test::Arm64PrologueImage made;
    const bool needed = fragments == winarm64::Fragments::kWhenNeeded;
    for (std::uint64_t seed = needed ? 0 : 10000; seed < (needed ? 1500 : 10500); ++seed) {
      test::RandomArm64Prologue random(seed);
      const Prologue prologue = random.make();
      winarm64::WriteOptions options;
      options.fragments = fragments;
      options.leaf_entries = seed % 5 == 0;
      const auto done = made.add(prologue, options);
      ASSERT_TRUE(done) << seed << ": " << done.error().text();
    }
    const Truth truth = judge_all("random", made);
    EXPECT_GT(truth.states, 20000U);
    EXPECT_GT(truth.packed, 20U);
  }
}

// The function that a packed entry stands for, with a body of four instructions; none where the fields contradict each
// other.
std::optional<Prologue> canonical(winarm64::PackedFields fields) {
  fields.length = 4 * 40;
  winarm64::Expansion expansion;
  if (!expansion.expand(fields, false, 0)) return std::nullopt;
  winarm64::UnwindRecord record;
  record.codes = expansion.codes();
  record.single_epilogue = true;
  record.epilogue_index = expansion.epilogue_index();
  record.length = 4 * (winarm64::count_instructions(record.codes, 0) + 5 +
                       winarm64::count_instructions(record.codes, record.epilogue_index));
  const auto prologue = winarm64::prologue_of(record);
  EXPECT_TRUE(prologue) << prologue.error().text();
  return prologue ? std::optional(*prologue) : std::nullopt;
}

// Every CR, RegI and RegF, frames of each way to allocate what is left: written packed, with just these fields. With H,
// which Windows unwinds in another way than its page says: never packed, and unwound right.
TEST(WinArm64Write, EveryPackedForm) {
  test::Arm64PrologueImage made, homed;
  std::size_t forms = 0;
  for (std::uint8_t cr = 0; cr < 4; ++cr)
    for (const bool h : {false, true})
      for (std::uint8_t reg_i = 0; reg_i <= 10; ++reg_i)
        for (std::uint8_t reg_f = 0; reg_f < 8; ++reg_f)
          for (const std::uint32_t more : {0, 16, 496, 512, 528, 4080, 4096, 6144}) {
            const bool saves = reg_i > 0 || reg_f > 0 || cr == 1;
            if (h && !saves) continue;  // the same as without: nothing is homed in the prologue
            const std::uint32_t registers = reg_i + (cr == 1 ? 1U : 0) + (reg_f > 0 ? reg_f + 1U : 0);
            winarm64::PackedFields fields{0, reg_f, reg_i, h, cr, (registers + (h ? 8 : 0) + 1) / 2 * 16 + more};
            const auto prologue = canonical(fields);
            if (!prologue) continue;
            fields.length = prologue->code_size;
            const auto word = winarm64::encode_packed(fields, false);
            const auto written = winarm64::write(*prologue);
            ASSERT_TRUE(word && written) << written.error().text();
            if (prologue->ops.empty()) {
              EXPECT_TRUE(written->entries.empty());
              continue;
            }
            ASSERT_EQ(written->entries.size(), 1U);
            EXPECT_EQ(written->entries[0].data == *word, !h) << forms;
            EXPECT_EQ(written->bytes.empty(), !h);
            // No instruction takes back stp x29,lr,[sp,#-512]!.
            if (++forms % 5 != 0 || (cr >= 2 && more == 512)) continue;
            ASSERT_TRUE((h ? homed : made).add(*prologue));
          }
  EXPECT_GT(forms, 2500U);
  EXPECT_EQ(judge_all("homed", homed).packed, 0U);
  std::printf("%zu packed forms written\n", forms);
  EXPECT_EQ(judge_all("packed", made).packed, made.functions().size());
}

// Code behind the only epilogue: the entry of all of it is packed if it is cut there.
TEST(WinArm64Write, PackedFragments) {
  test::Arm64PrologueImage made;
  for (const std::uint32_t tail : {4U, 40U, 8188U, 8192U, 12000U}) {
    Prologue prologue = *canonical({0, 3, 4, false, 2, 128});
    prologue.code_size += tail;
    const auto whole = winarm64::write(prologue);
    ASSERT_TRUE(whole);
    EXPECT_EQ(whole->entries.size(), 1U);
    const auto cut = winarm64::write(prologue, {.fragments = winarm64::Fragments::kWhenSmaller});
    ASSERT_TRUE(cut);
    EXPECT_EQ(cut->entries.size(), tail <= 8188 ? 2U : 3U);
    EXPECT_TRUE(cut->bytes.empty());
    for (std::size_t i = 0; i < cut->entries.size(); ++i)
      EXPECT_EQ(cut->entries[i].kind(), i == 0 ? winarm64::EntryKind::kPacked : winarm64::EntryKind::kPackedFragment);
    ASSERT_TRUE(made.add(prologue, {.fragments = winarm64::Fragments::kWhenSmaller}));
  }
  judge_all("flag 2", made);
}

Prologue framed() {
  Prologue f{.architecture = Architecture::kAArch64, .code_size = 40};
  f.ops = {{4, SignReturnAddress{}},  {8, Save{19, 0, 48, 20}},      {12, Save{21, 16}},
           {16, Save{29, 32, 0, 30}}, {20, SetFramePointer{29, 32}}, {24, Allocate{4096}}};
  return f;
}

// More than the header counts (31), more than one record can (65,535), and more different ones than codes have room.
TEST(WinArm64Write, ManyEpilogues) {
  test::Arm64PrologueImage made;
  for (const unsigned count : {31U, 32U, 33U, 500U}) {
    Prologue f = framed();
    std::uint32_t at = 40;
    for (unsigned i = 0; i < count; ++i) {
      f.epilogues.push_back(mirrored(f, at));
      at = f.epilogues.back().end + i % 3 * 4;
    }
    f.code_size = at + 8;
    ASSERT_TRUE(made.add(f));
  }
  // Each with another number of instructions that do nothing: no two share all their codes.
  Prologue f = framed();
  std::uint32_t at = 40;
  for (std::uint32_t i = 0; i < 60; ++i) {
    Epilogue epilogue = mirrored(f, at);
    for (std::size_t k = 2; k < epilogue.undone.size(); ++k) epilogue.undone[k].end += 4 * i;
    epilogue.end += 4 * i;
    at = epilogue.end + 4;
    f.epilogues.push_back(epilogue);
  }
  f.code_size = at;
  ASSERT_TRUE(made.add(f));
  EXPECT_GT(made.functions().back().entries.size(), 1U);
  const auto whole = winarm64::write(f, {.fragments = winarm64::Fragments::kNever});
  ASSERT_FALSE(whole);
  EXPECT_EQ(whole.error().code, ErrorCode::kLimit);
  judge_all("epilogues", made);
}

// Code between the last pop and the return, as HotSpot has for its safepoints: a nop for each instruction, or none
// where that is too much, or longer than an entry more.
TEST(WinArm64Write, EpiloguesThatRunOn) {
  test::Arm64PrologueImage made;
  for (const std::uint32_t behind : {0U, 8U})
    for (const std::uint32_t more : {4U, 40U, 400U, 12000U}) {
      Prologue f = framed();
      f.epilogues = {mirrored(f, 40)};
      f.epilogues[0].end += more;
      f.code_size = f.epilogues[0].end + behind;
      const auto plain = winarm64::write(f);
      ASSERT_TRUE(plain) << plain.error().text();
      EXPECT_EQ(plain->entries.size(), more == 12000 && behind != 0 ? 2U : 1U) << more;
      ASSERT_TRUE(made.add(f));
      const auto smaller = winarm64::write(f, {.fragments = winarm64::Fragments::kWhenSmaller});
      ASSERT_TRUE(smaller);
      EXPECT_LE(smaller->bytes.size() + 8 * smaller->entries.size(), plain->bytes.size() + 8 * plain->entries.size());
      if (more >= 400 && behind == 0) {
        EXPECT_LT(smaller->bytes.size(), 40U) << more;
      }
      ASSERT_TRUE(made.add(f, {.fragments = winarm64::Fragments::kWhenSmaller}));
      EXPECT_EQ(winarm64::write(f, {.fragments = winarm64::Fragments::kNever}).has_value(), more < 12000);
    }
  judge_all("run on", made);
}

// Over 1 MiB: with the prologue in the first fragment and epilogues in all, some where the cut would be.
TEST(WinArm64Write, LargeFunctions) {
  test::Arm64PrologueImage made;
  Prologue f = framed();
  f.code_size = (1U << 20) * 3 + 400;
  for (const std::uint32_t at : {1000U, 0xffffcU - 8, 0x1f0000U, 0x2fffe0U, (1U << 20) * 3})
    f.epilogues.push_back(mirrored(f, at));
  ASSERT_TRUE(made.add(f));
  EXPECT_EQ(made.functions().back().entries.size(), 4U);

  // Without any: the fragments in the middle are alike and share one record.
  f.epilogues.clear();
  f.code_size = 0xffffc * 4;
  const auto plain = winarm64::write(f);
  ASSERT_TRUE(plain);
  ASSERT_EQ(plain->entries.size(), 4U);
  EXPECT_EQ(plain->entries[1].data, plain->entries[2].data);
  EXPECT_EQ(plain->entries[2].data, plain->entries[3].data);
  EXPECT_NE(plain->entries[0].data, plain->entries[1].data);
  ASSERT_TRUE(made.add(f));

  // A prologue that pauses for long: no record has room for as many nops.
  Prologue pausing = framed();
  for (prologue::Op& op : pausing.ops)
    if (op.end > 12) op.end += 8000;
  pausing.code_size = 12000;
  pausing.epilogues = {mirrored(pausing, 9000)};
  ASSERT_TRUE(made.add(pausing));
  EXPECT_EQ(made.functions().back().entries.size(), 2U);
  judge_all("large", made);

  const auto whole = winarm64::write(f, {.fragments = winarm64::Fragments::kNever});
  ASSERT_FALSE(whole);
  EXPECT_EQ(whole.error().code, ErrorCode::kLimit);
}

}  // namespace
}  // namespace windlass
