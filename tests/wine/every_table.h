// A heap of generated code, and each of the ways to register the code with Windows.
#pragma once

#include <gtest/gtest.h>
#include <windows.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "jit_heap.h"
#include "windlass/jit/code_heap.h"

namespace windlass::test {

inline std::uint64_t address_of(auto function) { return reinterpret_cast<std::uint64_t>(function); }

// Is there an entry for a pc? Its begin as an address; 0: none.
inline std::uint64_t found(std::uint64_t pc) {
  DWORD64 base = 0;
  const RUNTIME_FUNCTION* entry = RtlLookupFunctionEntry(pc, &base, nullptr);
  return entry != nullptr ? base + entry->BeginAddress : 0;
}

class EveryTable : public testing::TestWithParam<Registry> {
 protected:
  void SetUp() override { open(heap_.options()); }
  void open(const RegistrarOptions& options) {
    auto registrar = open_registrar(GetParam(), options);
    ASSERT_TRUE(registrar) << registrar.error().text();
    registrar_ = std::move(*registrar);
  }
  RegistrationId add(const std::vector<GeneratedFunction>& functions) {
    const auto id = registrar_->add(functions);
    EXPECT_TRUE(id) << id.error().text();
    return id ? *id : RegistrationId::kNone;
  }
  Error refusal(const std::vector<GeneratedFunction>& functions) {
    const auto id = registrar_->add(functions);
    return id ? Error{.what = "nothing was refused"} : id.error();
  }
  GeneratedFunction call_at(std::uint64_t offset) const {
    return {.address = heap_.begin() + offset, .size = JitHeap::kCallSize, .prologue = &call_};
  }
  // Functions that call each other, the last one `target`; registered. The first one's address.
  std::uint64_t chain(std::uint64_t target, std::size_t depth, std::uint64_t personality = 0) {
    std::vector<Prologue> prologues(depth);
    std::vector<GeneratedFunction> functions;
    for (std::size_t i = 0; i < depth; ++i) {
      const auto frame = static_cast<std::uint32_t>(32 + 16 * (i * 7 % 40));
      target = heap_.put_call(0x100 * i + chained_, target, frame);
      prologues[i] = JitHeap::call_prologue(frame);
      functions.push_back(
          {.address = target, .size = JitHeap::kCallSize, .prologue = &prologues[i], .personality = personality});
    }
    chained_ += 0x100 * depth;
    add(functions);
    return target;
  }

  JitHeap heap_;
  const Prologue call_ = JitHeap::call_prologue();
  std::uint64_t chained_ = 0;
  std::unique_ptr<Registrar> registrar_;
};

}  // namespace windlass::test
