#include "flow/stack_switch.h"

#include "flow/stack_effect.h"

namespace windlass::flow {
namespace {

// Some bytes look so by chance.
bool may_set_rsp(ByteView code) {
  const std::uint8_t* bytes = code.u8();
  bool found = false;
  for (std::size_t i = 0; i + 2 < code.size(); ++i) {
    const bool wide = (bytes[i] & 0xfa) == 0x48;  // REX.W, with or without B
    const bool load = bytes[i + 1] == 0x8b && (bytes[i + 2] & 0x38) == 0x20;
    const bool move = bytes[i + 1] == 0x89 && (bytes[i + 2] & 0xc7) == 0xc4;
    found |= wide & (load | move);
  }
  return found;
}

}  // namespace

std::optional<std::uint64_t> replaces_stack(ByteView function, std::uint64_t address) {
  using Kind = StackEffect::Kind;
  if (!may_set_rsp(function)) return std::nullopt;
  StraightCode line(function, address, kLargestSwitch);
  while (const auto effect = line.next())
    if (effect->kind == Kind::kSet || effect->kind == Kind::kUnknown) return address + line.end();
  return std::nullopt;
}

}  // namespace windlass::flow
