// The instructions that the compiler is written in, as x86-64 and AArch64 have them (machine_x86_64.cpp,
// machine_aarch64.cpp). What is computed is in kValue, the other one of two operands in kOther.
#pragma once

#include <asmjit/asmjit.h>
#if defined(__aarch64__)
#include <asmjit/arm/a64assembler.h>
#endif
#include <windlass/format/winarm64.h>
#include <windlass/format/winx64.h>
#include <windlass/prologue.h>

#include <cstdint>
#include <vector>

namespace lilt {

#if defined(__aarch64__)
namespace target = asmjit::a64;
#else
namespace target = asmjit::x86;
#endif
using Reg = target::Gp;
using Label = asmjit::Label;

// A register that calls preserve, and DWARF's number of it.
struct Preserved {
  Reg reg;
  windlass::RegisterNumber dwarf;
};

// None of kValue, kOther and kTarget is one of the first two arguments, but kValue may be the first.
#if defined(__aarch64__)
inline const Reg kStack = target::sp, kValue = target::x0, kOther = target::x9, kThird = target::x10;
inline const Reg kTarget = target::x16;  // of calls
inline const Reg kArguments[] = {target::x0, target::x1, target::x2, target::x3, target::x4, target::x5};
inline const Preserved kPreserved[] = {
    {target::x19, 19}, {target::x20, 20}, {target::x21, 21}, {target::x22, 22}, {target::x23, 23}};
inline const Preserved kThread = {target::x28, 28};
inline constexpr unsigned char kFreed = 0;  // what code that is gone becomes: udf
#else
inline const Reg kStack = target::rsp, kValue = target::rax, kOther = target::rcx, kThird = target::rdx;
inline const Reg kTarget = target::rax;
inline const Reg kArguments[] = {target::rdi, target::rsi, target::rdx, target::rcx, target::r8, target::r9};
inline const Preserved kPreserved[] = {
    {target::rbx, 3}, {target::rbp, 6}, {target::r12, 12}, {target::r13, 13}, {target::r14, 14}};
inline const Preserved kThread = {target::r15, 15};
inline constexpr unsigned char kFreed = 0xcc;  // int3
#endif
// In funclets: their method's frame.
inline const Preserved kBase = kPreserved[0];

// A word in memory.
struct At {
  Reg base;
  int offset;
};

// Windows unwind information of a function, whose bytes will stand at `info`. RVAs count from anywhere.
struct WindowsInformation {
  std::vector<std::byte> bytes;
  windlass::winx64::RuntimeFunction function;                // x86-64
  std::vector<windlass::winarm64::RuntimeFunction> entries;  // AArch64
};
WindowsInformation windows_information(const windlass::Prologue& described, std::uint32_t function, std::uint32_t info);

class Machine {
 public:
  explicit Machine(asmjit::CodeHolder& code) : a_(&code) {}

  [[nodiscard]] Label label() { return a_.newLabel(); }
  void bind(const Label& label) { a_.bind(label); }
  [[nodiscard]] std::uint32_t here() const { return static_cast<std::uint32_t>(a_.offset()); }
  void align(unsigned size) { a_.align(asmjit::AlignMode::kCode, size); }
  void nop() { a_.nop(); }
  void stop();  // is not come to

  // ---- frames: so many words, saved registers above them, the return address, the CFA
  [[nodiscard]] static int words_of_frame(int words, std::size_t saved) { return words + static_cast<int>(saved) + 1; }
  // The prologue is described by offsets from here, its epilogue, which returns, by offsets from `begin`.
  void enter(int words, const std::vector<Preserved>& saved, windlass::Prologue& described);
  void leave(int words, const std::vector<Preserved>& saved, std::uint32_t begin, windlass::Prologue& described);

  // ---- words
  void load(const Reg& to, std::uint64_t constant);
  void load(const Reg& to, const At& from);
  void store(const At& to, const Reg& from);
  void clear(const At& word);
  void move(const Reg& to, const Reg& from);
  void address_of(const Reg& to, const At& word);
  void address_of(const Reg& to, const Label& code);
  void increment(const At& word);
  // Of an array in kValue, with its index in kOther.
  void load_element(const Reg& to);
  void store_element(const Reg& from);

  // ---- operations on kValue and kOther, with what comes of them in kValue
  void add();
  void subtract();
  void multiply();
  void divide();  // by what is not 0
  void remainder();
  void negate();
  void invert();                    // a bool
  void shift_left(unsigned count);  // kValue
  void negate_real();
  void compute_real(char sign);
  void square_root();
  void to_real();
  void to_integer();

  enum class Condition { kLess, kLessEqual, kGreater, kGreaterEqual, kEqual, kNotEqual };
  void compare(Condition condition);
  void compare_real(Condition condition);

  // ---- jumps
  void jump(const Label& to);
  void jump_if_zero(const Reg& value, const Label& to);
  void jump_unless_zero(const Reg& value, const Label& to);
  void jump_unless_below(const Reg& value, const At& limit, const Label& to);  // unsigned
  void jump_if_above(const Reg& value, std::uint32_t limit, const Label& to);
  void jump_unless_equal(const At& word, const Reg& value, const Label& to);
  void jump_if_clear(const void* flag, const Label& to);  // 32 bits
  // One less, for all threads; jumps unless that is 0. 32 bits.
  void count_down(const At& counter, const Label& to);

  // ---- calls
  void call(const Label& to);
  void call(const At& to);
  void call(const void* to);

 private:
  target::Assembler a_;
};

}  // namespace lilt
