// Hand-made code that no unwind information describes, and the certainty of a walk through it.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "base/registers.h"
#include "windlass/walk.h"

namespace windlass::test {

using Code = std::vector<std::uint8_t>;
inline constexpr std::uint64_t kBegin = 0x400000, kEnd = 0x410000, kStack = 0x7fff'0000'1000;
inline constexpr std::uint64_t kFunction = kBegin + 0x1000;  // at hand
inline constexpr std::uint64_t kCaller = kBegin + 0x2000;    // the code behind its call: straight to a halt
inline constexpr std::uint64_t kDescribed = 0x500000;        // code with rows
inline constexpr std::uint64_t kMarked = 0;                  // the frame pointer of a thread's start routine

class CodeMemory : public Memory {
 public:
  [[nodiscard]] bool read(std::uint64_t address, void* to, std::size_t size) const override {
    for (std::size_t i = 0; i < size; ++i) {
      const auto found = bytes.find(address + i);
      if (found == bytes.end()) return false;
      static_cast<std::uint8_t*>(to)[i] = found->second;
    }
    return true;
  }
  std::map<std::uint64_t, std::uint8_t> bytes;
};

class Certainty : public ::testing::Test {
 protected:
  Certainty() {
    for (std::uint64_t at = kBegin + 0x800; at < kBegin + 0x3000; ++at) memory_->bytes[at] = 0xcc;
    put(kCaller, {0x89, 0xc7, 0xf4});  // mov edi, eax; hlt
    EXPECT_TRUE(space_.add_module({kBegin, kEnd, 0, "/no/such/file", {}}));
  }
  void put(std::uint64_t address, const Code& code) {
    for (std::size_t i = 0; i < code.size(); ++i) memory_->bytes[address + i] = code[i];
  }
  void word(std::uint64_t address, std::uint64_t value) {
    for (unsigned i = 0; i < 8; ++i) memory_->bytes[address + i] = static_cast<std::uint8_t>(value >> 8 * i);
  }
  void direct_call(std::uint64_t target) {
    const auto distance = static_cast<std::uint32_t>(target - kCaller);
    put(kCaller - 5, {0xe8, static_cast<std::uint8_t>(distance), static_cast<std::uint8_t>(distance >> 8),
                      static_cast<std::uint8_t>(distance >> 16), static_cast<std::uint8_t>(distance >> 24)});
  }
  void indirect_call() { put(kCaller - 3, {0x41, 0xff, 0xd1}); }  // call r9

  // The certainty of the caller of an instruction of the function; the end of the walk is in end_.
  FrameCertainty walk(std::uint64_t offset, std::uint64_t sp, std::uint64_t fp) {
    Registers registers(Architecture::kX86_64);
    registers.set_pc(CodeAddress::instruction(kFunction + offset));
    registers.set_sp(sp);
    registers.set(x86_64::kRbp, fp);
    StackWalker walker(space_, registers);
    EXPECT_EQ(walker.frame().certainty, FrameCertainty::kDescribed);
    EXPECT_TRUE(walker.step()) << walker.error().text();
    EXPECT_EQ(walker.frame().pc(), CodeAddress::return_address(kCaller));
    const FrameCertainty certainty = walker.frame().certainty;
    EXPECT_FALSE(walker.step());
    EXPECT_EQ(walker.certainty(), certainty);
    end_ = walker.end_reason();
    EXPECT_EQ(*walker.error().what == '\0', end_ == WalkEnd::kComplete);
    return certainty;
  }

  CodeMemory* memory_ = new CodeMemory;  // the space's
  AddressSpace space_{Architecture::kX86_64, std::unique_ptr<Memory>(memory_)};
  WalkEnd end_ = WalkEnd::kRunning;
};

}  // namespace windlass::test
