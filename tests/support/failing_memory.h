// A memory of which one read fails, each in turn: whoever reads it must say the same as of the whole, or nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "windlass/walk.h"

namespace windlass::test {

class FailingMemory final : public Memory {
 public:
  // Read number `failing` fails, counted from 0.
  FailingMemory(const Memory& of, std::size_t failing) : of_(of), failing_(failing) {}
  bool read(std::uint64_t address, void* to, std::size_t size) const override {
    return reads_++ != failing_ && of_.read(address, to, size);
  }
  // Was there a read that failed for this reason?
  [[nodiscard]] bool has_failed() const { return reads_ > failing_; }

 private:
  const Memory& of_;
  std::size_t failing_;
  mutable std::size_t reads_ = 0;
};

// Calls ask(memory) with each read failing in turn, and then check(answer, number of the read). How many reads there
// are.
template <typename Ask, typename Check>
std::size_t each_failing_read(const Memory& memory, Ask&& ask, Check&& check) {
  for (std::size_t failing = 0;; ++failing) {
    const FailingMemory one(memory, failing);
    const auto answer = ask(one);
    if (!one.has_failed()) return failing;
    check(answer, failing);
  }
}

}  // namespace windlass::test
