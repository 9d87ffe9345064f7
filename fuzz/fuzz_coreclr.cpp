// Input: words of 8 bytes to write over a small CoreCLR's structures: where (2 bytes, counted in bytes), how many bytes
// (1), from what (1: as it stands, or from the block's begin on), and 8 bytes. Whatever they say, reading ends, and
// what it finds contains what was asked for.
#include <algorithm>
#include <cstring>
#include <memory>

#include "check.h"
#include "runtimes/coreclr/descriptor.h"
#include "runtimes/coreclr/find.h"
#include "runtimes/coreclr/frames.h"
#include "runtimes/find.h"
#include "support/fake_coreclr.h"

namespace {

using namespace windlass;
using test::BlockMemory;
using test::FakeCoreClr;

struct Patch {
  std::uint16_t at;
  std::uint8_t size, relative;
  std::uint64_t value;
};

BlockMemory patched(const FakeCoreClr& fake, const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kStored = 12;
  BlockMemory memory = fake.memory();
  for (; size >= kStored; data += kStored, size -= kStored) {
    Patch patch{};
    std::memcpy(&patch.at, data, 2);
    patch.size = data[2], patch.relative = data[3];
    std::memcpy(&patch.value, data + 4, 8);
    if ((patch.relative & 1) != 0) patch.value = memory.base() + patch.value % (memory.bytes().size() + 64);
    const std::size_t at = patch.at % memory.bytes().size();
    std::memcpy(memory.bytes().data() + at, &patch.value,
                std::min<std::size_t>({patch.size % 9U, memory.bytes().size() - at, 8}));
  }
  return memory;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const FakeCoreClr fake;
  const BlockMemory memory = patched(fake, data, std::min<std::size_t>(size, 4096));
  const auto runtime = runtimes::coreclr::open(runtimes::unowned(memory), {.descriptor = fake.descriptor});
  for (const std::uint64_t pc :
       {fake.first, fake.first + 5, fake.second + 600, fake.handler, fake.stub, fake.stub + 1, fake.stub + 700}) {
    const auto method = runtime->method_at(pc);
    if (!method) continue;
    FUZZ_CHECK((*method)->contains(pc));
    FrameRow row;
    if ((*method)->row_at(pc, row)) FUZZ_CHECK(row.begin <= pc && pc < row.end);
    unsigned rows = 0;
    (*method)->for_each_row([&](const FrameRow& it) { FUZZ_CHECK(it.begin <= it.end && ++rows < 1U << 24); },
                            [](const Error&) {});
    (void)runtime->is_still(**method);
  }
  const auto descriptor = runtimes::coreclr::Descriptor::read(memory, fake.descriptor);
  if (!descriptor) return 0;
  const auto frames = runtimes::coreclr::ExplicitFrames::make(*descriptor);
  if (!frames) return 0;
  if (const auto threads = frames->read(memory))
    for (const auto& thread : *threads)
      FUZZ_CHECK(std::ranges::is_sorted(thread.frames, {}, &runtimes::coreclr::ExplicitFrame::address));
  return 0;
}
