// Methods of .NET that the kernel side leaves by their own unwind information (bpf/windlass_coreclr.h), as user code,
// beside the agent's reader of the same memory.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "base/registers.h"
#include "fake_target.h"
#include "formats/winx64/epilogue.h"
#include "lookup/table/project.h"
#include "lookup/table/trace_row.h"
#include "runtimes/coreclr/find.h"
#include "runtimes/coreclr/rows.h"
#include "runtimes/find.h"
#include "support/fake_coreclr.h"

namespace windlass::testing {
namespace {

namespace coreclr = runtimes::coreclr;

// Memory of a process with a heap, as the agent and the kernel side see it.
class Process {
 public:
  Process(const Memory& memory, const wl_code_heap& heap) : memory_(memory) {
    unwind_->env.context = this;
    unwind_->env.read = [](void* context, void* to, __u32 size, __u64 address) {
      return static_cast<Process*>(context)->memory_.read(address, to, size) ? 0 : 1;
    };
    std::memcpy(&unwind_->learned, &heap, sizeof heap);
  }
  // Nothing: it leaves the frame to the agent.
  std::optional<wl_rule> rule(std::uint64_t pc, bool exact) {
    unwind_->cursor.exact = exact ? 1 : 0;
    if (wl_find_method_rule(unwind_.get(), pc) != 0) return std::nullopt;
    return unwind_->rule;
  }
  [[nodiscard]] bool may_end(std::uint64_t pc) const {
    std::uint8_t code[2] = {};
    return !memory_.read(pc, code, sizeof code) || winx64::may_begin_epilogue(code[0], code[1]);
  }

 private:
  const Memory& memory_;
  std::unique_ptr<wl_unwind> unwind_ = std::make_unique<wl_unwind>();
};

void expect_row(const wl_rule& rule, const FrameRow& row, std::uint64_t pc) {
  const wl_rule expected = table::without_end(table::project(row, Architecture::kX86_64, WL_NO_XREG));
  EXPECT_EQ(std::memcmp(&rule, &expected, sizeof rule), 0)
      << std::hex << pc << std::dec << ": " << rule.cfa_offset << " for " << expected.cfa_offset << ", rbp at "
      << rule.fp_offset << " for " << expected.fp_offset;
}

TEST(CoreClrRule, MethodsOfAHeapNeedNoLesson) {
  const test::FakeCoreClr fake;
  const test::BlockMemory memory = fake.memory();
  const auto runtime = coreclr::open(runtimes::unowned(memory), {.descriptor = fake.descriptor});
  const auto heap = runtime->heap_of(fake.first);
  ASSERT_TRUE(heap);
  Process process(memory, *heap);
  for (const std::uint64_t pc : {fake.first + 4, fake.second + 1, fake.second + 600, fake.handler + 1}) {
    const auto method = runtime->method_at(pc);
    ASSERT_TRUE(method);
    FrameRow row;
    ASSERT_TRUE((*method)->row_at(pc, row));
    for (const bool exact : {true, false}) {
      if (exact && process.may_end(pc)) continue;
      const auto rule = process.rule(pc, exact);
      ASSERT_TRUE(rule) << std::hex << pc;
      expect_row(*rule, row, pc);
    }
  }
  EXPECT_FALSE(process.rule(fake.first + 6, true)) << "add rsp: an epilogue begins";
  EXPECT_TRUE(process.rule(fake.first + 6, false)) << "a call returns in no epilogue";
  EXPECT_FALSE(process.rule(fake.stub, false)) << "a stub is no method";
  EXPECT_FALSE(process.rule(fake.handler + 4, false)) << "behind the last function";
  EXPECT_FALSE(process.rule(heap->end, false));
  EXPECT_FALSE(process.rule(heap->begin, false)) << "in front of the first method";
}

TEST(CoreClrRule, OldMapsAreLeftToTheAgent) {
  const test::FakeCoreClr fake({.execution_manager = 1});
  const test::BlockMemory memory = fake.memory();
  EXPECT_FALSE(coreclr::open(runtimes::unowned(memory), {.descriptor = fake.descriptor})->heap_of(fake.first));
}

// A heap of methods at random, of all codes that the kernel side undoes, and of some that it does not.
class RandomHeap {
 public:
  static constexpr std::uint64_t kBase = 0x7f00'0000'0000, kSize = 0x10000, kMap = kSize, kInfo = kSize + 0x4000,
                                 kAll = 0x80000;
  explicit RandomHeap(unsigned seed) : random_(seed), memory_(kBase, std::vector<std::byte>(kAll)), info_(kInfo) {
    for (std::uint64_t at = 64; at < kSize - 4096;) {
      add(at);
      at = (blocks.back().end() - kBase + 63) / 32 * 32 + below(3) * 32 + below(8) * 4;
    }
    heap.begin = heap.base = heap.map_base = kBase;
    heap.end = kBase + kSize;
    heap.map = kBase + kMap;
    heap.count = 32;
    heap.functions = 36;
    heap.last_stub = 15;
  }
  const test::BlockMemory& memory() const { return memory_; }
  std::vector<coreclr::CodeBlock> blocks;
  wl_code_heap heap{};

 private:
  std::uint32_t below(std::uint32_t end) { return static_cast<std::uint32_t>(random_() % end); }
  template <typename T>
  void put(std::uint64_t at, T value) {
    std::memcpy(memory_.bytes().data() + at, &value, sizeof value);
  }
  // UNWIND_INFO; its place.
  std::uint32_t make_info(std::uint32_t size) {
    std::vector<std::uint16_t> codes;  // the first one done first
    std::uint32_t offset = 0;
    const auto add = [&](unsigned operation, unsigned info, std::initializer_list<std::uint32_t> slots = {}) {
      offset = std::min(offset + 1 + below(4), std::min(size, 250U));
      std::vector<std::uint16_t> code{static_cast<std::uint16_t>(offset | operation << 8 | info << 12)};
      for (const std::uint32_t slot : slots) code.push_back(static_cast<std::uint16_t>(slot));
      codes.insert(codes.begin(), code.begin(), code.end());
    };
    constexpr unsigned kSaved[] = {5, 3, 12, 13, 14, 15};
    for (const unsigned reg : kSaved)
      if (below(2) == 0) add(0, reg);
    if (below(2) == 0) add(2, below(16));
    if (below(3) == 0) add(1, 0, {below(5000)});
    if (below(9) == 0) add(1, 1, {below(65536) & ~7U, below(3)});
    if (below(4) == 0) add(4, kSaved[below(6)], {below(4)});
    if (below(9) == 0) add(5, kSaved[below(6)], {below(3) * 8, 0});
    if (below(9) == 0) add(8, 6, {below(4)});
    if (below(9) == 0) add(9, 6, {below(4) * 16, 0});
    const auto at = static_cast<std::uint32_t>(info_);
    put(info_, static_cast<std::uint8_t>(1 | below(4) << 3));
    put(info_ + 1, static_cast<std::uint8_t>(offset));
    put(info_ + 2, static_cast<std::uint8_t>(codes.size()));
    info_ += 4;
    for (const std::uint16_t code : codes) put(info_, code), info_ += 2;
    info_ = (info_ + 3) / 4 * 4 + 8;
    return at;
  }
  void add(std::uint64_t at) {
    coreclr::CodeBlock block;
    block.begin = kBase + at;
    block.base = kBase;
    std::uint64_t next = at;
    for (std::uint32_t functions = below(4) == 0 ? 1 + below(10) : 1; functions > 0; --functions) {
      const std::uint32_t size = 20 + below(below(4) == 0 ? 900 : 100);
      const auto begin = static_cast<std::uint32_t>(next);
      block.functions.push_back({begin, begin + size, make_info(size)});
      next += size;
    }
    for (std::uint64_t i = at; i < next; ++i) put(i, static_cast<std::uint8_t>(random_()));
    info_ = (info_ + 7) / 8 * 8;
    block.header = kBase + info_;
    put(at - 8, block.header);
    put(info_ + 32, static_cast<std::uint32_t>(block.functions.size()));
    for (const auto& function : block.functions) {
      const auto index = static_cast<std::size_t>(&function - block.functions.data());
      put(info_ + 36 + index * 12, function);
    }
    info_ += 36 + block.functions.size() * 12 + 96;
    const std::uint64_t unit = kMap + at / 256 * 4;
    std::uint32_t nibbles = 0;
    std::memcpy(&nibbles, memory_.bytes().data() + unit, 4);
    put(unit, static_cast<std::uint32_t>(nibbles | (at % 32 / 4 + 1) << (28 - at / 32 % 8 * 4)));
    for (std::uint64_t covered = at / 256 + 1; (covered + 1) * 256 <= next; ++covered)
      put(kMap + covered * 4, static_cast<std::uint32_t>((at & ~15ULL) | (9 + at % 16 / 4)));
    blocks.push_back(std::move(block));
  }

  std::mt19937 random_;
  test::BlockMemory memory_;
  std::uint64_t info_;
};

TEST(CoreClrRule, AgreesWithTheAgentAtEveryAddress) {
  std::size_t served = 0, refused = 0;
  for (unsigned seed = 1; seed <= 6; ++seed) {
    const RandomHeap random(seed);
    Process process(random.memory(), random.heap);
    std::uint64_t last = RandomHeap::kBase;
    for (const coreclr::CodeBlock& block : random.blocks) {
      for (std::uint64_t pc = last; pc < block.begin; ++pc)
        ASSERT_FALSE(process.rule(pc, false)) << std::hex << pc << ": no method is there";
      last = block.end();
      const auto method = coreclr::CodeMethod::read(random.memory(), block);
      ASSERT_TRUE(method) << method.error().text();
      for (std::uint64_t pc = block.begin; pc < block.end(); ++pc) {
        FrameRow row;
        const bool ends = process.may_end(pc), known = (*method)->row_at(pc, row).has_value();
        const auto interrupted = process.rule(pc, true), called = process.rule(pc, false);
        if (ends) {
          EXPECT_FALSE(interrupted) << std::hex << pc;
          continue;
        }
        EXPECT_EQ(interrupted.has_value(), called.has_value());
        (called ? served : refused) += 1;
        if (!called) continue;
        ASSERT_TRUE(known) << std::hex << pc;
        expect_row(*called, row, pc);
        expect_row(*interrupted, row, pc);
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GT(served, 100'000U);
  EXPECT_LT(refused, served / 10) << "functions behind the eighth of their method";
}

// What a process has there may be anything.
TEST(CoreClrRule, DamagedMemoryIsLeftToTheAgent) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    const test::FakeCoreClr fake;
    test::BlockMemory memory = fake.memory();
    const auto heap = coreclr::open(runtimes::unowned(memory), {.descriptor = fake.descriptor})->heap_of(fake.first);
    for (int i = 0; i < 8; ++i) memory.bytes()[random() % memory.bytes().size()] = std::byte(random());
    Process process(memory, *heap);
    for (const std::uint64_t pc : {fake.first + 4, fake.second + 300, fake.handler + 1, fake.stub})
      (void)process.rule(pc, round % 2 == 0);
  }
}

// The whole way: a lesson of the heap, and a stack of two of its frames.
TEST(CoreClrRule, AStackIsWalkedByTheHeapsLesson) {
  const test::FakeCoreClr fake;
  test::BlockMemory memory = fake.memory();
  const auto heap = coreclr::open(runtimes::unowned(memory), {.descriptor = fake.descriptor})->heap_of(fake.first);
  ASSERT_TRUE(heap);
  FakeTarget target;
  wl_mapping code{};
  code.begin = fake.first & ~4095ULL;
  code.end = code.begin + 4096;
  code.kind = WL_MAPPING_LEARNED;
  target.set_mappings({code});
  std::vector<std::uint8_t> bytes(memory.bytes().size());
  ASSERT_TRUE(memory.read(memory.base(), bytes.data(), bytes.size()));
  target.write_code(memory.base(), bytes);
  // first() in its body, called by second() behind its push, called by the handler.
  target.write(FakeTarget::kStack, {7, fake.second + 100, 3, fake.handler + 2, 3, 0, 0});
  const auto walk = [&] { return target.walk(FakeTarget::cursor(fake.first + 4, FakeTarget::kStack, 0)); };
  EXPECT_EQ(walk().size(), 1U) << "nothing is known";
  wl_learned lesson;
  std::memcpy(&lesson, &*heap, sizeof lesson);
  target.teach(fake.first & ~std::uint64_t{WL_LEARNED_HEAP_BYTES - 1}, WL_LEARNED_HEAP, lesson);
  const auto frames = walk();
  ASSERT_GE(frames.size(), 3U);
  EXPECT_EQ(frames[1], fake.second + 100);
  EXPECT_EQ(frames[2], fake.handler + 2);
  EXPECT_GE(target.scratch->unwind.learned_frames, 3U);
  target.set_mappings({});
  EXPECT_EQ(walk().size(), frames.size()) << "the agent has not heard yet that the code is there";
  target.lessons.begin()->second.places ^= 1;
  EXPECT_EQ(walk().size(), 1U) << "half of another element";
}

}  // namespace
}  // namespace windlass::testing
