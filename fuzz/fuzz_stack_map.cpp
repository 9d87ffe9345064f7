// Input: a byte, whose lowest bit says whose encoding the rest is, ours or LLVM's. Reading ends, says where it fails,
// and what it shows of a frame it shows once.
#include <algorithm>
#include <utility>
#include <vector>

#include "check.h"
#include "managed/gc_roots.h"
#include "unit/managed/made_up_stack.h"

namespace {

using namespace windlass;
using namespace windlass::managed;

// A method whose stack map the input is, called by another one; it stands at each place in turn.
struct OneFrame : MadeUpStack {
  OneFrame() : method(runtime.add(1, 8)) {
    call(method, 33);
    for (std::uint64_t i = 0; i < 4; ++i) mem->put(sp + 8 * i, 10 + i);
  }
  [[nodiscard]] CrawlFrame at(std::uint64_t offset, bool faulted) {
    pc = method.begin + offset;
    ManagedWalker walker(thread, registers(), 0);
    FUZZ_CHECK(walker.next());
    CrawlFrame frame = walker.frame();
    frame.faulted = faulted;
    return frame;
  }
  Method& method;
};

void read_ours(OneFrame& frame, std::span<const std::byte> bytes) {
  frame.method.roots = bytes;
  const auto map = MapReader::open(bytes);
  for (std::uint64_t offset = 1; offset <= kCodeSize; ++offset)
    for (const bool faulted : {false, true}) {
      std::size_t shown = 0;
      const auto done = each_root(frame.at(offset, faulted), *frame.mem, [&](const Root& root) {
        ++shown;
        FUZZ_CHECK(root.address != 0 || root.reg < 256);
      });
      if (!map && !bytes.empty()) FUZZ_CHECK(!done && shown == 0);
      if (!map) continue;
      FUZZ_CHECK(shown <= map->slots());
      if (!faulted && !map->set_at(offset)) FUZZ_CHECK(!done);
    }
}

void read_llvm(OneFrame& frame, std::span<const std::byte> bytes) {
  const auto maps = LlvmStackMaps::open(bytes);
  if (!maps) return;
  for (std::size_t i = 0; i < std::min<std::size_t>(maps->size(), 64); ++i) {
    const std::uint64_t at = maps->address(i);
    FUZZ_CHECK(maps->has(at) && (i == 0 || maps->address(i - 1) <= at));
    std::size_t pairs = 0;
    (void)maps->each_pair(at, [&](const auto&, const auto&) { ++pairs; });
    CrawlFrame shown = frame.at(0x10, false);
    shown.registers.set_pc(CodeAddress::return_address(at));
    for (RegisterNumber reg = 0; reg < 16; ++reg)
      if (!shown.registers.has(reg)) shown.registers.set(reg, frame.sp + 8 * reg);
    std::vector<std::uint64_t> seen;
    (void)maps->each_root(shown, *frame.mem, [&](const Root& root) {
      if (root.address == 0) FUZZ_CHECK(root.reg < 128);
      seen.push_back(root.address);
    });
    FUZZ_CHECK(seen.size() <= pairs);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  OneFrame frame;
  const std::span bytes(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  if ((data[0] & 1) != 0)
    read_llvm(frame, bytes);
  else
    read_ours(frame, bytes);
  return 0;
}
