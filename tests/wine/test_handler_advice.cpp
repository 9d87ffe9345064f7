// The registrars of Windows tell of calls about which the system asks no handler.
#include <gtest/gtest.h>

#include "jit_heap.h"

namespace windlass {
namespace {

using test::JitHeap;

EXCEPTION_DISPOSITION not_called(EXCEPTION_RECORD*, void*, CONTEXT*, DISPATCHER_CONTEXT*) {
  return ExceptionContinueSearch;
}

class HandlerAdvice : public testing::TestWithParam<Registry> {
 protected:
  // The return addresses that are told of while a function is registered.
  std::vector<std::uint64_t> told(const Prologue& prologue, bool handled) {
    std::vector<std::uint64_t> addresses;
    RegistrarOptions options = heap_.options();
    options.context = &addresses;
    options.handler_not_asked = [](std::uint64_t address, void* context) {
      static_cast<std::vector<std::uint64_t>*>(context)->push_back(address);
    };
    const auto registrar = open_registrar(GetParam(), options);
    EXPECT_TRUE(registrar) << registrar.error().text();
    if (!registrar) return addresses;
    const GeneratedFunction function{
        .address = heap_.begin(),
        .size = prologue.code_size,
        .prologue = &prologue,
        .personality = handled ? reinterpret_cast<std::uint64_t>(&not_called) : 0,
    };
    const auto id = (*registrar)->add({&function, 1});
    EXPECT_TRUE(id) << id.error().text();
    return addresses;
  }

  JitHeap heap_;
};
INSTANTIATE_TEST_SUITE_P(, HandlerAdvice,
                         testing::Values(Registry::kGrowableTable, Registry::kTableCallback, Registry::kFunctionTable));

TEST_P(HandlerAdvice, CallsInFrontOfAnEpilogue) {
  heap_.put_call(0, heap_.begin());
  EXPECT_TRUE(told(JitHeap::call_prologue(), true).empty());  // call rax; nop; add rsp, frame

  // The same without the nop.
  heap_.put(JitHeap::kReturnOffset, {0x48, 0x81, 0xc4, 32, 0, 0, 0, 0x5b, 0xc3});
  Prologue bare = JitHeap::call_prologue();
  bare.code_size = 29;
  bare.epilogues = {
      {.begin = 20, .end = 29, .undone = {{27, prologue::Allocate{32}}, {28, prologue::push(3)}}},
  };
  EXPECT_EQ(told(bare, true), std::vector<std::uint64_t>{heap_.begin() + JitHeap::kReturnOffset});
  EXPECT_TRUE(told(bare, false).empty());
}

}  // namespace
}  // namespace windlass
