// The first instructions of a process, and a thread in sigreturn: what tells them from other code.
#include "certainty.h"

namespace windlass {
namespace {

using test::Certainty, test::Code;
using test::kFunction, test::kStack;

// At sp: argc, argv, 0, the environment, 0; then the strings, above and ascending (psABI figure 3.9).
class Arguments : public Certainty {
 protected:
  static constexpr std::uint64_t kFar = std::uint64_t{64} << 20;  // as far as strings are believed to lie
  Arguments() {
    put(kFunction, {0xeb, 0xfe});  // an endless loop: code that never returns
    lay_out(2, {kStack + 0x800, kStack + 0x810}, {kStack + 0x820});
  }
  void lay_out(std::uint64_t count, const std::vector<std::uint64_t>& strings,
               const std::vector<std::uint64_t>& environment) {
    std::uint64_t at = kStack;
    for (std::uint64_t i = 0; i < 40; ++i) word(kStack + 8 * i, 0);
    word(at, count);
    for (const std::uint64_t string : strings) word(at += 8, string);
    at += 8;
    for (const std::uint64_t string : environment) word(at += 8, string);
  }
  bool is_start(std::uint64_t sp = kStack) {
    Registers registers(Architecture::kX86_64);
    registers.set_pc(CodeAddress::instruction(kFunction));
    registers.set_sp(sp);
    registers.set(x86_64::kRbp, 0x1234);
    StackWalker walker(space_, registers);
    EXPECT_FALSE(walker.step());
    return walker.end_reason() == WalkEnd::kComplete;
  }
};

TEST_F(Arguments, AreWhereTheKernelHasPutThem) {
  EXPECT_TRUE(is_start());
  lay_out(1, {kStack + 0x800}, {});
  EXPECT_TRUE(is_start()) << "no environment";
  lay_out(0, {}, {kStack + 0x800});
  EXPECT_FALSE(is_start()) << "no program has no name";
  lay_out(1, {kStack + 0x800, kStack + 0x810}, {kStack + 0x820});
  EXPECT_FALSE(is_start()) << "no null behind the last";
  lay_out((1 << 20) + 1, {kStack + 0x800}, {});
  EXPECT_FALSE(is_start());
  lay_out(std::uint64_t{1} << 61, {kStack + 0x800}, {});
  EXPECT_FALSE(is_start()) << "it wraps around";
}

TEST_F(Arguments, StringsLieAboveAndAscend) {
  const std::uint64_t behind = kStack + 8 * 4;  // argc, two arguments and a null
  lay_out(2, {behind, kStack + 0x810}, {kStack + 0x820});
  EXPECT_FALSE(is_start()) << "the environment is there";
  lay_out(2, {behind + 1, behind + 2}, {behind + 3});
  EXPECT_TRUE(is_start());
  lay_out(2, {behind + 2, behind + 2}, {behind + 3});
  EXPECT_FALSE(is_start());
  lay_out(2, {behind + 1, behind + 2}, {behind + 2});
  EXPECT_FALSE(is_start());
  lay_out(2, {kStack + kFar - 1, kStack + kFar}, {});
  EXPECT_TRUE(is_start());
  lay_out(2, {kStack + kFar - 1, kStack + kFar + 1}, {});
  EXPECT_FALSE(is_start()) << "too far";
  lay_out(2, {kStack + kFar - 2, kStack + kFar - 1}, {kStack + kFar});
  EXPECT_TRUE(is_start());
  lay_out(2, {kStack + kFar - 2, kStack + kFar - 1}, {kStack + kFar + 1});
  EXPECT_FALSE(is_start());
}

TEST_F(Arguments, SpIsWhereTheKernelAlignsIt) {
  for (std::uint64_t i = 0; i < 8; ++i) {
    std::uint64_t value = 0;
    ASSERT_TRUE(memory_->read(kStack + 8 * (7 - i), &value, sizeof value));
    word(kStack + 8 * (8 - i), value);  // all one word farther up
  }
  EXPECT_FALSE(is_start(kStack + 8));
  EXPECT_FALSE(is_start(kStack));
}

TEST_F(Arguments, EachWordIsNeeded) {
  for (std::uint64_t i = 0; i < 6; ++i) {
    const auto whole = memory_->bytes;
    for (std::uint64_t byte = 0; byte < 8; ++byte) memory_->bytes.erase(kStack + 8 * i + byte);
    EXPECT_EQ(is_start(), i == 5) << i << ": what stands behind the first word of the environment does not count";
    memory_->bytes = whole;
  }
}

// rt_sigreturn: the kernel has the pc behind the system call. While that is under way, rax is -ENOSYS (arch/x86/entry).
TEST_F(Certainty, AThreadInSigreturnIsStillAtTheCall) {
  const Code trampoline{0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05};  // mov rax, 15; syscall
  put(kFunction, trampoline);
  const auto first_pc = [&](std::uint64_t offset, std::uint64_t rax) {
    Registers registers(Architecture::kX86_64);
    registers.set_pc(CodeAddress::instruction(kFunction + offset));
    registers.set_sp(kStack);
    registers.set(x86_64::kRax, rax);
    return StackWalker(space_, registers).frame().pc().value() - kFunction;
  };
  constexpr std::uint64_t kUnderWay = ~std::uint64_t{37};  // -38
  EXPECT_EQ(first_pc(9, kUnderWay), 7u);
  EXPECT_EQ(first_pc(9, kUnderWay + 1), 9u);
  EXPECT_EQ(first_pc(9, 15), 9u);
  EXPECT_EQ(first_pc(7, kUnderWay), 7u);
  put(kFunction + 3, {0x10});  // another system call
  EXPECT_EQ(first_pc(9, kUnderWay), 9u);
}

}  // namespace
}  // namespace windlass
