// The promises of every registry, and their effect on the unwinders of this process. Exceptions and walks lead through
// registered code, and through no removed code. By libgcc, and once more by LLVM's libunwind.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/jit_stub.h"
#include "support/run_command.h"
#include "walk/own/executable.h"
#include "windlass/jit/registration.h"

namespace windlass::test {
namespace {

using Functions = std::vector<GeneratedFunction>;

GeneratedFunction function_of(const JitStub& stub) {
  return {.address = stub.begin(),
          .size = static_cast<std::uint32_t>(stub.end() - stub.begin()),
          .name = "stub",
          .rows = stub.rows()};
}
Functions functions_of(const JitChain& chain) {
  Functions functions;
  for (const JitStub& stub : chain.stubs()) functions.push_back(function_of(stub));
  return functions;
}

std::vector<MovedFunction> moves_of(const JitChain& from, const JitChain& to) {
  std::vector<MovedFunction> moves;
  for (unsigned i = 0; i < JitChain::kStubs; ++i)
    moves.push_back({.from = from.stubs()[i].begin(), .now = function_of(to.stubs()[i])});
  return moves;
}

std::unique_ptr<Registrar> open(Registry registry) {
  auto registrar = open_registrar(registry, {.folder = testing::TempDir()});
  EXPECT_TRUE(registrar) << registrar.error().text();
  return registrar ? std::move(*registrar) : nullptr;
}

// ---- of all registries ----------------------------------------------------------------------------------------------

class EveryRegistry : public testing::TestWithParam<Registry> {
 protected:
  void SetUp() override {
    if (chain_.room() == nullptr)
      GTEST_SKIP() << "SKIPPED: this system gives no memory that is writable and executable";
    registrar_ = open(GetParam());
    ASSERT_NE(registrar_, nullptr);
  }
  Error refusal(const Functions& functions) {
    const auto id = registrar_->add(functions);
    return id ? Error{.code = ErrorCode::kNotFound, .what = "nothing was refused"} : id.error();
  }

  const JitChain chain_;
  std::unique_ptr<Registrar> registrar_;
};

TEST_P(EveryRegistry, WhatIsThereIsNotRegisteredTwice) {
  const Functions all = functions_of(chain_);
  const auto id = registrar_->add(all);
  ASSERT_TRUE(id) << id.error().text();
  const Error error = refusal({all[3]});
  EXPECT_EQ(error.code, ErrorCode::kMalformed) << error.text();
  EXPECT_EQ(error.where, all[3].address);
  ASSERT_TRUE(registrar_->remove(*id));
  EXPECT_EQ(registrar_->remove(*id).error().code, ErrorCode::kNotFound);
  // The place is free, in any pieces.
  const auto one = registrar_->add(Functions{all[3]});
  ASSERT_TRUE(one) << one.error().text();
  EXPECT_NE(*one, *id);
  EXPECT_EQ(refusal(all).where, all[3].address);
  ASSERT_TRUE(registrar_->remove(*one));
  EXPECT_TRUE(registrar_->add(all));  // and is left to the registrar's end
}

TEST_P(EveryRegistry, ImpossibleFunctionsAreErrorsThatNameThem) {
  const GeneratedFunction good = function_of(chain_.stubs()[0]);
  EXPECT_EQ(refusal({}).code, ErrorCode::kMalformed);
  const auto changed = [&](auto&& change) {
    Functions functions = {function_of(chain_.stubs()[1]), good};
    change(functions[1]);
    return refusal(functions);
  };
  const auto expect = [&](const Error& error, const char* what) {
    EXPECT_STREQ(error.what, what);
    EXPECT_EQ(error.code, ErrorCode::kMalformed);
  };
  expect(changed([](GeneratedFunction& f) { f.size = 0; }), "a function without code");
  expect(changed([](GeneratedFunction& f) { f.rows = {}; }), "a function is described by a prologue or by rows");
  expect(changed([](GeneratedFunction& f) { f.size += 1; }), "rows of another size than the code's");
  expect(changed([](GeneratedFunction& f) { f.address = ~std::uint64_t{0} - 8; }),
         "a function reaches past the last address");
  expect(changed([&](GeneratedFunction& f) { f.address = chain_.stubs()[1].begin() + 4; }),
         "two functions of a batch overlap");
  expect(changed([&](GeneratedFunction& f) { f.address = chain_.stubs()[1].end() - 1; }),
         "two functions of a batch overlap");
  std::vector<FrameRow> rows(good.rows.begin(), good.rows.end());
  rows[1].begin += 1;
  expect(changed([&](GeneratedFunction& f) { f.rows = rows; }), "rows that do not adjoin");
  rows.assign(good.rows.begin(), good.rows.end());
  rows.insert(rows.begin() + 1, rows[0]);
  rows[1].begin = rows[1].end = rows[0].end;
  expect(changed([&](GeneratedFunction& f) { f.rows = rows; }), "rows that do not adjoin");  // one is of nothing
  Prologue prologue{.architecture = kOwnArchitecture, .code_size = static_cast<std::uint32_t>(good.size - 1)};
  const auto described = [&](GeneratedFunction& f) {
    f.rows = {};
    f.prologue = &prologue;
  };
  expect(changed(described), "code is not of the size the prologue says");
  prologue.code_size = static_cast<std::uint32_t>(good.size);
  prologue.ops = {{8, prologue::Allocate{16}}, {4, prologue::Allocate{16}}};
  EXPECT_EQ(changed(described).code, ErrorCode::kOutOfRange) << "op is out of order";
  prologue.ops.clear();
  prologue.architecture = Architecture::kI386;
  EXPECT_EQ(changed(described).code, ErrorCode::kUnsupported);
  // Nothing of all this was kept.
  EXPECT_TRUE(registrar_->add(functions_of(chain_)));
}

TEST_P(EveryRegistry, CodeThatMovedIsWhereItIs) {
  const JitChain other;
  const Functions here = functions_of(chain_), there = functions_of(other);
  const auto id = registrar_->add(here);
  ASSERT_TRUE(id);
  std::vector<MovedFunction> moves = moves_of(chain_, other);
  std::swap(moves[1], moves[6]);  // in any order
  const auto moved = registrar_->move(*id, moves);
  ASSERT_TRUE(moved) << moved.error().text();
  EXPECT_EQ(refusal({there[3]}).where, there[3].address);
  const auto free = registrar_->add(here);
  ASSERT_TRUE(free) << free.error().text();
  ASSERT_TRUE(registrar_->remove(*free));
  ASSERT_TRUE(registrar_->move(*id, moves_of(other, chain_))) << "it keeps its id";
  ASSERT_TRUE(registrar_->remove(*id));
  EXPECT_EQ(registrar_->remove(*id).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(registrar_->move(*id, moves).error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(registrar_->add(here));
  EXPECT_TRUE(registrar_->add(there));
}

// Where the kernel can be asked for one mapping: it takes the same answer as long as the mapping is the same.
TEST_P(EveryRegistry, CodeThatIsNotExecutableYet) {
  constexpr std::size_t kPage = 4096;
  auto* const room =
      static_cast<std::byte*>(::mmap(nullptr, 3 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(static_cast<void*>(room), MAP_FAILED);
  const std::uint64_t begin = reinterpret_cast<std::uint64_t>(room);
  walk::CodeExtent extent;
  const int maps = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  const bool asks = walk::query_executable(maps, begin, extent) != walk::Executable::kUnknown;
  ::close(maps);
  std::vector<FrameRow> rows(1);
  rows[0].end = 96;
  rows[0].cfa = CfaRule::at(Registers::sp_number(kOwnArchitecture), 8);
  const auto piece = [&](std::uint64_t offset) {
    return GeneratedFunction{.address = begin + offset, .size = 96, .name = "piece", .rows = rows};
  };
  const auto expect_refused = [&](const Functions& functions, std::uint64_t where) {
    const auto id = registrar_->add(functions);
    EXPECT_EQ(id.has_value(), !asks);
    if (id) {
      EXPECT_TRUE(registrar_->remove(*id));
    } else {
      EXPECT_STREQ(id.error().what, "code that is not executable");
      EXPECT_EQ(id.error().code, ErrorCode::kMalformed);
      EXPECT_EQ(id.error().where, where);
    }
  };
  expect_refused({piece(0)}, begin);
  ASSERT_EQ(::mprotect(room, kPage, PROT_READ | PROT_EXEC), 0);
  expect_refused({piece(0), piece(kPage - 48)}, begin + kPage);  // its second half is behind
  expect_refused({piece(0), piece(kPage + 64)}, begin + kPage + 64);
  const auto last = registrar_->add(Functions{piece(kPage - 96)});  // up to the end of what is executable
  ASSERT_TRUE(last) << last.error().text();
  ASSERT_TRUE(registrar_->remove(*last));
  const auto id = registrar_->add(Functions{piece(0)});
  ASSERT_TRUE(id) << id.error().text();
  const auto moved = registrar_->move(*id, std::vector{MovedFunction{.from = begin, .now = piece(2 * kPage)}});
  EXPECT_EQ(moved.has_value(), !asks);
  if (moved) {
    EXPECT_TRUE(registrar_->remove(*id));
  }
  ASSERT_EQ(::mprotect(room + kPage, 2 * kPage, PROT_READ | PROT_EXEC), 0);
  const auto all = registrar_->add(Functions{piece(0), piece(kPage - 48), piece(2 * kPage)});
  EXPECT_TRUE(all) << all.error().text();
  if (all) {
    EXPECT_TRUE(registrar_->remove(*all));
  }
  ::munmap(room, 3 * kPage);
}

// Into places of its own: two change theirs, one stays.
TEST_P(EveryRegistry, CodeMovesOverItsOwnBatch) {
  std::vector<FrameRow> rows(1);
  rows[0].end = 96;
  rows[0].cfa = CfaRule::at(Registers::sp_number(kOwnArchitecture), 8);
  const auto piece = [&](std::uint64_t offset) {
    return GeneratedFunction{
        .address = reinterpret_cast<std::uint64_t>(chain_.room()) + offset, .size = 96, .name = "piece", .rows = rows};
  };
  const auto move = [&](std::uint64_t from, std::uint64_t to) {
    return MovedFunction{.from = piece(from).address, .now = piece(to)};
  };
  const auto id = registrar_->add(Functions{piece(0), piece(96), piece(400)});
  ASSERT_TRUE(id);
  const auto moved = registrar_->move(*id, std::vector{move(0, 64), move(96, 160), move(400, 400)});
  ASSERT_TRUE(moved) << moved.error().text();
  ASSERT_TRUE(registrar_->move(*id, std::vector{move(64, 160), move(160, 64), move(400, 400)}));
  EXPECT_TRUE(registrar_->remove(*id));
}

TEST_P(EveryRegistry, WhatCannotHaveMovedIsAnErrorAndRemoved) {
  const JitChain other, third;
  const auto refused = [&](auto&& change) {
    const auto id = registrar_->add(functions_of(chain_));
    EXPECT_TRUE(id) << "what moved wrongly before is gone: " << id.error().text();
    std::vector<MovedFunction> moves = moves_of(chain_, other);
    change(moves);
    const auto moved = registrar_->move(*id, moves);
    EXPECT_FALSE(moved);
    EXPECT_EQ(registrar_->remove(*id).error().code, ErrorCode::kNotFound);
    return moved ? Error{.code = ErrorCode::kNotFound, .what = "nothing was refused"} : moved.error();
  };
  using Moves = std::vector<MovedFunction>;
  const char* const kPart = "code moves a batch at a time, those functions too that stay";
  const char* const kNone = "a function that moved is not one of its batch, or twice";
  EXPECT_STREQ(refused([](Moves& moves) { moves.pop_back(); }).what, kPart);
  EXPECT_STREQ(refused([&](Moves& moves) {
                 moves.push_back({.from = ~std::uint64_t{4095}, .now = function_of(third.stubs()[0])});
               }).what,
               kPart);
  EXPECT_STREQ(refused([](Moves& moves) { moves[4].from += 1; }).what, kNone);
  EXPECT_STREQ(refused([](Moves& moves) { moves[4].from = moves[3].from; }).what, kNone);
  EXPECT_STREQ(refused([&](Moves& moves) { moves[4].now = function_of(third.stubs()[5]); }).what,
               "a function that moved is of another size than it was");
  EXPECT_STREQ(refused([](Moves& moves) { moves.clear(); }).what, "no function to register");
  EXPECT_STREQ(refused([](Moves& moves) { moves[2].now.rows = {}; }).what,
               "a function is described by a prologue or by rows");
  const auto blocking = registrar_->add(Functions{function_of(other.stubs()[3])});
  ASSERT_TRUE(blocking);
  const Error error = refused([](Moves&) {});
  EXPECT_STREQ(error.what, "registered already, and not removed");
  EXPECT_EQ(error.where, other.stubs()[3].begin());
}

INSTANTIATE_TEST_SUITE_P(All, EveryRegistry,
                         testing::Values(Registry::kWindlass, Registry::kFrameInfo, Registry::kGdb, Registry::kPerfMap,
                                         Registry::kJitdump));

// ---- the own walks --------------------------------------------------------------------------------------------------

// Which stubs a walk met, the innermost first.
std::vector<unsigned> met(const JitChain& chain, const std::vector<std::uint64_t>& pcs) {
  std::vector<unsigned> stubs;
  for (const std::uint64_t pc : pcs)
    for (unsigned i = 0; i < JitChain::kStubs; ++i)
      if (pc == chain.stubs()[i].return_address()) stubs.push_back(i);
  return stubs;
}
const std::vector<unsigned> kAll = {0, 1, 2, 3, 4, 5, 6, 7};

TEST(WindlassRegistry, WalksSeeABatchAtOnceAndNoLonger) {
  for (const std::size_t apart : {JitStub::kRoom, std::size_t{640}}) {
    const JitChain chain(apart);  // one range, or one each
    if (chain.room() == nullptr) GTEST_SKIP() << "SKIPPED: no memory that is writable and executable";
    const auto walk = [&] {
      std::vector<std::uint64_t> pcs(100);
      chain.through(
          JitChain::kStubs,
          [](void* to) {
            auto& found = *static_cast<std::vector<std::uint64_t>*>(to);
            found.resize(backtrace(found.data(), found.size()));
          },
          &pcs);
      return met(chain, pcs);
    };
    const auto registrar = open(Registry::kWindlass);
    const auto id = registrar->add(functions_of(chain));
    ASSERT_TRUE(id) << id.error().text();
    EXPECT_EQ(walk(), kAll);
    ASSERT_TRUE(registrar->remove(*id));
    const auto other = add_own_code(chain.stubs()[0].range());
    ASSERT_TRUE(other) << "the place is free";
    EXPECT_TRUE(retire_own_code(*other));
  }
}

TEST(WindlassRegistry, WalksSeeWhereCodeHasMovedTo) {
  const JitChain chain, other;
  if (chain.room() == nullptr || other.room() == nullptr)
    GTEST_SKIP() << "SKIPPED: no memory that is writable and executable";
  const auto walk = [](const JitChain& through) {
    std::vector<std::uint64_t> pcs(100);
    through.through(
        JitChain::kStubs,
        [](void* to) {
          auto& found = *static_cast<std::vector<std::uint64_t>*>(to);
          found.resize(backtrace(found.data(), found.size()));
        },
        &pcs);
    return met(through, pcs);
  };
  const auto registrar = open(Registry::kWindlass);
  const auto id = registrar->add(functions_of(chain));
  ASSERT_TRUE(id && registrar->move(*id, moves_of(chain, other)));
  EXPECT_EQ(walk(other), kAll);
  const auto other_code = add_own_code(chain.stubs()[0].range());
  ASSERT_TRUE(other_code) << "the place is free";
  EXPECT_TRUE(retire_own_code(*other_code));
}

// ---- a code manager
// --------------------------------------------------------------------------------------------------

TEST(CodeManagerRegistry, WalksSeeABatchAtOnceAndItsTableHasIt) {
  const JitChain chain;
  if (chain.room() == nullptr) GTEST_SKIP() << "SKIPPED: no memory that is writable and executable";
  const auto begin = reinterpret_cast<std::uint64_t>(chain.room());
  const auto walk = [&] {
    std::vector<std::uint64_t> pcs(100);
    chain.through(
        JitChain::kStubs,
        [](void* to) {
          auto& found = *static_cast<std::vector<std::uint64_t>*>(to);
          found.resize(backtrace(found.data(), found.size()));
        },
        &pcs);
    return met(chain, pcs);
  };
  const auto registrar =
      open_registrar(Registry::kCodeManager, {.heap_begin = begin, .heap_end = begin + JitChain::kCode});
  ASSERT_TRUE(registrar) << registrar.error().text();
  const auto id = (*registrar)->add(functions_of(chain));
  ASSERT_TRUE(id) << id.error().text();
  EXPECT_EQ(walk(), kAll);
  // The one description serves a registrar of another kind, too.
  const auto frames = open(Registry::kFrameInfo);
  const auto other = frames->add(functions_of(chain));
  EXPECT_TRUE(other) << other.error().text();

  GeneratedFunction outside = function_of(chain.stubs()[0]);
  outside.address = begin + JitChain::kCode;
  const auto refused = (*registrar)->add(Functions{outside});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfRange) << refused.error().text();
  ASSERT_TRUE((*registrar)->remove(*id));
  EXPECT_TRUE((*registrar)->add(functions_of(chain))) << "the place is free";
}

TEST(CodeManagerRegistry, AHeapOfNothingIsRefused) { EXPECT_FALSE(open_registrar(Registry::kCodeManager)); }

// ---- libgcc or LLVM -------------------------------------------------------------------------------------------------

bool of_llvm() { return ::dlsym(RTLD_DEFAULT, "__unw_add_dynamic_eh_frame_section") != nullptr; }

class FrameInfoRegistry : public testing::Test {
 protected:
  void SetUp() override {
    if (chain_.room() == nullptr) GTEST_SKIP() << "SKIPPED: no memory that is writable and executable";
  }
  [[nodiscard]] std::vector<unsigned> backtrace() const {
    std::vector<std::uint64_t> pcs;
    chain_.through(
        JitChain::kStubs,
        [](void* to) {
          _Unwind_Backtrace(
              [](_Unwind_Context* context, void* found) {
                static_cast<std::vector<std::uint64_t>*>(found)->push_back(_Unwind_GetIP(context));
                return _URC_NO_REASON;
              },
              to);
        },
        &pcs);
    return met(chain_, pcs);
  }
  [[nodiscard]] bool throws_across() const {
    try {
      chain_.through(
          JitChain::kStubs, [](void*) { throw 4711; }, nullptr);
    } catch (const int value) {
      return value == 4711;
    }
    return false;
  }

  const JitChain chain_;
  const std::unique_ptr<Registrar> registrar_ = open(Registry::kFrameInfo);
};

TEST_F(FrameInfoRegistry, ExceptionsAndBacktracesCrossABatch) {
  const auto id = registrar_->add(functions_of(chain_));
  ASSERT_TRUE(id) << id.error().text();
  EXPECT_EQ(backtrace(), kAll);
  EXPECT_TRUE(throws_across());
  ASSERT_TRUE(registrar_->remove(*id));
  EXPECT_NE(backtrace(), kAll) << "nobody knows the code any more";
}

TEST_F(FrameInfoRegistry, ExceptionsCrossCodeThatHasMoved) {
  const JitChain before;
  const auto id = registrar_->add(functions_of(before));
  ASSERT_TRUE(id);
  ASSERT_TRUE(registrar_->move(*id, moves_of(before, chain_)));
  EXPECT_EQ(backtrace(), kAll);
  EXPECT_TRUE(throws_across());
  ASSERT_TRUE(registrar_->remove(*id));
  EXPECT_NE(backtrace(), kAll);
}

// One batch each, and turn by turn in two: libgcc 13 and later want ranges that are apart.
TEST_F(FrameInfoRegistry, BatchesThatLieBetweenEachOther) {
  const Functions all = functions_of(chain_);
  Functions even, odd;
  for (std::size_t i = 0; i < all.size(); ++i) (i % 2 == 0 ? even : odd).push_back(all[i]);
  const auto first = registrar_->add(even);
  const auto second = registrar_->add(odd);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(backtrace(), kAll);
  EXPECT_TRUE(throws_across());
  ASSERT_TRUE(registrar_->remove(*first));
  EXPECT_LE(backtrace().size(), 1u) << "nobody knows how to leave the innermost";
  ASSERT_TRUE(registrar_->add(even));
  EXPECT_EQ(backtrace(), kAll);
}

TEST_F(FrameInfoRegistry, CodeInASmallGapOfABatchIsRefused) {
  if (of_llvm()) return;  // has no ranges
  std::vector<FrameRow> rows(1);
  const auto piece = [&](std::uint64_t offset) {
    rows[0].begin = 0;
    rows[0].end = 8;
    rows[0].cfa = CfaRule::at(Registers::sp_number(kOwnArchitecture), 8);
    return GeneratedFunction{
        .address = reinterpret_cast<std::uint64_t>(chain_.room()) + offset, .size = 8, .rows = rows};
  };
  ASSERT_TRUE(registrar_->add(Functions{piece(0), piece(40)}));
  const auto between = registrar_->add(Functions{piece(16)});
  ASSERT_FALSE(between);
  EXPECT_STREQ(between.error().what, "between functions of another batch, which are one range");
  EXPECT_TRUE(registrar_->add(Functions{piece(48)}));
}

// They have one unwinder behind them.
TEST_F(FrameInfoRegistry, RegistrarsKnowOfEachOther) {
  const Functions all = functions_of(chain_);
  auto other = open(Registry::kFrameInfo);
  const auto one = registrar_->add(Functions{all[3]});
  ASSERT_TRUE(one) << one.error().text();
  const auto refused = other->add(all);
  ASSERT_FALSE(refused);
  EXPECT_STREQ(refused.error().what, "registered already, and not removed");
  EXPECT_EQ(refused.error().where, all[3].address);
  EXPECT_EQ(other->remove(*one).error().code, ErrorCode::kNotFound) << "another's batch";
  ASSERT_TRUE(registrar_->remove(*one));
  ASSERT_TRUE(other->add(all));
  EXPECT_EQ(backtrace(), kAll);
  EXPECT_FALSE(registrar_->add(Functions{all[3]}));
  other.reset();
  EXPECT_TRUE(registrar_->add(Functions{all[3]})) << "its code went with it";
}

TEST_F(FrameInfoRegistry, TheSameAddressAgainWithOtherFrames) {
  for (unsigned round = 0; round < 20; ++round) {
    const JitChain other(round % 2 == 0 ? JitStub::kRoom : 640);
    const auto id = registrar_->add(functions_of(other));
    ASSERT_TRUE(id) << id.error().text();
    bool caught = false;
    try {
      other.through(
          JitChain::kStubs, [](void*) { throw 1; }, nullptr);
    } catch (int) {
      caught = true;
    }
    EXPECT_TRUE(caught);
    ASSERT_TRUE(registrar_->remove(*id));
  }
}

TEST_F(FrameInfoRegistry, AChildOfForkHasWhatWasRegistered) {
  ASSERT_TRUE(registrar_->add(functions_of(chain_)));
  const pid_t child = ::fork();
  if (child == 0) ::_exit(throws_across() && backtrace() == kAll ? 0 : 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// All of libgcc's in a process of LLVM's unwinder.
TEST(FrameInfoByLlvm, All) {
  if (of_llvm()) return;
  std::string library;
  for (const char* path : {"/usr/lib/x86_64-linux-gnu/libunwind.so.1", "/usr/lib/aarch64-linux-gnu/libunwind.so.1"})
    if (::access(path, R_OK) == 0) library = path;
  if (library.empty() || kOwnArchitecture != Architecture::kX86_64)
    GTEST_SKIP() << "SKIPPED: there is no libunwind of LLVM";
  const auto again = run(fmt::format(
      "ASAN_OPTIONS=verify_asan_link_order=0 LD_PRELOAD={} /proc/{}/exe --gtest_filter='FrameInfoRegistry.*' 2>&1",
      library, ::getpid()));
  EXPECT_EQ(again.status, 0) << again.output;
  EXPECT_NE(again.output.find("[  PASSED  ] 7 tests"), std::string::npos) << again.output;
}

}  // namespace
}  // namespace windlass::test
