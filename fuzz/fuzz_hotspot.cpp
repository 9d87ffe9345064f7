// Input: words of 8 bytes to write over a small HotSpot's structures: which of them (1 byte), where (1, counted in
// bytes), how many bytes (1), from what (1: as it stands, or from the code's begin on), and 8 bytes. Whatever they say,
// reading ends, and what it finds contains what was asked for.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "check.h"
#include "os/process_memory.h"
#include "runtimes/find.h"
#include "runtimes/hotspot/find.h"
#include "support/fake_hotspot.h"

namespace {

using namespace windlass;
namespace fake = test::fake_hotspot;

struct Patch {
  std::uint64_t at = 0;
  std::size_t size = 0;
  std::uint64_t value = 0;
};

class PatchedMemory final : public Memory {
 public:
  PatchedMemory(const std::uint8_t* data, std::size_t size) {
    const struct {
      void* at;
      std::size_t size;
    } parts[] = {{fake::code_memory + fake::kBlockAt, 1024},
                 {fake::segment_map, sizeof fake::segment_map},
                 {&fake::heap, sizeof fake::heap},
                 {&fake::heap_array, sizeof fake::heap_array},
                 {&fake::queue, sizeof fake::queue},
                 {&fake::pool, sizeof fake::pool},
                 {&fake::outer_const, sizeof fake::outer_const},
                 {&fake::inner_const, sizeof fake::inner_const},
                 {&fake::outer, sizeof fake::outer},
                 {&fake::class_name, sizeof fake::class_name},
                 {fake::fields, sizeof fake::fields},
                 {fake::types, sizeof fake::types}};
    constexpr std::size_t kStored = 12;
    for (; size >= kStored; data += kStored, size -= kStored) {
      const auto& part = parts[data[0] % std::size(parts)];
      Patch patch{reinterpret_cast<std::uint64_t>(part.at) + (data[1] + data[3] / 2 * 256U) % part.size,
                  std::min<std::size_t>(data[2] % 9U, 8), 0};
      std::memcpy(&patch.value, data + 4, sizeof patch.value);
      if ((data[3] & 1) != 0)
        patch.value = reinterpret_cast<std::uint64_t>(fake::code_memory) + patch.value % sizeof fake::code_memory;
      patches_.push_back(patch);
    }
  }

  bool read(std::uint64_t address, void* to, std::size_t size) const override {
    if (!memory_.read(address, to, size)) return false;
    for (const Patch& patch : patches_)
      for (std::size_t i = 0; i < patch.size; ++i)
        if (const std::uint64_t at = patch.at + i - address; at < size)
          static_cast<std::uint8_t*>(to)[at] = static_cast<std::uint8_t>(patch.value >> 8 * i);
    return true;
  }

 private:
  os::MemoryFile memory_{::getpid()};
  std::vector<Patch> patches_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::uint64_t image = (fake::make_method(), fake::fake_image());
  const PatchedMemory memory(data, std::min<std::size_t>(size, 1024));
  const auto runtime = runtimes::hotspot::open(runtimes::unowned(memory), image);
  for (const std::uint64_t pc : {fake::code_at(), fake::code_at() + 5, fake::code_at() + fake::kCodeSize - 1,
                                 fake::code_at() + 300, reinterpret_cast<std::uint64_t>(fake::code_memory)}) {
    const auto method = runtime->method_at(pc);
    if (!method) continue;
    FUZZ_CHECK((*method)->contains(pc));
    FrameRow row;
    if ((*method)->row_at(pc, row)) FUZZ_CHECK(row.begin <= pc && pc < row.end);
    std::uint64_t before = 0;
    (*method)->for_each_row(
        [&](const FrameRow& it) {
          FUZZ_CHECK(it.begin < it.end && it.begin >= before);
          before = it.begin;
        },
        [](const Error&) {});
    std::vector<sources::NamedFunction> names;
    runtime->functions_at(**method, pc, names);
    Registers frame(Architecture::kX86_64);
    frame.set(6, reinterpret_cast<std::uint64_t>(fake::code_memory) + 512);
    frame.set_pc(CodeAddress::instruction(pc));
    if (const auto function = runtime->frame_function(**method, pc, frame, memory)) (void)runtime->name_of(*function);
    (void)runtime->is_still(**method);
  }
  return 0;
}
