#include "formats/winarm64/frames.h"

#include <array>

namespace windlass::winarm64 {
namespace {

// x0 .. x(Count-1) from `first` on, then the slots given.
template <std::size_t Count, std::size_t More>
constexpr std::array<FrameSlot, Count + More> registers_from(std::uint16_t first, const FrameSlot (&more)[More]) {
  std::array<FrameSlot, Count + More> slots{};
  for (std::size_t i = 0; i < Count; ++i)
    slots[i] = {static_cast<RegisterNumber>(i), static_cast<std::uint16_t>(first + i * 8)};
  for (std::size_t i = 0; i < More; ++i) slots[Count + i] = more[i];
  return slots;
}

// x19-x28 are not in it: the kernel's own code has not changed them yet.
constexpr auto kTrap = registers_from<19>(0xa0, {{kFp, 0x140}, {kLr, 0x138}, {kSp, 0x98}, {kPc, 0x148}});

constexpr FrameSlot kMachine[] = {{kSp, 0}, {kPc, 8}};

// d8-d15 are the low halves of v8-v15, 16 bytes each from 0x110 on.
constexpr auto kContext = registers_from<29>(0x8, {{kFp, 0xf0},
                                                   {kLr, 0xf8},
                                                   {kSp, 0x100},
                                                   {kPc, 0x108},
                                                   {72, 0x190},
                                                   {73, 0x1a0},
                                                   {74, 0x1b0},
                                                   {75, 0x1c0},
                                                   {76, 0x1d0},
                                                   {77, 0x1e0},
                                                   {78, 0x1f0},
                                                   {79, 0x200}});

// An x64 CONTEXT in which ARM64EC's registers have places. x13, x14, x18, x23, x24 and x28 have none. x16 and x17 are
// spread over the top of the x87 registers.
constexpr FrameSlot kEc[] = {{8, 0x78},   {0, 0x80},   {1, 0x88},   {27, 0x90},   {kSp, 0x98}, {kFp, 0xa0}, {25, 0xa8},
                             {26, 0xb0},  {2, 0xb8},   {3, 0xc0},   {4, 0xc8},    {5, 0xd0},   {19, 0xd8},  {20, 0xe0},
                             {21, 0xe8},  {22, 0xf0},  {kPc, 0xf8}, {kLr, 0x120}, {6, 0x130},  {7, 0x140},  {9, 0x150},
                             {10, 0x160}, {11, 0x170}, {12, 0x180}, {15, 0x190},  {72, 0x220}, {73, 0x230}, {74, 0x240},
                             {75, 0x250}, {76, 0x260}, {77, 0x270}, {78, 0x280},  {79, 0x290}};

constexpr SystemFrame kTrapLayout{kTrap, -1, false};
constexpr SystemFrame kMachineLayout{kMachine, -1, false};
constexpr SystemFrame kContextLayout{kContext, 0, true};
constexpr SystemFrame kEcLayout{kEc, 0x30, true};

}  // namespace

const SystemFrame& system_frame_layout(Operation operation) {
  switch (operation) {
    case Operation::kTrapFrame: return kTrapLayout;
    case Operation::kContext: return kContextLayout;
    case Operation::kEcContext: return kEcLayout;
    default: return kMachineLayout;
  }
}

}  // namespace windlass::winarm64
