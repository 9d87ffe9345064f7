// Written call frame information, registered with the unwinders that programs have: exceptions cross generated code,
// handlers of its own are asked, and backtraces lead through it. By libgcc, and once more by LLVM's libunwind.
#include <dlfcn.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/jit_stub.h"
#include "support/run_command.h"
#include "windlass/format/dwarf.h"

extern "C" void __register_frame(void*);    // NOLINT(bugprone-reserved-identifier)
extern "C" void __deregister_frame(void*);  // NOLINT(bugprone-reserved-identifier)

namespace windlass::test {
namespace {

// LLVM's takes one FDE, libgcc's a whole section.
bool of_llvm() { return ::dlsym(RTLD_DEFAULT, "__unw_add_dynamic_eh_frame_section") != nullptr; }

class Registered : public testing::Test {
 protected:
  static constexpr unsigned kStubs = JitChain::kStubs;

  void SetUp() override {
    if (chain_.room() == nullptr)
      GTEST_SKIP() << "SKIPPED: this system gives no memory that is writable and executable";
  }
  void TearDown() override { deregister(); }

  void make(dwarf::Pointers pointers, std::uint64_t personality = 0, std::uint64_t data = 0) {
    std::byte* const frames = chain_.room() + JitChain::kCode;
    dwarf::Writer writer(
        {.architecture = kOwnArchitecture, .address = reinterpret_cast<std::uint64_t>(frames), .pointers = pointers});
    for (const JitStub& stub : chain_.stubs()) {
      const auto done =
          writer.add(stub.rows(), {.address = stub.begin(), .personality = personality, .language_data = data});
      ASSERT_TRUE(done) << done.error().text();
    }
    const dwarf::Written written = std::move(writer).take();
    ASSERT_LT(written.bytes.size(), JitChain::kRoom - JitChain::kCode);
    std::memcpy(frames, written.bytes.data(), written.bytes.size());
    if (of_llvm())
      for (const dwarf::WrittenFunction& function : written.functions) registered_.push_back(frames + function.fde);
    else
      registered_.push_back(frames);
    for (void* record : registered_) __register_frame(record);
  }
  void deregister() {
    for (void* record : registered_) __deregister_frame(record);
    registered_.clear();
  }

  const JitChain chain_;
  std::vector<void*> registered_;
};

struct Thrown {
  int value;
};

TEST_F(Registered, ExceptionsCrossIt) {
  for (const auto pointers : {dwarf::Pointers::kRelative, dwarf::Pointers::kAbsolute}) {
    make(pointers);
    for (unsigned stubs = 1; stubs <= kStubs; ++stubs) {
      int caught = 0;
      try {
        chain_.through(
            stubs, [](void* value) { throw Thrown{*static_cast<unsigned*>(value) != 0 ? 4711 : 0}; }, &stubs);
      } catch (const Thrown& thrown) {
        caught = thrown.value;
      }
      EXPECT_EQ(caught, 4711) << stubs;
    }
    deregister();
  }
}

TEST_F(Registered, BacktracesLeadThroughIt) {
  make(dwarf::Pointers::kRelative);
  std::vector<std::uint64_t> pcs;
  chain_.through(
      kStubs,
      [](void* to) {
        _Unwind_Backtrace(
            [](_Unwind_Context* context, void* found) {
              static_cast<std::vector<std::uint64_t>*>(found)->push_back(_Unwind_GetIP(context));
              return _URC_NO_REASON;
            },
            to);
      },
      &pcs);
  auto at = pcs.begin();
  for (const JitStub& stub : chain_.stubs()) {
    at = std::find(at, pcs.end(), stub.return_address());
    ASSERT_NE(at, pcs.end()) << "stub " << &stub - chain_.stubs().data() << " of " << pcs.size() << " frames";
  }
  EXPECT_GT(pcs.end() - at, 3) << "and to whoever called";
}

// What a handler of the code's own has seen.
struct Seen {
  std::vector<std::uint64_t> search, cleanup;
  std::vector<std::uint64_t> data;
};
Seen seen;

std::uint64_t data_of(_Unwind_Context* context) {                  // GCC's header says void*, Clang's an integer
  return (std::uint64_t)_Unwind_GetLanguageSpecificData(context);  // NOLINT(google-readability-casting)
}

_Unwind_Reason_Code handler(int, _Unwind_Action actions, _Unwind_Exception_Class, _Unwind_Exception*,
                            _Unwind_Context* context) {
  auto& phase = (actions & _UA_SEARCH_PHASE) != 0 ? seen.search : seen.cleanup;
  phase.push_back(_Unwind_GetRegionStart(context));
  seen.data.push_back(data_of(context));
  return _URC_CONTINUE_UNWIND;
}

TEST_F(Registered, ItsHandlerIsAskedInBothPasses) {
  const auto data = reinterpret_cast<std::uint64_t>(chain_.room() + JitChain::kRoom - 64);
  make(dwarf::Pointers::kAbsolute, reinterpret_cast<std::uint64_t>(&handler), data);
  seen = {};
  bool caught = false;
  try {
    chain_.through(
        kStubs, [](void*) { throw Thrown{1}; }, nullptr);
  } catch (const Thrown&) {
    caught = true;
  }
  EXPECT_TRUE(caught);
  std::vector<std::uint64_t> begins;
  for (const JitStub& stub : chain_.stubs()) begins.push_back(stub.begin());
  EXPECT_EQ(seen.search, begins);
  EXPECT_EQ(seen.cleanup, begins);
  EXPECT_EQ(seen.data, std::vector<std::uint64_t>(2 * kStubs, data));
}

// All of the above in a process of LLVM's unwinder.
TEST(RegisteredByLlvm, All) {
  if (of_llvm()) return;
  std::string library;
  for (const char* path : {"/usr/lib/x86_64-linux-gnu/libunwind.so.1", "/usr/lib/aarch64-linux-gnu/libunwind.so.1"})
    if (::access(path, R_OK) == 0) library = path;
  if (library.empty() || kOwnArchitecture != Architecture::kX86_64)
    GTEST_SKIP() << "SKIPPED: there is no libunwind of LLVM";
  const auto again = run(
      fmt::format("ASAN_OPTIONS=verify_asan_link_order=0 LD_PRELOAD={} /proc/{}/exe --gtest_filter='Registered.*' 2>&1",
                  library, ::getpid()));
  EXPECT_EQ(again.status, 0) << again.output;
  EXPECT_NE(again.output.find("[  PASSED  ] 3 tests"), std::string::npos) << again.output;
}

}  // namespace
}  // namespace windlass::test
