// Garbage collector roots: where each frame of a stack keeps references to objects. A runtime's own methods have stack
// maps in an encoding of this library. LLVM's statepoint stack maps are read directly.
//
// To encode a method's map, kept as long as the method:
//
//   StackMap map{.code_size = size, .sites = {{.offset = 17, .live = {{.place = at_sp(8)}}}}};
//   method.roots = *encode(map);
//
// For example, a collector that moves objects:
//
//   for (const CrawlFrame& frame : ManagedWalker(thread, registers, kGcFuncletReferences))
//     each_root(frame, memory, [](const Root& root) { root.set(forward(root.value)); });
//
// Reading neither allocates nor locks; signal-safe if reading the memory is. Every read is bounded, whatever the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "windlass/function_ref.h"
#include "windlass/managed/walk.h"

namespace windlass::managed {

// Places of a frame. For example, at_cfa(-16) is the word 16 bytes below the CFA.
[[nodiscard]] constexpr FramePlace at_sp(std::int32_t offset) { return {FramePlace::kAtSp, 0, offset}; }
[[nodiscard]] constexpr FramePlace at_cfa(std::int32_t offset) { return {FramePlace::kAtCfa, 0, offset}; }
[[nodiscard]] constexpr FramePlace in_register(RegisterNumber reg) { return {FramePlace::kInRegister, reg, 0}; }
[[nodiscard]] constexpr FramePlace at_register(RegisterNumber reg, std::int32_t offset) {
  return {FramePlace::kAtRegister, reg, offset};
}

// ---- writing ------------------------------------------------------------------------------------------------------

// A place that can hold a reference.
struct RootSlot {
  FramePlace place;       // Offsets are multiples of 8.
  bool interior = false;  // May point into the middle of an object.
  bool pinned = false;    // The object may not move.
  bool operator==(const RootSlot& other) const {
    return place.base == other.place.base && place.reg == other.place.reg && place.offset == other.place.offset &&
           interior == other.interior && pinned == other.pinned;
  }
};

// A pointer into an object that another slot refers to. When the object moves, this pointer moves by the same distance.
struct DerivedSlot {
  RootSlot slot;
  RootSlot base;  // Live wherever `slot` is.
};

// The live slots at a place of the code.
struct RootSite {
  std::uint32_t offset = 0;  // The offset into the code: behind a call, or of the instruction of a safe point.
  std::vector<RootSlot> live = {};
};

// The live slots of a method, at each of its sites.
struct StackMap {
  std::uint32_t code_size = 0;
  // Slots that are live throughout the body. No others are live once the frame has faulted and will not go on
  // ("execution aborted").
  std::vector<RootSlot> always = {};
  std::vector<DerivedSlot> derived = {};
  std::vector<RootSite> sites = {};  // Ascending by offset.
};

// Encodes a map for Method::roots. Takes 12 bytes, 4 for each slot, 2 or 3 for each site of most methods, and a bit a
// slot for each distinct set of live slots. Linear, except that equal slots and sets are searched.
//
// Errors, with the offset of a site as `where`:
// - kMalformed: sites that do not ascend, or lie outside of the code.
// - kMalformed: a slot that is twice in a set.
// - kMalformed: a derived slot whose base is not live with it, or is derived itself.
// - kOutOfRange: an offset that is no multiple of 8, or beyond 256 KiB.
// - kLimit: more than 65,535 slots, sites or sets.
[[nodiscard]] Expected<std::vector<std::byte>> encode(const StackMap& map);

// ---- roots --------------------------------------------------------------------------------------------------------

// A reference that a frame holds.
struct Root {
  std::uint64_t value = 0;  // The reference, or the derived pointer.
  // The address of the reference. 0: it is in register `reg` of the frame itself, which the thread has at hand.
  std::uint64_t address = 0;
  RegisterNumber reg = 0;
  bool interior = false;
  bool pinned = false;
  bool derived = false;    // `value` points into the object at `base`. This root comes before the root of its base.
  std::uint64_t base = 0;  // As it was read.

  // Stores a new value at `address`. In the own process.
  void set(std::uint64_t to) const {
    if (address != 0) *reinterpret_cast<std::uint64_t*>(address) = to;
  }
};

// Called for each root.
using RootSink = FunctionRef<void(const Root&)>;

// Calls function(argument), with all registers that calls preserve stored on the stack before, and loaded afterwards.
// So a reference that generated code keeps in a register has an address, and a collector may change it. For helpers
// that call a collector. 3 ns.
// NOLINTNEXTLINE(readability-redundant-declaration)
extern "C" void windlass_call_saving_registers(void (*function)(void*), void* argument);

// Calls `sink` for each root of a frame. The walk must be without kLightUnwind and kQuickUnwind. Logarithmic in the
// sites.
//
// - A method: by its stack map (Method::roots); none if that is empty.
// - An explicit frame: the references that it protects.
// - An exception record: the exception.
//
// Errors: kNotFound if the map has no site for this pc, the `where`; kUnreadable; errors of the map, with the place in
// the map as `detail`.
[[nodiscard]] Expected<void> each_root(const CrawlFrame& frame, const Memory& memory, RootSink sink);
// The same. For a transition frame also the arguments (Runtime::each_argument()).
[[nodiscard]] Expected<void> each_root(const CrawlFrame& frame, const ManagedThread& thread, RootSink sink);
// Calls `sink` for each root of a thread: all frames and exceptions, from `registers`. Without registers, from the
// thread's list. The flags that a collector needs are set; `flags` may add kThreadIsSuspended. After an error, the
// roots that were reported stand.
[[nodiscard]] Expected<void> each_root(const ManagedThread& thread, const Registers& registers, WalkFlags flags,
                                       RootSink sink);

// ---- LLVM ---------------------------------------------------------------------------------------------------------

// The stack maps of a section .llvm_stackmaps, version 3, of code with statepoints. Specification: LLVM, "Stack maps
// and patch points in LLVM" and "Garbage Collection with LLVM: Statepoints".
class LlvmStackMaps {
 public:
  // A location: a reference, or the reference from which another location is derived.
  struct Location {
    enum Kind : std::uint8_t { kRegister = 1, kDirect, kIndirect, kConstant, kConstantIndex } kind = kConstant;
    RegisterNumber reg = 0;
    std::int32_t offset = 0;
    bool operator==(const Location&) const = default;
  };

  // Reads a section, which must not change while this object lives. Function addresses in the section are those of the
  // process. Allocates 16 bytes a record. Errors, with an offset in the section as `where`: kUnsupported for another
  // version, kTruncated, kMalformed.
  [[nodiscard]] static Expected<LlvmStackMaps> open(std::span<const std::byte> section);

  // The number of records.
  [[nodiscard]] std::size_t size() const { return records_.size(); }
  // The return address of the call of record n, ascending.
  [[nodiscard]] std::uint64_t address(std::size_t n) const { return records_[n].address; }
  // True if a record has this return address. Logarithmic.
  [[nodiscard]] bool has(std::uint64_t return_address) const;
  // As each_root() above, for a frame that stands behind a call. A location that the record names several times is
  // reported once.
  [[nodiscard]] Expected<void> each_root(const CrawlFrame& frame, const Memory& memory, RootSink sink) const;
  // Calls callback(base, derived) for each pair of a statepoint. The two are equal for a reference that is not derived.
  // Errors: kNotFound; kMalformed for a record that is no statepoint's.
  template <typename Callback>
  Expected<void> each_pair(std::uint64_t return_address, Callback&& callback) const {
    const auto pairs = pairs_at(return_address);
    if (!pairs) return Failure(pairs.error());
    for (std::uint64_t i = 0; i < pairs->count; ++i)
      callback(location(pairs->first + 2 * i * kLocationSize), location(pairs->first + (2 * i + 1) * kLocationSize));
    return {};
  }

 private:
  static constexpr std::uint64_t kLocationSize = 12;
  struct Record {
    std::uint64_t address;
    std::uint64_t at;  // The offset of the record in the section.
  };
  struct Pairs {
    std::uint64_t first;  // The offset of the first pair's base.
    std::uint64_t count;
  };
  [[nodiscard]] Expected<Pairs> pairs_at(std::uint64_t return_address) const;
  [[nodiscard]] Expected<Pairs> pairs_of(const Record& record) const;
  void note_repeated(const Record& record);
  [[nodiscard]] Expected<std::uint64_t> read_map(std::uint64_t at);
  [[nodiscard]] Location location(std::uint64_t at) const;

  ByteView section_;
  std::vector<Record> records_;
  // Offsets of pairs whose location another pair of the record shows; ascending.
  std::vector<std::uint64_t> repeated_;
};

}  // namespace windlass::managed
