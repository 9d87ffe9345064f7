// What a collector wants of a stack: where each frame keeps references to objects. A runtime's own methods have stack
// maps in an encoding of ours, LLVM's have its statepoint stack maps, which are read as they are.
//
//   StackMap map{.code_size = size, .sites = {{.offset = 17, .live = {{.place = at_sp(8)}}}}};
//   method.roots = *encode(map);                                   // kept as long as the method
//   for (const CrawlFrame& frame : ManagedWalker(thread, registers, kGcFuncletReferences))
//     each_root(frame, memory, [](const Root& root) { root.set(forward(root.value)); });
//
// Reading neither allocates nor locks; signal-safe where the memory is. It is bounded whatever the bytes are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "windlass/function_ref.h"
#include "windlass/managed_walk.h"

namespace windlass::managed {

[[nodiscard]] constexpr FramePlace at_sp(std::int32_t offset) { return {FramePlace::kAtSp, 0, offset}; }
[[nodiscard]] constexpr FramePlace at_cfa(std::int32_t offset) { return {FramePlace::kAtCfa, 0, offset}; }
[[nodiscard]] constexpr FramePlace in_register(RegisterNumber reg) { return {FramePlace::kInRegister, reg, 0}; }
[[nodiscard]] constexpr FramePlace at_register(RegisterNumber reg, std::int32_t offset) {
  return {FramePlace::kAtRegister, reg, offset};
}

// ---- writing ------------------------------------------------------------------------------------------------------

struct RootSlot {
  FramePlace place;       // offsets are multiples of 8
  bool interior = false;  // may point into an object
  bool pinned = false;    // what it points to may not move
  bool operator==(const RootSlot& other) const {
    return place.base == other.place.base && place.reg == other.place.reg && place.offset == other.place.offset &&
           interior == other.interior && pinned == other.pinned;
  }
};

// A pointer into an object that another slot refers to: to be moved by as much as that.
struct DerivedSlot {
  RootSlot slot;
  RootSlot base;  // live wherever it is
};

struct RootSite {
  std::uint32_t offset = 0;  // into the code: behind a call, or of the instruction of a safe point
  std::vector<RootSlot> live = {};
};

struct StackMap {
  std::uint32_t code_size = 0;
  // Live throughout the body, and all that is when the frame has faulted and will not go on ("execution aborted").
  std::vector<RootSlot> always = {};
  std::vector<DerivedSlot> derived = {};
  std::vector<RootSite> sites = {};  // ascending by offset
};

// The bytes for Method::roots: 12, 4 a slot, 2 or 3 a site for most methods, and a bit a slot for each distinct set of
// live ones. Linear but for finding equal slots and sets. Errors, `where` the offset of a site: kMalformed for sites
// that do not ascend or do not lie in the code, a slot twice in a set, a derived slot whose base is not live with it
// or derived itself;
// kOutOfRange for an offset that is no multiple of 8 or beyond 256 KiB; kLimit for more than 65,535 of anything.
[[nodiscard]] Expected<std::vector<std::byte>> encode(const StackMap& map);

// ---- roots --------------------------------------------------------------------------------------------------------

struct Root {
  std::uint64_t value = 0;    // the reference, or what it is derived from
  std::uint64_t address = 0;  // where it is; 0: in `reg` of the frame itself, which the thread has at hand
  RegisterNumber reg = 0;
  bool interior = false;
  bool pinned = false;
  bool derived = false;    // `value` points into the object at `base`. Comes before the root that is its base
  std::uint64_t base = 0;  // as it was read

  // In the own process.
  void set(std::uint64_t to) const {
    if (address != 0) *reinterpret_cast<std::uint64_t*>(address) = to;
  }
};

using RootSink = FunctionRef<void(const Root&)>;

// function(argument), with all registers that calls preserve stored on the stack before and loaded behind: whatever
// generated code keeps in one has an address then, and is what the collector has made of it when this returns. For
// helpers from which a collector is called. 3 ns.
extern "C" void windlass_call_saving_registers(void (*function)(void*), void* argument);

// Those of one frame of a walk without kLightUnwind and kQuickUnwind: of a method by its stack map (Method::roots; none
// if that is empty), of an explicit frame those that it protects, of an exception record the exception. Errors:
// kNotFound, `where` the pc, where the map has nothing for this place; kUnreadable; what is wrong with the map,
// `detail` the place in it. Logarithmic in the sites.
[[nodiscard]] Expected<void> each_root(const CrawlFrame& frame, const Memory& memory, RootSink sink);
// The same, and of a transition frame the arguments, too (Runtime::each_argument).
[[nodiscard]] Expected<void> each_root(const CrawlFrame& frame, const ManagedThread& thread, RootSink sink);
// Those of one thread: of all its frames, with its exceptions, from `registers` (none: from its list). `flags` beside
// those that a collector needs: kThreadIsSuspended. What was shown before an error stands.
[[nodiscard]] Expected<void> each_root(const ManagedThread& thread, const Registers& registers, WalkFlags flags,
                                       RootSink sink);

// ---- LLVM ---------------------------------------------------------------------------------------------------------

// The stack maps of a .llvm_stackmaps section, version 3, of code with statepoints. Sources: LLVM, "Stack maps and
// patch points in LLVM", "Garbage Collection with LLVM: Statepoints".
class LlvmStackMaps {
 public:
  // One location, and the one that it is derived from: the same where it is a reference itself.
  struct Location {
    enum Kind : std::uint8_t { kRegister = 1, kDirect, kIndirect, kConstant, kConstantIndex } kind = kConstant;
    RegisterNumber reg = 0;
    std::int32_t offset = 0;
    bool operator==(const Location&) const = default;
  };

  // `section` stays as it is as long as this lives; its function addresses are those of the process. Allocates 16 bytes
  // a record. Errors, `where` an offset in the section: kUnsupported for another version, kTruncated, kMalformed.
  [[nodiscard]] static Expected<LlvmStackMaps> open(std::span<const std::byte> section);

  [[nodiscard]] std::size_t size() const { return records_.size(); }
  // The return address of the n-th record's call, ascending.
  [[nodiscard]] std::uint64_t address(std::size_t n) const { return records_[n].address; }
  [[nodiscard]] bool has(std::uint64_t return_address) const;
  // As each_root() above for a frame, which stands behind a call; a location that the record names several times once.
  [[nodiscard]] Expected<void> each_root(const CrawlFrame& frame, const Memory& memory, RootSink sink) const;
  // The pairs of a statepoint: callback(base, derived). Errors: kNotFound; kMalformed for a record that is none.
  template <typename Callback>
  Expected<void> each_pair(std::uint64_t return_address, Callback&& callback) const {
    const auto pairs = pairs_at(return_address);
    if (!pairs) return std::unexpected(pairs.error());
    for (std::uint64_t i = 0; i < pairs->count; ++i)
      callback(location(pairs->first + 2 * i * kLocationSize), location(pairs->first + (2 * i + 1) * kLocationSize));
    return {};
  }

 private:
  static constexpr std::uint64_t kLocationSize = 12;
  struct Record {
    std::uint64_t address;
    std::uint64_t at;  // offset of the record in the section
  };
  struct Pairs {
    std::uint64_t first;  // offset of the first pair's base
    std::uint64_t count;
  };
  [[nodiscard]] Expected<Pairs> pairs_at(std::uint64_t return_address) const;
  [[nodiscard]] Expected<Pairs> pairs_of(const Record& record) const;
  void note_repeated(const Record& record);
  [[nodiscard]] Expected<std::uint64_t> read_map(std::uint64_t at);
  [[nodiscard]] Location location(std::uint64_t at) const;

  ByteView section_;
  std::vector<Record> records_;
  std::vector<std::uint64_t> repeated_;  // offsets of pairs whose location another one of the record shows; ascending
};

}  // namespace windlass::managed
