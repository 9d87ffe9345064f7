// Functions made at run time, with frames of any size, and the rows that lead out of them. A frame is full of addresses
// that look like return addresses: by the rows of another stub a walk goes wrong, and finds something.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "windlass/backtrace.h"
#include "windlass/jit/code_range.h"

namespace windlass::test {

// void stub(void (*call)(void*), std::uint64_t decoy, void* argument): fills `words` words of its frame with the decoy
// and calls call(argument).
class JitStub {
 public:
  using Callee = void (*)(void*);
  static constexpr unsigned kMaxWords = 64;
  static constexpr std::size_t kRoom = 512;  // bytes of code

  // Writes it; `words` is odd on x86-64 and even on AArch64, as alignment wants it: see words().
  JitStub(void* at, unsigned words) : begin_(reinterpret_cast<std::uint64_t>(at)) {
    std::vector<std::uint8_t> code;
    std::int32_t size = 0;  // of the frame
    const auto row = [&](bool saved) {
      FrameRow next;
      next.begin = begin_ + code.size();
      if (!rows_.empty()) rows_.back().end = next.begin;
      next.cfa = CfaRule::at(Registers::sp_number(kOwnArchitecture), size + kReturnOnStack);
      next.return_address = RegisterRule::in_register(30);
      if (kReturnOnStack != 0) next.return_address = RegisterRule::at_cfa(-8);
      if (kReturnOnStack == 0 && saved) next.return_address = RegisterRule::at_cfa(-size);
      rows_.push_back(next);
    };
    row(false);
#if defined(__x86_64__)
    const auto emit = [&](std::initializer_list<int> bytes) {
      for (const int byte : bytes) code.push_back(static_cast<std::uint8_t>(byte));
    };
    for (unsigned i = 0; i < words; ++i) {
      emit({0x56});  // push rsi
      size += 8;
      row(false);
    }
    emit({0x48, 0x89, 0xf8, 0x48, 0x89, 0xd7, 0xff, 0xd0});  // mov rax, rdi; mov rdi, rdx; call rax
    return_address_ = begin_ + code.size();
    emit({0x48, 0x81, 0xc4, size & 0xff, size >> 8, 0, 0});  // add rsp, size
    size = 0;
    row(false);
    emit({0xc3});
#else
    const auto word = [&](std::uint32_t instruction) {
      for (int i = 0; i < 32; i += 8) code.push_back(static_cast<std::uint8_t>(instruction >> i));
    };
    for (unsigned i = 0; i < words; i += 2) {
      word(0xa9bf07e1);  // stp x1, x1, [sp, #-16]!
      size += 16;
      row(false);
    }
    word(0xa9bf07fe);  // stp x30, x1, [sp, #-16]!
    size += 16;
    row(true);
    word(0xaa0003e9);  // mov x9, x0
    word(0xaa0203e0);  // mov x0, x2
    word(0xd63f0120);  // blr x9
    return_address_ = begin_ + code.size();
    word(0xa8c107fe);  // ldp x30, x1, [sp], #16
    size -= 16;
    row(false);
    word(0x910003ff | static_cast<std::uint32_t>(size) << 10);  // add sp, sp, #size
    size = 0;
    row(false);
    word(0xd65f03c0);  // ret
#endif
    rows_.back().end = end_ = begin_ + code.size();
    std::memcpy(at, code.data(), code.size());
    __builtin___clear_cache(static_cast<char*>(at), static_cast<char*>(at) + code.size());
  }

  // The number of words nearest to what is wished.
  static unsigned words(unsigned wish) { return kReturnOnStack != 0 ? wish | 1 : wish & ~1u; }
  // Room for stubs, readable, writable and executable; null where the system allows none.
  static std::byte* make_room(std::size_t size) {
    void* room = ::mmap(nullptr, size, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return room == MAP_FAILED ? nullptr : static_cast<std::byte*>(room);
  }

  // Without a frame of its own between the stub and who calls this, however little is optimised.
  [[gnu::always_inline]] void call(Callee callee, std::uint64_t decoy, void* argument) const {
    using Function = void (*)(Callee, std::uint64_t, void*);
    reinterpret_cast<Function>(begin_)(callee, decoy, argument);
    __asm__ volatile("");  // it is no tail call
  }
  [[nodiscard]] std::uint64_t begin() const { return begin_; }
  [[nodiscard]] std::uint64_t end() const { return end_; }
  [[nodiscard]] std::uint64_t return_address() const { return return_address_; }
  [[nodiscard]] const std::vector<FrameRow>& rows() const { return rows_; }
  // At offsets from its begin, as code managers take them.
  [[nodiscard]] std::vector<FrameRow> rows_inside() const {
    std::vector<FrameRow> rows = rows_;
    for (FrameRow& row : rows) row.begin -= begin_, row.end -= begin_;
    return rows;
  }
  [[nodiscard]] CodeRange range() const { return {.begin = begin_, .end = end_, .name = "[stub]", .rows = rows_}; }

 private:
  static constexpr std::int32_t kReturnOnStack = kOwnArchitecture == Architecture::kX86_64 ? 8 : 0;

  std::uint64_t begin_;
  std::uint64_t end_ = 0;
  std::uint64_t return_address_ = 0;
  std::vector<FrameRow> rows_;
};

// Stubs one behind the other, with frames of all sizes, to be called through each other.
class JitChain {
 public:
  static constexpr unsigned kStubs = 8;
  static constexpr std::size_t kCode = kStubs * JitStub::kRoom, kRoom = 1 << 16;

  // `apart`: how far each begins behind the one before it.
  explicit JitChain(std::size_t apart = JitStub::kRoom) : room_(JitStub::make_room(kRoom)) {
    for (unsigned i = 0; room_ != nullptr && i < kStubs; ++i)
      stubs_.emplace_back(room_ + i * apart, JitStub::words(1 + 9 * i));
  }
  ~JitChain() {
    if (room_ != nullptr) ::munmap(room_, kRoom);
  }
  JitChain(const JitChain&) = delete;
  JitChain& operator=(const JitChain&) = delete;

  // Null where the system gives no memory that is writable and executable. Behind kCode it is free, unless `apart` is
  // larger.
  [[nodiscard]] std::byte* room() const { return room_; }
  [[nodiscard]] const std::vector<JitStub>& stubs() const { return stubs_; }

  // Through so many stubs, the last first, to `last`.
  void through(unsigned stubs, void (*last)(void*), void* argument) const {
    if (stubs == 0) return last(argument);
    struct Way {
      const JitChain* chain;
      unsigned left;
      void (*last)(void*);
      void* argument;
    } way{this, stubs - 1, last, argument};
    stubs_[stubs - 1].call(
        [](void* at) {
          const Way& to = *static_cast<Way*>(at);
          to.chain->through(to.left, to.last, to.argument);
        },
        stubs_[0].return_address(), &way);
  }

 private:
  std::byte* const room_;
  std::vector<JitStub> stubs_;
};

}  // namespace windlass::test
