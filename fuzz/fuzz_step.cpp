// Input: an architecture, registers, call frame information, code and a stack. Whatever they are, a walk ends, with a
// reason, within its limit, and gives no frame outside known code.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "check.h"
#include "support/walk_target.h"

namespace {

using namespace windlass;
using test::WalkTarget;

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : at_(data), end_(data + size) {}
  [[nodiscard]] bool empty() const { return at_ == end_; }
  std::uint8_t byte() { return at_ != end_ ? *at_++ : 0; }
  std::vector<std::uint8_t> bytes(std::size_t most) {
    const std::size_t size = std::min<std::size_t>(most, static_cast<std::size_t>(end_ - at_));
    at_ += size;
    return {at_ - size, at_};
  }

 private:
  const std::uint8_t* at_;
  const std::uint8_t* end_;
};

constexpr std::uint64_t kStack = 0x7fff'0000'0000, kStackSize = 4096, kFunctionSize = 64;
constexpr unsigned kFunctions = 8;
constexpr std::size_t kMaxFrames = 32;

// Mostly addresses that mean something: small inputs shall lead far.
std::uint64_t some_value(Input& input) {
  const std::uint8_t kind = input.byte();
  const std::uint8_t low = input.byte();
  switch (kind % 5) {
    case 0: return WalkTarget::pc(low * std::uint64_t{2});
    case 1: return kStack + low * std::uint64_t{8};
    case 2: return kStack + low;
    case 3: return low;
    default: return std::uint64_t{kind} << 56 | std::uint64_t{low} << 40 | low;
  }
}

void walk_all(const AddressSpace& space, const Registers& registers, bool synthesize) {
  StackWalker walker(space, registers, {kMaxFrames, synthesize});
  std::size_t frames = 1;
  while (walker.step()) {
    const Frame& frame = walker.frame();
    ++frames;
    FUZZ_CHECK(frames <= kMaxFrames);
    // What a signal interrupted may have jumped anywhere.
    if (frame.pc().is_return_address())
      FUZZ_CHECK(frame.module != nullptr && space.module_at(frame.pc().lookup()) != nullptr);
    FUZZ_CHECK(frame.sp() % 8 == 0 && frame.sp() >> 56 == 0);
    FUZZ_CHECK(frame.origin != FrameOrigin::kContext);
  }
  FUZZ_CHECK(walker.end_reason() != WalkEnd::kRunning);
  FUZZ_CHECK(walker.end_reason() == WalkEnd::kComplete || *walker.error().what != '\0');
  FUZZ_CHECK(!walker.step());  // it stays ended
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  const std::uint8_t flags = input.byte();
  const Architecture architecture = (flags & 1) != 0 ? Architecture::kAArch64 : Architecture::kX86_64;
  // No more code than there are functions: an analysis would follow thousands of zeros behind it, in each frame.
  WalkTarget target(architecture, kFunctions * kFunctionSize);
  const test::CieSpec usual = target.cie_spec();
  test::CieSpec signal = usual;
  signal.augmentation = "zRS";
  for (unsigned i = 0; i < kFunctions; ++i) {
    const test::CieSpec& spec = (flags >> 1 & 1) != 0 && i == 1 ? signal : usual;
    test::Bytes instructions;
    instructions.data() = input.bytes(input.byte() % 24);
    if ((flags >> 2 & 1) == 0 || i != 2) target.function(i * kFunctionSize, kFunctionSize, instructions, spec);
  }
  target.start(input.bytes(input.byte()));
  Registers registers(architecture);
  for (RegisterNumber reg = 0; reg < (architecture == Architecture::kX86_64 ? 16 : 31); ++reg)
    if (reg < 8 || reg >= 29 || (flags & 0x80) != 0) registers.set(reg, some_value(input));
  registers.set_sp(kStack + input.byte() * std::uint64_t{8});
  const std::uint64_t pc = some_value(input);
  registers.set_pc((flags >> 3 & 1) != 0 ? CodeAddress::instruction(pc) : CodeAddress::return_address(pc));
  for (std::uint64_t at = 0; at < kStackSize && !input.empty(); at += 8)
    target.memory().set(kStack + at, some_value(input));
  walk_all(target.space(), registers, false);
  walk_all(target.space(), registers, true);
  return 0;
}
