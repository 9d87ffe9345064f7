// The profiler's unwinder over a guest: its C steps over the guest's stack by tables compiled from the guest's files.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "aarch64/guest_space.h"
#include "aarch64/shadow_stack.h"
#include "support/a64_unwinder.h"

namespace windlass::aarch64_judge {

class KernelStack {
 public:
  explicit KernelStack(const StubClient& stub);

  // After modules came or went. Tables of files that were there before are kept.
  void refresh(const GuestSpace& guest);
  // Code at `address` that is in no file: the page qemu puts the signal trampoline on.
  void add_generated(std::uint64_t address);

  // From `state` to the bottom of the stack, whose callers are those of `truth`, innermost last. Frames further out
  // than `trusted` (an index in it) are not compared.
  [[nodiscard]] KernelWalk walk(const CpuState& state, const std::vector<ShadowFrame>& truth, std::size_t trusted);

  [[nodiscard]] const test::A64Unwinder& unwinder() const { return unwinder_; }
  [[nodiscard]] const std::vector<std::string>& problems() const { return problems_; }

 private:
  struct File {
    std::uint32_t module = 0;
    std::vector<wl_mapping> code;  // by the file's own addresses, bias 0
  };
  const File& file(const std::string& path);
  void publish();

  test::A64Unwinder unwinder_;
  std::map<std::string, File> files_;
  std::vector<wl_mapping> mapped_;
  std::map<std::uint64_t, wl_mapping> generated_;  // by page
  std::vector<std::string> problems_;
};

}  // namespace windlass::aarch64_judge
