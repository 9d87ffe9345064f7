// Stack walking: an address space (memory, modules, code ranges), and a walker over the frames of a thread.
//
// For example, to print the stack of a thread of a process:
//
//   const auto target = open_process(pid);   // target.h; also core files and minidumps
//
//   for (const Frame& frame : StackWalker(target->space, target->threads[0].registers)) print(frame.pc().value());
//
// The own stack: backtrace.h. Names: symbols.h. How sure a frame is: docs/explanation/certainty.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "windlass/bytes.h"
#include "windlass/error.h"
#include "windlass/jit/code_range.h"
#include "windlass/registers.h"

namespace windlass {

// The bytes of a process, live or dead. Each walker calls these functions from one thread at a time. In a space that
// signal handlers walk, the functions must neither allocate nor lock.
class Memory {
 public:
  virtual ~Memory() = default;
  // Copies the target's bytes [address, address + size). False if any of the bytes cannot be read.
  [[nodiscard]] virtual bool read(std::uint64_t address, void* to, std::size_t size) const = 0;
  // The address in this process at which the target's bytes can be read directly, so that a stack need not be copied
  // word by word. Null if the bytes are not in this process, or not contiguous; read() may still know them. The pointer
  // is valid until the next call of any function of this object.
  [[nodiscard]] virtual const std::byte* in_place(std::uint64_t /*address*/, std::size_t /*size*/) const {
    return nullptr;
  }
  // Reads code that neither read() nor the module's file has: for snapshots that hold little code. May read the present
  // state of a process that runs on. Called for instructions alone, never for the stack.
  [[nodiscard]] virtual bool read_code(std::uint64_t /*address*/, void* /*to*/, std::size_t /*size*/) const {
    return false;
  }
};

// A loaded file, or a mapped image without a file, for example the vdso.
struct ModuleInfo {
  std::uint64_t begin = 0;  // The first address of the module.
  std::uint64_t end = 0;    // The address behind the last.
  std::uint64_t bias = 0;   // Address in the process - bias = address in the file's numbering. In PE images that is the
                            // RVA.
  std::string path;         // The path as the process knows the file, for example "[vdso]".
  std::string file;         // Where to read the file here, if under another path: /proc/PID/map_files, a sysroot. Else
                            // empty.
  bool windows = false;     // A PE image with a path of Windows: read only at `file`.
};

// How a frame was found from its callee. In C: WINDLASS_ORIGIN_...
enum class FrameOrigin : std::uint8_t {
  kContext,       // The registers that the walk started with.
  kCfi,           // DWARF call frame information: .eh_frame or .debug_frame.
  kSynthesis,     // The instructions of the code itself.
  kFramePointer,  // The chain of frame pointers.
  kLeaf,          // The return address on top of the stack, or in the link register.
  kPdata,         // Unwind information of a PE image: .pdata and .xdata.
};
// A word for people, for example "cfi". A string literal. Signal-safe.
[[nodiscard]] std::string_view origin_name(FrameOrigin origin);

// How sure a frame is the caller of the frame before; the surest first. docs/explanation/certainty.md has the rules.
enum class FrameCertainty : std::uint8_t {
  kDescribed,  // By unwind information, or by rules of the system: signal frames, leaves on Windows. The first frame of
               // a walk, too.
  kProved,     // By the code: followed without a call to its return, or the ways in and out agree.
  kChecked,    // By code followed past calls, or by a frame pointer that the code uses. Also, the call fits: the call
               // before the return address leads to the function that was left, or to the address in a register.
  kChained,    // By an intact chain of frame pointers alone. Each saved frame pointer lies above the one before, and
               // each return address stands behind a call.
  kGuessed,    // None of these.
};
// A word for people, for example "described". A string literal. Signal-safe.
[[nodiscard]] std::string_view certainty_name(FrameCertainty certainty);

// How a walk ended. Every end but kComplete leaves an Error that names the address. kComplete is proven:
// docs/explanation/certainty.md says how. A walk with a guessed frame ends as kGuessed. A walk with a chained frame
// ends as kChained.
enum class WalkEnd : std::uint8_t {
  kRunning,     // The walk has not ended.
  kComplete,    // The outermost frame was reached.
  kNoModule,    // The pc lies in no module and in no code range.
  kNoRow,       // No unwinder found the caller.
  kUnreadable,  // The stack could not be read.
  kLost,        // A register that is needed is not known here.
  kNoProgress,  // The stack pointer does not move.
  kBadRow,      // Unwind information that contradicts itself.
  kLimit,       // More than WalkOptions::max_frames frames.
  kGuessed,     // The last frame looks like the outermost frame. But that, or an earlier frame, is not proven.
  kForeign,     // Code of another machine.
  kBudget,      // WalkOptions::max_followed was too little to find the caller.
  kChained,     // The outermost frame was reached, or a frame pointer of 0 marked the end; in part by frame pointers
                // alone.
};
// A word for people, for example "complete". A string literal. Signal-safe.
[[nodiscard]] std::string_view end_name(WalkEnd end);

class AddressSpace;
namespace walk {
class Module;
struct Inside;
struct KeptRow;
struct Scratch;
struct ReturnScratch {
  void operator()(Scratch* scratch) const;
};
}  // namespace walk

// Memory, modules and code ranges of a process. Movable.
//
// Any number of walkers may read a space at a time. Meanwhile code ranges may be added and retired on any thread.
// Everything else must not run while a walker uses the space: for example, adding and removing modules.
class AddressSpace {
 public:
  // A space without modules and code ranges.
  AddressSpace(Architecture architecture, std::unique_ptr<Memory> memory);
  // The own process with the names of the modules that are loaded now. Walks also see later changes by dlopen and
  // dlclose: see own_process() in backtrace.h. Allocates, so not for signal handlers; but walks in the space are
  // signal-safe.
  [[nodiscard]] static AddressSpace self();
  AddressSpace(AddressSpace&&) noexcept;
  AddressSpace& operator=(AddressSpace&&) noexcept;
  ~AddressSpace();

  // The architecture and the memory that the space was made with.
  [[nodiscard]] Architecture architecture() const { return architecture_; }
  [[nodiscard]] const Memory& memory() const { return *memory_; }
  // True for spaces from self() and own_process().
  [[nodiscard]] bool is_own_process() const;

  // Adds a module. The file is read when a frame is first looked up in the module. A file that cannot be read is no
  // error: code without unwind information is unwound by its instructions. kMalformed for an empty range, and for a
  // range that overlaps another.
  Expected<void> add_module(ModuleInfo info);
  // Adds a module whose bytes are `image`. An ELF image is the file's bytes. A PE image is laid out as mapped: the byte
  // at an RVA is at that index. Errors as above.
  Expected<void> add_module(ModuleInfo info, std::vector<std::byte> image);
  // Removes the module, or retires the code range, that begins at `begin`. kNotFound if none begins there.
  Expected<void> remove(std::uint64_t begin);

  // Adds code without a file, for walks in this space alone. Rules and errors are those of add_own_code() and
  // retire_own_code() in jit/code_range.h. Thread-safe against walkers and against each other. Also kMalformed for a
  // range that overlaps a module.
  Expected<CodeRangeId> add(CodeRange range);
  Expected<void> retire(CodeRangeId id);

  // The module or code range that contains `address`, or null. Logarithmic; signal-safe. The pointer is valid until the
  // module is removed or the range is retired. If a StackWalker lives, a pointer got during its life is valid as long
  // as the walker.
  [[nodiscard]] const ModuleInfo* module_at(std::uint64_t address) const;
  // All modules and code ranges. Allocates.
  [[nodiscard]] std::vector<const ModuleInfo*> modules() const;

  // Sets the bits of a signed AArch64 return address that hold its authentication code (NT_ARM_PAC_MASK). The default
  // fits addresses of 48 bits.
  void set_pointer_mask(std::uint64_t code_bits) { pac_mask_ = code_bits; }
  [[nodiscard]] std::uint64_t pointer_mask() const { return pac_mask_; }
  // Sets the same bits for return addresses that no unwind information calls signed; 0 by default. For callers that
  // know which bits no address has.
  void set_unsigned_mask(std::uint64_t code_bits) { unsigned_mask_ = code_bits; }
  [[nodiscard]] std::uint64_t unsigned_mask() const { return unsigned_mask_; }

 private:
  friend struct walk::Inside;
  class Modules;  // src/walk/space_modules.h
  AddressSpace(Architecture architecture, std::unique_ptr<Memory> memory, std::unique_ptr<Modules> modules);

  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Modules> modules_;
  std::uint64_t pac_mask_ = 0xffff'0000'0000'0000;
  std::uint64_t unsigned_mask_ = 0;
  Architecture architecture_;
};

// Where the callees of a frame saved each of its registers. For example, a collector updates the values there, and an
// exception restores them.
class SavedLocations {
 public:
  // The address where `reg` was saved. 0 if the value is still in the register itself, or is not known:
  // Registers::has() tells which.
  [[nodiscard]] std::uint64_t at(const Registers& registers, RegisterNumber reg) const {
    return registers.holds(reg) ? address_[registers.slot_of(reg)] : 0;
  }
  // Sets the address where a register was saved; 0: not saved.
  void set(const Registers& registers, RegisterNumber reg, std::uint64_t address) {
    if (registers.holds(reg)) address_[registers.slot_of(reg)] = address;
  }
  void set_slot(unsigned slot, std::uint64_t address) { address_[slot] = address; }

 private:
  std::uint64_t address_[Registers::kSlots] = {};
};

// A frame of a walk.
struct Frame {
  // The registers at pc. In a caller: as they are just after its call returns. A caller found by a frame record of
  // AArch64 has no sp, since the record does not say where sp is.
  Registers registers;
  const ModuleInfo* module = nullptr;                     // What contains pc; null if nothing does.
  FrameOrigin origin = FrameOrigin::kContext;             // How the frame was found.
  bool signal_frame = false;                              // The callee is a signal trampoline: pc was interrupted.
  FrameCertainty certainty = FrameCertainty::kDescribed;  // How sure the frame is.
  SavedLocations saved;                                   // Where callees saved this frame's registers.
  // For code that runs many functions, for example an interpreter's evaluator: a number that stands for the function it
  // runs here. Symbolizer::name() names it. 0: pc alone says the function.
  std::uint64_t function = 0;

  [[nodiscard]] CodeAddress pc() const { return registers.pc(); }
  [[nodiscard]] std::uint64_t sp() const { return registers.sp(); }
};

// How far a walk may go, and by what means.
struct WalkOptions {
  // The walk ends as kLimit after this many frames.
  std::size_t max_frames = 65536;
  // Look at the instructions where unwind information is absent or contradicted.
  bool synthesize = true;
  // Memory of the target that is written during the walk, [begin, end): for example the array that receives the frames.
  // A return address in this range never yields a frame.
  std::uint64_t written_begin = 0;
  std::uint64_t written_end = 0;
  // The most instructions that the whole walk may follow; 0.1 to 0.4 us each. Other slow ways to find a caller count as
  // several instructions. For callers that cannot wait, for example signal handlers: the walk then ends as kBudget.
  std::uint32_t max_followed = ~std::uint32_t{0};
};

// Walks the frames of a thread, innermost first. The first frame is the registers given.
//
// One thread uses a walker at a time; several walkers may share a space. The space must outlive the walker. Signal-safe
// on own_process() and self(), and on memory whose read() is.
class StackWalker {
 public:
  StackWalker(const AddressSpace& space, const Registers& registers, const WalkOptions& options = {});
  ~StackWalker();
  StackWalker(const StackWalker&) = delete;
  StackWalker& operator=(const StackWalker&) = delete;

  // The frame that the walker is at.
  [[nodiscard]] const Frame& frame() const { return frame_; }
  // Goes to the caller. False at the end: end_reason() and error() then say why, and frame() is still the last frame.
  bool step();
  [[nodiscard]] WalkEnd end_reason() const { return end_; }
  // The certainty of the least certain frame so far.
  [[nodiscard]] FrameCertainty certainty() const { return certainty_; }
  // Why the walk ended: set for every end but kComplete.
  [[nodiscard]] const Error& error() const { return error_; }
  // How many instructions are left of WalkOptions::max_followed.
  [[nodiscard]] std::uint32_t may_follow() const;
  // Starts a new walk from other registers, and keeps what was prepared.
  void restart(const Registers& registers);

  class Iterator {
   public:
    using value_type = Frame;
    using difference_type = std::ptrdiff_t;
    explicit Iterator(StackWalker* walker) : walker_(walker) {}
    const Frame& operator*() const { return walker_->frame(); }
    const Frame* operator->() const { return &walker_->frame(); }
    Iterator& operator++() {
      if (!walker_->step()) walker_ = nullptr;
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return walker_ == nullptr; }

   private:
    StackWalker* walker_;
  };
  [[nodiscard]] Iterator begin() { return Iterator(this); }
  [[nodiscard]] std::default_sentinel_t end() const { return {}; }

 private:
  [[nodiscard]] const walk::KeptRow* kept_row() const;
  bool ended(WalkEnd end, const Error& error);
  void set_module(const walk::Module* module);
  bool find_lost_registers();

  const AddressSpace* space_;
  const walk::Module* module_ = nullptr;  // What contains the frame's pc.
  WalkOptions options_;
  std::size_t frames_ = 1;
  std::unique_ptr<walk::Scratch, walk::ReturnScratch> scratch_;
  Frame frame_;
  WalkEnd end_ = WalkEnd::kRunning;
  FrameCertainty certainty_ = FrameCertainty::kDescribed;  // Of the least certain frame so far.
  std::uint64_t guess_ = 0;                                // The pc of the first guessed frame.
  Error error_;
};

}  // namespace windlass
