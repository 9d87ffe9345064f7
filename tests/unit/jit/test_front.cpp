// A heap's front is read back, and unwinds code in the heap: exact but at the instructions that code_heap.h names.
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "formats/winarm64/exec.h"
#include "formats/winx64/exec.h"
#include "support/pe_builder.h"
#include "unit/formats/dwarf/collect.h"
#include "windlass/jit/code_heap.h"

namespace windlass {
namespace {

using Offsets = std::set<std::uint32_t>;

constexpr std::uint64_t kBase = 0x1'4000'0000, kHeap = kBase + test::PeBuilder::kAlignment;
constexpr std::uint64_t kRoutine = 0x7ff8'1234'5678;
constexpr std::uint64_t kReturn = 0x7ff8'0000'1111, kSp = 0x2000, kOuterFrame = 0x2040;  // on entry

struct Stack {
  std::map<std::uint64_t, std::uint64_t> words;
  bool read(std::uint64_t address, void* to, std::size_t size) const {
    for (std::size_t i = 0; i < size; i += 8) {
      const auto at = words.find(address + i);
      if (at == words.end()) return false;
      std::memcpy(static_cast<char*>(to) + i, &at->second, 8);
    }
    return true;
  }
};

// A heap in memory as an image: what the system's look-up finds by the table in the front.
class HeapImage {
 public:
  HeapImage(const CodeHeap& heap, const HeapFront& front) {
    const bool x64 = heap.architecture == Architecture::kX86_64;
    test::PeBuilder builder(x64 ? image::PeMachine::kAmd64 : image::PeMachine::kArm64);
    bytes_.resize(heap.end - heap.begin - 1);
    std::memcpy(bytes_.data(), front.bytes.data(), front.bytes.size());
    builder.set_directory(image::PeDirectory::kException, test::PeBuilder::kAlignment + front.table,
                          front.entries * (x64 ? 12 : 8));
    builder.add(".heap", bytes_, true);
    file_ = builder.build();
    image_ = image::PeImage::parse(ByteView(std::span<const std::uint8_t>(file_)));
  }
  void put(std::uint64_t address, const std::vector<std::uint8_t>& code) {
    std::copy(code.begin(), code.end(), file_.begin() + static_cast<std::ptrdiff_t>(address - kBase));
  }
  [[nodiscard]] const image::PeImage& image() const { return *image_; }

 private:
  std::vector<std::uint8_t> bytes_, file_;
  Expected<image::PeImage> image_ = Failure(Error{});
};

// An instruction of a function: where it begins, where sp is (on entry: 0), and is the frame pointer its own?
struct State {
  std::uint32_t offset;
  std::int64_t sp;
  bool framed;
};

Registers x64_state(std::uint64_t function, const State& state) {
  Registers frame(Architecture::kX86_64);
  for (unsigned i = 0; i < 16; ++i) frame.set(winx64::dwarf_number(i), 0x100 + i);
  frame.set_sp(kSp + static_cast<std::uint64_t>(state.sp));
  frame.set(6, state.framed ? kSp - 8 : kOuterFrame);
  frame.set_pc(CodeAddress::instruction(function + state.offset));
  return frame;
}

// Offsets at which the caller is not the one there is.
Offsets wrong_x64(const HeapImage& heap, std::uint64_t function, const std::vector<State>& states) {
  const Stack stack{{{kSp, kReturn},
                     {kSp - 8, kOuterFrame},
                     {kOuterFrame, 0x3000},
                     {kOuterFrame + 8, kReturn + 0x1000}}};  // the caller's caller
  const winx64::Functions functions(heap.image());
  Offsets wrong;
  for (const State& state : states) {
    winx64::Unwound to;
    if (!winx64::virtual_unwind(functions, kBase, stack, x64_state(function, state), to) ||
        to.caller.pc().value() != kReturn || to.caller.sp() != kSp + 8 || to.caller.get(6) != kOuterFrame)
      wrong.insert(state.offset);
  }
  return wrong;
}

TEST(HeapFront, X64IsExactBehindPrologues) {
  const CodeHeap heap{.begin = kHeap, .end = kHeap + 0x40000, .base = kBase, .handler = kRoutine};
  const auto front = write_heap_front(heap);
  ASSERT_TRUE(front) << front.error().text();
  EXPECT_EQ(front->code, kHeap + 0x1000);
  EXPECT_EQ(front->entries, 1U);
  HeapImage made(heap, *front);
  // push rbp; mov rbp, rsp; sub rsp, 32; nop; and epilogues.
  const std::vector<std::uint8_t> begin = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x20, 0x90};
  const std::vector<State> body = {{0, 0, false}, {1, -8, false}, {4, -8, true}, {8, -40, true}};
  const auto with = [](auto list, const auto& more) {
    list.insert(list.end(), more.begin(), more.end());
    return list;
  };
  struct Exit {
    std::vector<std::uint8_t> code;
    std::vector<State> states;
    Offsets wrong;
  };
  const Exit exits[] = {
      {{0x48, 0x83, 0xc4, 0x20, 0x5d, 0xc3}, {{9, -40, true}, {13, -8, true}, {14, 0, false}}, {}},  // add; pop; ret
      {{0x48, 0x89, 0xec, 0x5d, 0xc3}, {{9, -40, true}, {12, -8, true}, {13, 0, false}}, {}},        // mov; pop; ret
      {{0xc9, 0xc3}, {{9, -40, true}, {10, 0, false}}, {}},                                          // leave; ret
  };
  std::uint64_t function = kHeap + 0x1000;  // the heap's first is exact throughout
  for (const Exit& exit : exits)
    for (int place = 0; place < 3; ++place, function += 0x4440) {
      made.put(function, with(begin, exit.code));
      Offsets wrong = exit.wrong;
      if (function != front->code) wrong.insert({0, 1});
      EXPECT_EQ(wrong_x64(made, function, with(body, exit.states)), wrong) << std::hex << function;
    }
  // The very last byte is covered, the front is not: its thunk is a leaf.
  EXPECT_TRUE(winx64::Functions(made.image()).find(static_cast<std::uint32_t>(heap.end - 1 - kBase)));
  EXPECT_FALSE(winx64::Functions(made.image()).find(static_cast<std::uint32_t>(kHeap + front->thunk - kBase)));
}

TEST(HeapFront, X64HandlerIsTheThunk) {
  for (int passes = 1; passes < 4; ++passes) {
    const bool first = (passes & 1) != 0, second = (passes & 2) != 0;
    const CodeHeap heap{.begin = kHeap,
                        .end = kHeap + 0x40000,
                        .base = kBase,
                        .handler = kRoutine,
                        .on_exception = first,
                        .on_unwind = second};
    const auto front = write_heap_front(heap);
    ASSERT_TRUE(front) << front.error().text();
    const HeapImage made(heap, *front);
    const Stack stack{{{kSp, kReturn}, {kSp - 8, kOuterFrame}}};
    winx64::Unwound to;
    ASSERT_TRUE(winx64::virtual_unwind(winx64::Functions(made.image()), kBase, stack,
                                       x64_state(kHeap + 0x9000, {4, -8, true}), to));
    EXPECT_EQ(kBase + to.handler, kHeap + front->thunk);
    EXPECT_EQ((to.handler_flags & winx64::kEhandler) != 0, first);
    EXPECT_EQ((to.handler_flags & winx64::kUhandler) != 0, second);
    const std::byte* thunk = &front->bytes[front->thunk];
    std::int32_t displacement;
    std::uint64_t target;
    std::memcpy(&displacement, thunk + 2, 4);
    std::memcpy(&target, thunk + 6 + displacement, 8);
    EXPECT_EQ(target, kRoutine);
  }
}

TEST(HeapFront, RvasCountFromTheBegin) {
  const CodeHeap heap{.begin = 0x7fff'0000'0000, .end = 0x7fff'0100'0000, .handler = kRoutine};
  const auto front = write_heap_front(heap);
  ASSERT_TRUE(front);
  std::uint32_t entry[3], handler;
  std::memcpy(entry, front->bytes.data(), sizeof entry);
  EXPECT_EQ(entry[0], 0x1000U);
  EXPECT_EQ(entry[1], 0x100'0000U);
  const auto info =
      winx64::parse_unwind_info(ByteView(front->bytes.data(), front->bytes.size()).sub(entry[2], 16).value(), entry[2]);
  ASSERT_TRUE(info);
  EXPECT_EQ(info->handler, front->thunk);
  std::memcpy(&handler, &front->bytes[entry[2] + 8], 4);
  EXPECT_EQ(handler, front->thunk);
}

TEST(HeapFront, Arm64IsCutIntoChunks) {
  constexpr std::uint64_t kMiB = 1 << 20;
  const CodeHeap heap{.architecture = Architecture::kAArch64,
                      .begin = kHeap,
                      .end = kHeap + 5 * kMiB,
                      .base = kBase,
                      .handler = kRoutine};
  const auto front = write_heap_front(heap);
  ASSERT_TRUE(front) << front.error().text();
  EXPECT_EQ(front->entries, 5U);
  const HeapImage made(heap, *front);
  const winarm64::Functions functions(made.image());
  const Stack stack{
      {{kSp - 16, kOuterFrame}, {kSp - 8, kReturn}, {kOuterFrame, 0x3000}, {kOuterFrame + 8, kReturn + 0x1000}}};
  const winarm64::ExecContext context{.image_base = kBase};
  // stp x29, x30, [sp, #-16]!; mov x29, sp; sub sp, sp, #32; ...; mov sp, x29; ldp x29, x30, [sp], #16; ret
  const State states[] = {{0, 0, false},   {4, -16, false}, {8, -16, true}, {12, -48, true},
                          {16, -48, true}, {20, -16, true}, {24, 0, false}};
  std::set<std::uint32_t> ends;
  std::uint64_t covered = front->code;
  for (std::uint32_t i = 0; i < front->entries; ++i) {
    std::uint32_t begin;
    std::memcpy(&begin, &front->bytes[front->table + std::size_t{8} * i], 4);
    EXPECT_EQ(kBase + begin, covered) << i;
    winarm64::Expansion storage;
    const auto at = winarm64::locate(functions, begin, storage);
    ASSERT_TRUE(at) << at.error().text();
    EXPECT_LE(at->record.length, kMiB);
    covered += at->record.length;
    for (const std::uint64_t function : {kBase + begin + 0x40, covered - 28}) {
      Offsets wrong;
      for (const State& state : states) {
        Registers frame(Architecture::kAArch64), caller(Architecture::kAArch64);
        for (RegisterNumber reg = 19; reg < 29; ++reg) frame.set(reg, reg);
        frame.set_sp(kSp + static_cast<std::uint64_t>(state.sp));
        frame.set(29, state.framed ? kSp - 16 : kOuterFrame);
        frame.set(30, state.offset == 16 ? 0x1234 : kReturn);
        frame.set_pc(CodeAddress::instruction(function + state.offset));
        const auto to = winarm64::virtual_unwind(functions, context, stack, frame, caller);
        if (!to || caller.pc().value() != kReturn || caller.sp() != kSp || caller.get(29) != kOuterFrame)
          wrong.insert(state.offset);
        if (state.framed && to) {
          EXPECT_EQ(kBase + to->handler, kHeap + front->thunk);
        }
      }
      EXPECT_EQ(wrong, (Offsets{0, 4, 24})) << std::hex << function;
    }
  }
  EXPECT_EQ(covered, heap.end);
}

TEST(HeapFront, Arm64GrowsItsFront) {
  const CodeHeap heap{.architecture = Architecture::kAArch64, .begin = 0x1'0000'0000, .end = 0x1'f000'0000};
  const auto front = write_heap_front(heap);
  ASSERT_TRUE(front) << front.error().text();
  EXPECT_GE(front->entries, 0xf00U);
  EXPECT_GT(front->code, heap.begin + heap.page);
  EXPECT_LE(front->bytes.size(), front->code - heap.begin);
}

TEST(HeapFront, DwarfIsOneFunction) {
  for (const Architecture architecture : {Architecture::kX86_64, Architecture::kAArch64}) {
    const CodeHeap heap{.architecture = architecture,
                        .format = HeapFormat::kDwarf,
                        .begin = kHeap,
                        .end = kHeap + 0x8000'0000,
                        .handler = kRoutine};
    const auto front = write_heap_front(heap);
    ASSERT_TRUE(front) << front.error().text();
    dwarf::CfiSection section;
    section.bytes = ByteView(front->bytes.data(), front->bytes.size());
    section.address = kHeap;
    section.architecture = architecture;
    section.stop_at_terminator = true;
    const test::Listing listing = test::list(section);
    ASSERT_TRUE(listing.errors.empty()) << listing.errors[0].text();
    ASSERT_EQ(listing.fdes.size(), 1U);
    EXPECT_EQ(listing.fdes[0].begin, front->code);
    EXPECT_EQ(listing.fdes[0].end, heap.end);
    const bool x64 = architecture == Architecture::kX86_64;
    const FrameRow& last = listing.rows.back();
    EXPECT_EQ(last.begin, front->code + (x64 ? 4 : 8));
    EXPECT_EQ(last.end, heap.end);
    EXPECT_EQ(last.cfa.reg(), x64 ? 6 : 29);
    EXPECT_EQ(last.cfa.offset(), 16);
  }
}

TEST(HeapFront, ImpossibleHeapsAreErrors) {
  const auto refusal = [](const CodeHeap& heap) {
    const auto front = write_heap_front(heap);
    return front ? Error{.code = ErrorCode::kNotFound, .what = "nothing was refused"} : front.error();
  };
  constexpr std::uint64_t k4GiB = std::uint64_t{1} << 32;
  const char *const kPages = "a heap that does not begin and end at a page", *const kOrder =
                                                                                 "a heap that ends before it begins";
  for (const HeapFormat format : {HeapFormat::kWindows, HeapFormat::kDwarf}) {
    const auto expect = [&](const CodeHeap& heap, const char* what) {
      EXPECT_STREQ(refusal(heap).what, what);
      EXPECT_EQ(refusal(heap).code, ErrorCode::kMalformed);
    };
    expect({.format = format}, kOrder);
    expect({.format = format, .begin = 0x2000, .end = 0x1000}, kOrder);
    expect({.format = format, .begin = 0x1004, .end = 0x9000}, kPages);
    expect({.format = format, .begin = 0x1000, .end = 0x9001}, kPages);
    expect({.format = format, .begin = 0x1000, .end = 0x2000}, "a heap without room for code behind its front");
    expect({.format = format, .begin = 0x1000, .end = 0x9000, .page = 0}, kPages);
    expect({.format = format, .begin = 0x1000, .end = 0x9000, .base = 0x2000}, "a base behind the heap's begin");
    EXPECT_EQ(refusal({.format = format, .begin = 0x1000, .end = 0x1000 + k4GiB}).code, ErrorCode::kOutOfRange);
    EXPECT_EQ(refusal({.format = format, .begin = k4GiB, .end = k4GiB + 0x9000, .base = 0x1000}).code,
              ErrorCode::kOutOfRange);
    EXPECT_EQ(refusal({.architecture = Architecture::kI386, .format = format, .begin = 0x1000, .end = 0x9000}).code,
              ErrorCode::kUnsupported);
  }
}

}  // namespace
}  // namespace windlass
