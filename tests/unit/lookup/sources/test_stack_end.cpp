// Which rows prove that a frame is the outermost one, and what the code of their function says to that.
#include "lookup/sources/stack_end.h"

#include <gtest/gtest.h>

#include "formats/dwarf/constants.h"
#include "lookup/sources/go_source.h"
#include "lookup/table/compile.h"
#include "support/fake_go.h"
#include "support/pe_image_builder.h"
#include "support/walk_target.h"

namespace windlass::sources {
namespace {

using namespace dwarf;
using test::Bytes;
using test::WalkTarget;
using Code = std::vector<std::uint8_t>;

constexpr std::uint64_t kCode = WalkTarget::kCode;
constexpr std::uint8_t kRip = 16;

// Of a function at kCode.
class OneFunction {
 public:
  OneFunction(const Code& code, const Bytes& instructions, Architecture architecture = Architecture::kX86_64) {
    test::CfiBuilder cfi;
    cfi.fde(cfi.cie(WalkTarget(architecture).cie_spec()), kCode, code.size(), instructions);
    const Bytes end{0, 0, 0, 0};
    cfi.raw().add(end);
    // Other code behind it, which returns.
    Code all = code;
    all.insert(all.end(), {0xc3, 0xc3, 0xc3, 0xc3});
    file_ = test::elf_with_eh_frame(architecture, all, kCode, cfi.raw().data(), 0x2000);
    source_ = make_source(ByteView(file_.data(), file_.size()), image::PeLayout::kFile);
  }
  [[nodiscard]] EndProof at_instruction(std::uint64_t offset) const {
    return end_proof(*source_, CodeAddress::instruction(kCode + offset));
  }
  [[nodiscard]] EndProof behind_call(std::uint64_t offset) const {
    return end_proof(*source_, CodeAddress::return_address(kCode + offset));
  }

 private:
  std::vector<std::byte> file_;
  std::unique_ptr<UnwindSource> source_;
};

const Bytes kNoCaller{DW_CFA_undefined, kRip};

TEST(StackEnd, ARowThatSaysThatThereIsNoCallerIsBelievedOfCodeThatDoesNotReturn) {
  const OneFunction start({0x31, 0xed, 0xe8, 0, 0, 0, 0, 0xf4}, kNoCaller);  // xor ebp, ebp; call main; hlt
  EXPECT_EQ(start.behind_call(7), EndProof::kProven);
  EXPECT_EQ(start.at_instruction(0), EndProof::kProven);
  const OneFunction behind({0xc3, 0x31, 0xed, 0xe8, 0, 0, 0, 0, 0xf4},  // ret; and the thread's start, as clone has it
                           {DW_CFA_advance_loc | 1, DW_CFA_undefined, kRip});
  EXPECT_EQ(behind.behind_call(8), EndProof::kProven);
}

TEST(StackEnd, ARowThatSaysThatThereIsNoCallerIsRefutedByAReturn) {
  const OneFunction liar({0x48, 0x83, 0xec, 0x28, 0xe8, 0, 0, 0, 0, 0x48, 0x83, 0xc4, 0x28, 0xc3},
                         {DW_CFA_advance_loc | 4, DW_CFA_def_cfa_offset, 48, DW_CFA_undefined, kRip});
  EXPECT_EQ(liar.behind_call(9), EndProof::kRefuted);
  EXPECT_EQ(liar.at_instruction(4), EndProof::kRefuted);
  const OneFunction repeated({0xe8, 0, 0, 0, 0, 0xf3, 0xc3}, kNoCaller);  // rep ret
  EXPECT_EQ(repeated.behind_call(5), EndProof::kRefuted);
}

TEST(StackEnd, ARowOfAArch64IsRefutedByAReturn) {
  constexpr std::uint8_t kX30 = 30;
  const Code brk{0x00, 0x00, 0x20, 0xd4}, ret{0xc0, 0x03, 0x5f, 0xd6}, retaa{0xff, 0x0b, 0x5f, 0xd6};
  for (const auto& [last, proof] :
       {std::pair{brk, EndProof::kProven}, {ret, EndProof::kRefuted}, {retaa, EndProof::kRefuted}}) {
    Code code{0x01, 0x00, 0x00, 0x94};  // bl
    code.insert(code.end(), last.begin(), last.end());
    const OneFunction function(code, {DW_CFA_undefined, kX30}, Architecture::kAArch64);
    EXPECT_EQ(function.behind_call(4), proof);
  }
}

// sub rsp, N; call; add rsp, 32; jz to the next; pop rbx; ret: the return address is 40 above rsp behind the call.
TEST(StackEnd, AnAddressOfZeroIsRefutedWhereTheCodeHasTheReturnAddressElsewhere) {
  const Code code{0x53, 0x48, 0x83, 0xec, 0x20, 0xe8, 0, 0, 0, 0, 0x48, 0x83, 0xc4, 0x20, 0x74, 0x00, 0x5b, 0xc3};
  const auto with_cfa = [&](std::uint8_t offset) {
    return OneFunction(code, {DW_CFA_advance_loc | 5, DW_CFA_def_cfa_offset, offset});
  };
  EXPECT_EQ(with_cfa(48).behind_call(10), EndProof::kProven);
  EXPECT_EQ(with_cfa(64).behind_call(10), EndProof::kRefuted);
  Code trap = code;
  trap.back() = 0xf4;  // hlt
  EXPECT_EQ(OneFunction(trap, {DW_CFA_advance_loc | 5, DW_CFA_def_cfa_offset, 64}).behind_call(10), EndProof::kProven);
}

// Its compiler puts a return that is never reached behind the call.
TEST(StackEnd, OfGoTheFramesThatItsCompilerMarksAreTheOutermost) {
  const Code code{0x90, 0xe8, 0, 0, 0, 0, 0xc3};  // nop; call; ret
  test::fake_go::Program program;
  const std::uint64_t plain = program.add("main.f", code, {{7, 0}});
  const std::uint64_t marked =
      program.add("runtime.goexit", code, {{7, 0}}, static_cast<std::uint8_t>(runtimes::go::kMarkedOutermost));
  program.add("main.next", Code(16, 0x90), {{16, 0}});
  const GoSource source(program.table(), program.image());
  EXPECT_EQ(end_proof(source, CodeAddress::return_address(marked + 6)), EndProof::kProven);
  EXPECT_EQ(end_proof(source, CodeAddress::return_address(plain + 6)), EndProof::kNone);
}

TEST(StackEnd, ALeafOfWindowsIsNoProof) {
  test::PeImageBuilder builder;
  const std::uint32_t described = builder.text({0x90, 0x90, 0xc3});
  builder.entry(described, builder.next_text(), builder.data(test::UnwindInfoBytes().bytes()));
  const std::uint32_t leaf = builder.text({0x31, 0xc0, 0xc3});  // xor eax, eax; ret
  const auto file = builder.build();
  const auto source = make_source(ByteView(file), image::PeLayout::kFile);
  EXPECT_EQ(end_proof(*source, CodeAddress::instruction(described)), EndProof::kProven);
  EXPECT_EQ(end_proof(*source, CodeAddress::instruction(leaf)), EndProof::kNone);
  // The kernel side's table says the same.
  const auto table = table::compile(*source, [](const Error& error) { ADD_FAILURE() << error.text(); });
  ASSERT_TRUE(table);
  EXPECT_EQ(table->find(described).proof, WL_PROOF_CALLED);
  EXPECT_EQ(table->find(leaf).cfa_kind, WL_CFA_REG);
  EXPECT_EQ(table->find(leaf).proof, WL_PROOF_NO_END);
}

}  // namespace
}  // namespace windlass::sources
