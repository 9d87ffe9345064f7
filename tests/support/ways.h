// One function's code run by Unicorn along all its paths, whatever it would do by itself. Both sides of every branch
// are taken, and calls are passed. Code that cannot be run (memory that is missing, instructions that the emulator does
// not know) leaves other values behind. Changes of sp and of the stack are always the processor's doing.
#pragma once

#include <unicorn/unicorn.h>

#include <array>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "windlass/registers.h"

namespace windlass::test {

class Ways {
 public:
  static constexpr std::uint64_t kReturn = 0x7654'3210'0000;  // the caller's; nothing is mapped there

  // (offset, registers) in front of each instruction.
  using At = std::function<void(std::uint32_t, const Registers&)>;
  // (offset, next) of a call: does it return?
  using ComesBack = std::function<bool(std::uint32_t, std::uint32_t)>;

  Ways(const Ways&) = delete;
  Ways& operator=(const Ways&) = delete;

  [[nodiscard]] bool ok() const { return ok_; }
  // Of the caller, as the code's first instruction finds it.
  [[nodiscard]] const Registers& caller() const { return caller_; }
  [[nodiscard]] bool read(std::uint64_t address, void* to, std::size_t size) const {
    return uc_mem_read(engine_, address, to, size) == UC_ERR_OK;
  }

  // Each instruction is run once by each way that leads there from another one, and then for a while.
  void run(std::span<const std::byte> code, std::uint64_t address, const At& at, const ComesBack& comes_back) {
    code_ = code;
    begin_ = address;
    const std::uint64_t page = begin_ & ~std::uint64_t{0xfff};
    const std::uint64_t size = (begin_ + code.size() - page + 0xfff) & ~std::uint64_t{0xfff};
    uc_mem_map(engine_, page, size, UC_PROT_ALL);
    uc_mem_write(engine_, begin_, code.data(), code.size());
    visited_.assign(code.size(), false);
    waiting_.clear();
    start();
    for (known_ = 0;;) {
      const std::uint64_t offset = now_.pc().value() - begin_;
      bool goes_on = offset < code.size() && in_stack(now_.sp());
      if (goes_on) {
        at(static_cast<std::uint32_t>(offset), now_);
        known_ = visited_[offset] ? known_ + 1 : 0;
        visited_[offset] = true;
        goes_on = known_ < kOverlap && step(static_cast<std::uint32_t>(offset), comes_back);
      }
      if (goes_on) continue;
      if (waiting_.empty()) break;
      resume();
      known_ = 0;
    }
    uc_ctl_remove_cache(engine_, page, page + size);  // other code may be there next
    uc_mem_unmap(engine_, page, size);
  }

 protected:
  explicit Ways(Architecture architecture) : now_(architecture), caller_(architecture) {
    const bool arm = architecture == Architecture::kAArch64;
    ok_ = uc_open(arm ? UC_ARCH_ARM64 : UC_ARCH_X86, arm ? UC_MODE_ARM : UC_MODE_64, &engine_) == UC_ERR_OK &&
          map(kStack, kStackSize) && map(kArena, kArenaSize);
    std::vector<std::uint64_t> pointers(kArenaSize / 8);
    for (std::uint64_t& pointer : pointers) pointer = this->pointer();
    uc_mem_write(engine_, kArena, pointers.data(), kArenaSize);
  }
  virtual ~Ways() { uc_close(engine_); }

  // The registers with which the code is called; `top` is sp.
  virtual void enter(std::uint64_t top) = 0;
  // False: the way ends here.
  virtual bool step(std::uint32_t offset, const ComesBack& comes_back) = 0;

  std::uint64_t pointer() { return kArena + kArenaSize / 4 + (random_() % (kArenaSize / 2) & ~std::uint64_t{15}); }

  // A loop that is run as often as it does.
  void repeat(std::uint64_t pc) {
    go(pc);
    known_ = 0;
  }
  void go(std::uint64_t pc) { now_.set_pc(CodeAddress::instruction(pc)); }

  // A branch has another side.
  void wait_at(std::uint64_t pc) {
    if (pc - begin_ >= code_.size() || visited_[pc - begin_]) return;
    Waiting other{now_, std::vector<std::uint8_t>(kStack + kStackSize - now_.sp() + kRedZone)};
    other.registers.set_pc(CodeAddress::instruction(pc));
    uc_mem_read(engine_, now_.sp() - kRedZone, other.stack.data(), other.stack.size());
    waiting_.push_back(std::move(other));
  }

  // What is below sp is anybody's.
  void forget_below() {
    std::array<std::uint64_t, 64> below;
    for (std::uint64_t& word : below) word = pointer();
    uc_mem_write(engine_, now_.sp() - sizeof below, below.data(), sizeof below);
  }

  uc_engine* engine_ = nullptr;
  Registers now_, caller_;
  std::span<const std::byte> code_;
  std::uint64_t begin_ = 0;

 private:
  static constexpr std::uint64_t kStack = 0x7ff0'0000'0000, kStackSize = 1 << 20, kTop = kStack + kStackSize - 0x4000;
  static constexpr std::uint64_t kArena = 0x2000'0000'0000, kArenaSize = 1 << 18;
  static constexpr unsigned kOverlap = 24, kRedZone = 256;

  struct Waiting {
    Registers registers;
    std::vector<std::uint8_t> stack;
  };

  bool map(std::uint64_t address, std::uint64_t size) {
    return uc_mem_map(engine_, address, size, UC_PROT_READ | UC_PROT_WRITE) == UC_ERR_OK;
  }
  [[nodiscard]] static bool in_stack(std::uint64_t sp) { return sp >= kStack + 0x20000 && sp <= kTop + 0x3000; }

  void start() {
    std::vector<std::uint64_t> stack((kStack + kStackSize - kTop) / 8);
    for (std::uint64_t& word : stack) word = pointer();
    uc_mem_write(engine_, kTop, stack.data(), stack.size() * 8);
    enter(kTop);
    go(begin_);
  }
  void resume() {
    now_ = waiting_.back().registers;
    uc_mem_write(engine_, now_.sp() - kRedZone, waiting_.back().stack.data(), waiting_.back().stack.size());
    waiting_.pop_back();
  }

  bool ok_ = false;
  unsigned known_ = 0;  // so many instructions in a row have been run before
  std::mt19937_64 random_{4711};
  std::vector<bool> visited_;
  std::vector<Waiting> waiting_;
};

}  // namespace windlass::test
