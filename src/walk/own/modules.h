// The modules of the own process, found in any context without a lock or an allocation. dlopen and dlclose give no
// notice. So code that keeps facts about a module keeps the module's tag, and checks in each walk that the tag is still
// valid.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "formats/dwarf/eh_frame_hdr.h"
#include "walk/module.h"
#include "windlass/function_ref.h"

namespace windlass::walk {

class PreparedRules;

// What the dynamic linker has loaded around an address. A program may have gaps between its segments.
struct LoadedObject {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t bias = 0;
  std::uint64_t eh_frame_hdr = 0;  // address; 0: none
  bool operator==(const LoadedObject& other) const {
    return begin == other.begin && end == other.end && bias == other.bias && eh_frame_hdr == other.eh_frame_hdr;
  }
};

// False where nothing is loaded. Signal-safe, lock-free: `_dl_find_object` (glibc 2.35), elsewhere a snapshot of
// dl_iterate_phdr made by refresh_loaded().
[[nodiscard]] bool find_loaded(std::uint64_t address, LoadedObject& object);
// May it be the program, of which alone there may be gaps between segments?
[[nodiscard]] bool is_program(const LoadedObject& object);
// Where there is no `_dl_find_object`: takes a new snapshot. Locks: not for signal handlers.
void refresh_loaded();

// The call frame information of a loaded object as it is mapped. Views into memory: valid while it is loaded.
struct MappedCfi {
  dwarf::EhFrameHdr header;
  dwarf::CfiSection eh_frame;
};
// False, with why, if there is none that can be searched.
[[nodiscard]] Expected<void> map_cfi(const LoadedObject& object, MappedCfi& cfi);

// GNU's build id, of which the first 20 bytes count, as it is mapped; empty where there is none.
inline constexpr std::uint32_t kMaxBuildId = 20;
[[nodiscard]] std::span<const std::uint8_t> loaded_build_id(const LoadedObject& object);

// Is [address, address + size) code or a constant of a module that cannot be unloaded? No system call.
[[nodiscard]] bool always_readable(std::uint64_t address, std::size_t size);

// One module that a walk has met, under a tag that no other content of the address space ever gets.
class OwnModule {
 public:
  constexpr OwnModule() {}  // NOLINT(modernize-use-equals-default): which a union would have deleted

  static constexpr std::uint16_t kNeverUnloaded = 0;     // cannot be unloaded: nothing to verify
  static constexpr std::uint16_t kUncacheable = 0xffff;  // nothing may be kept about it across walks

  [[nodiscard]] const LoadedObject& object() const { return object_; }
  [[nodiscard]] std::uint16_t tag() const { return tag_.load(std::memory_order_relaxed); }
  [[nodiscard]] const Module& module() const { return *module_; }
  // Is it what is loaded around this address, now and for good? False where that has to be asked.
  [[nodiscard]] bool stays_at(std::uint64_t address) const {
    return tag() == kNeverUnloaded && address - object_.begin < object_.end - object_.begin && !module_->has_gaps();
  }
  // Its call frame information: as it was found when the module was entered where that cannot have changed, else anew.
  [[nodiscard]] Expected<void> cfi(MappedCfi& cfi) const {
    if (!cfi_usable_ || tag() == kUncacheable) return map_cfi(object_, cfi);
    cfi = cfi_;
    return {};
  }
  // Made by prepare(), or null.
  [[nodiscard]] const PreparedRules* prepared() const { return prepared_.load(std::memory_order_acquire); }
  void publish(const PreparedRules* rules) const { prepared_.store(rules, std::memory_order_release); }

 private:
  friend class OwnModules;
  enum State : std::uint32_t { kEmpty, kBusy, kReady };
  [[nodiscard]] bool is(const LoadedObject& object) const;

  // All zero until it is entered, so that a process whose stacks nobody walks touches no page of them.
  std::atomic<std::uint32_t> state_ = kEmpty;
  std::atomic<std::uint16_t> tag_ = 0;
  std::uint16_t generation_ = 0;
  LoadedObject object_;
  union {
    std::byte no_cfi_{};
    MappedCfi cfi_;
  };
  bool cfi_usable_ = false;
  std::uint64_t build_id_at_ = 0;  // address in the image; 0: none
  std::uint32_t build_id_size_ = 0;
  std::uint8_t build_id_[kMaxBuildId] = {};
  mutable std::atomic<const PreparedRules*> prepared_ = nullptr;
  Module* module_ = nullptr;  // in `place_`, beside the rest: the first walk of a process shall touch few pages
  alignas(Module) std::byte place_[sizeof(Module)] = {};
};

// All modules, in static storage. Once the table is full, entries of unloaded modules are used again, under new tags.
// Walkers have no use any more for data of such a module.
class OwnModules {
 public:
  static constexpr std::size_t kCapacity = 1024;

  // The module around an address, entered if it is new; null where nothing is loaded or (all entries being of loaded
  // modules) there is no room. Signal-safe.
  [[nodiscard]] static const OwnModule* find(std::uint64_t address);
  // Those met so far that are still loaded.
  static void for_each(FunctionRef<void(const OwnModule&)> callback);
  // Is the module around `address` the same as when `tag` was given? Signal-safe, some 15 ns. The address must be on a
  // stack: only then its module is certainly not being unloaded (glibc unmaps first and tells later).
  [[nodiscard]] static bool verify(std::uint16_t tag, std::uint64_t address);

 private:
  [[nodiscard]] static const OwnModule* enter(const LoadedObject& object);
  static void fill(OwnModule& entry, std::size_t index, const LoadedObject& object);
};

}  // namespace windlass::walk
