// Written unwind information, executed by the system's RtlVirtualUnwind. Made-up functions run without a processor, and
// in every state the system must find the caller. Left out are cases in which Wine is known to differ (see
// wine_model.h): epilogues that end with a jump, those of chained entries, version 2's, and prologues before their
// SET_FPREG, where Wine takes the frame register's old value for the frame.
#include <gtest/gtest.h>

#include "mapped_image.h"
#include "outcome.h"
#include "support/written_program.h"

namespace windlass {
namespace {

using namespace prologue;

using test::MadeFunction;
using test::MadeRun;
using test::MappedImage;
using test::Outcome;

constexpr std::uint64_t kReturn = 0x1122'3344'5566;

bool is_known_to_differ(const MadeFunction& made, std::uint32_t offset, bool chained, std::uint8_t version) {
  constexpr std::uint32_t kJump = 5;  // bytes
  const auto differs = [&](const Epilogue& epilogue) {
    const std::uint32_t exit = epilogue.undone.empty() ? epilogue.begin : epilogue.undone.back().end;
    return offset >= epilogue.begin && offset < epilogue.end &&
           (chained || version == 2 || epilogue.end - exit == kJump);
  };
  bool found = std::any_of(made.prologue.epilogues.begin(), made.prologue.epilogues.end(), differs);
  for (const prologue::Part& part : made.prologue.parts)
    found = found || std::any_of(part.epilogues.begin(), part.epilogues.end(), differs);
  return found;
}

bool is_before_frame_pointer(const winx64::UnwindInfo& info, std::uint32_t offset) {
  bool before = false;
  (void)winx64::each_code(info, [&](const winx64::UnwindCode& code) {
    before = before || (code.operation == winx64::Operation::kSetFpreg && offset < code.offset);
  });
  return before;
}

class Judge {
 public:
  explicit Judge(const MappedImage& mapped) : mapped_(mapped) {}

  void function(const MadeFunction& made, std::uint32_t rva, std::uint8_t version) {
    MadeRun call;
    for (auto& value : call.state.integer) value = random_();
    for (auto& value : call.state.xmm) value = {random_(), random_()};
    call.state.integer[winx64::kRsp] = stack_.middle();
    call.stack.write(stack_.middle(), kReturn);
    caller_ = call.state;
    caller_.integer[winx64::kRsp] += 8;
    run_made(made, call, [&](std::uint32_t offset, const MadeRun& run) {
      const auto entry = mapped_.functions().find(rva + offset);
      if (!entry) return;
      const auto info = winx64::info_of(mapped_.functions(), *entry);
      if (!info || is_known_to_differ(made, offset, info->chained.has_value(), version)) return;
      if (is_before_frame_pointer(*info, rva + offset - entry->begin)) return;
      check(*entry, rva + offset, run);
    });
  }
  [[nodiscard]] std::size_t states() const { return states_; }
  [[nodiscard]] std::size_t wrong() const { return wrong_; }

 private:
  void check(const winx64::RuntimeFunction& entry, std::uint32_t rva, const MadeRun& run) {
    ++states_;
    CONTEXT context{};
    context.ContextFlags = CONTEXT_FULL;
    context.Rip = mapped_.base() + rva;
    for (unsigned i = 0; i < 16; ++i) {
      (&context.Rax)[i] = run.state.integer[i];
      (&context.Xmm0)[i] = {run.state.xmm[i][0], static_cast<LONGLONG>(run.state.xmm[i][1])};
    }
    run.stack.each([](std::uint64_t address, std::uint64_t value) {
      std::memcpy(reinterpret_cast<void*>(address), &value, sizeof value);
    });
    std::memset(reinterpret_cast<void*>(run.state.rsp() - 512), 0xcc, 512);  // as an interrupt may leave it
    const Outcome outcome = test::system_unwind(mapped_.base(), entry, context);
    std::string wrong = outcome.rip == kReturn ? "" : " rip";
    for (unsigned i = 0; i < 16; ++i) {
      if ((i == winx64::kRsp || winx64::is_preserved(i)) && outcome.integer[i] != caller_.integer[i])
        wrong += " " + std::string(winx64::register_name(i));
      if (i >= 6 && (outcome.xmm[i].Low != caller_.xmm[i][0] ||
                     static_cast<std::uint64_t>(outcome.xmm[i].High) != caller_.xmm[i][1]))
        wrong += " xmm" + std::to_string(i);
    }
    if (!wrong.empty() && ++wrong_ <= 5) ADD_FAILURE() << "RVA " << std::hex << rva << ":" << wrong;
  }

  const MappedImage& mapped_;
  test::MadeUpStack stack_;
  std::mt19937_64 random_{11};
  test::X64State caller_;
  std::size_t states_ = 0, wrong_ = 0;
};

TEST(Written, SystemFindsTheCaller) {
  for (const std::uint8_t version : {1, 2}) {
    const test::WrittenProgram program(version, true, 2000);
    const auto image = image::PeImage::parse(program.file());
    ASSERT_TRUE(program.ok() && image);
    const MappedImage mapped(*image);
    ASSERT_TRUE(mapped.ok());
    Judge judge(mapped);
    for (std::size_t i = 0; i < program.functions().size(); ++i)
      judge.function(program.functions()[i], program.begin(i), version);
    std::printf("version %d: %zu functions, %zu states, %zu wrong\n", version, program.functions().size(),
                judge.states(), judge.wrong());
    EXPECT_EQ(judge.wrong(), 0U);
    EXPECT_GT(judge.states(), 10000U);
  }
}

}  // namespace
}  // namespace windlass
