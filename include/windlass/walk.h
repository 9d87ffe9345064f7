// Walking stacks: an address space (memory, modules, code ranges) and a walker over the frames of one thread.
//
//   AddressSpace space(Architecture::kX86_64, memory);       // target.h opens processes, core files and minidumps
//   for (const Frame& frame : StackWalker(space, registers)) use(frame);
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "windlass/bytes.h"
#include "windlass/code_range.h"
#include "windlass/error.h"
#include "windlass/registers.h"

namespace windlass {

// The bytes of a process, live or dead. `read` is all or nothing, must not allocate or lock where it shall be used in
// a signal handler, and is called from one thread at a time per walker.
class Memory {
 public:
  virtual ~Memory() = default;
  // Copies [address, address + size) of the target; false if any byte of it is not readable.
  [[nodiscard]] virtual bool read(std::uint64_t address, void* to, std::size_t size) const = 0;
  // Where these bytes are in this process, for who would else copy a stack word by word; null where they are not, or
  // not side by side: read() may still know them. Valid until the next call, of any of these.
  [[nodiscard]] virtual const std::byte* in_place(std::uint64_t /*address*/, std::size_t /*size*/) const {
    return nullptr;
  }
  // For snapshots that hold little code: what neither read() nor the module's file has, from wherever it is now. Only
  // asked for instructions, which seldom change; never for what is on the stack.
  [[nodiscard]] virtual bool read_code(std::uint64_t /*address*/, void* /*to*/, std::size_t /*size*/) const {
    return false;
  }
};

// One loaded file, or one mapped image without a file (the vdso).
struct ModuleInfo {
  std::uint64_t begin = 0;  // of the addresses that count as the module's, first
  std::uint64_t end = 0;    // and one past the last
  std::uint64_t bias = 0;   // address in the process - bias = address as the file numbers it; in PE images, the RVA
  std::string path;         // as the process knows it; "[vdso]"
  std::string file;         // where to read it here, if that is another path (/proc/PID/map_files, a sysroot)
  bool windows = false;     // a PE image of a path of Windows: read only where `file` says
};

// Who found a frame from its callee.
enum class FrameOrigin : std::uint8_t {
  kContext,       // the registers the walk started with
  kCfi,           // .eh_frame or .debug_frame
  kSynthesis,     // the instructions of the code itself
  kFramePointer,  // the chain of frame pointers
  kLeaf,          // return address on top of the stack, or in the link register
  kPdata,         // .pdata and .xdata of a PE image
};
[[nodiscard]] std::string_view origin_name(FrameOrigin origin);

// How sure it is that a frame is the caller of the one before it; the surest first.
enum class FrameCertainty : std::uint8_t {
  kDescribed,  // by unwind information, or what the system defines: its signal frames, Windows' leaves. So is a walk's
               // first frame, which is given
  kProved,     // by the code: followed without a call to where it returns, or its ways in and out agree
  kChecked,    // by code followed behind calls, or a frame pointer that the code uses, and the call fits: it leads to
               // the function that was left, or to where a register says
  kChained,    // by an intact chain of frame pointers alone: each saved one lies above the last, and each return
               // address behind a call
  kGuessed,    // none of these
};
[[nodiscard]] std::string_view certainty_name(FrameCertainty certainty);

// How a walk ended. All ends but kComplete leave an Error that names the address. kComplete is proven;
// docs/explanation/certainty.md says how. A walk with a guessed frame ends as kGuessed, and a walk with a chained frame
// as kChained.
enum class WalkEnd : std::uint8_t {
  kRunning,     // it has not
  kComplete,    // the outermost frame was reached
  kNoModule,    // the pc lies in nothing known
  kNoRow,       // no unwinder found the caller
  kUnreadable,  // the stack could not be read
  kLost,        // a register that is needed is not known here
  kNoProgress,  // the stack does not move
  kBadRow,      // unwind information that contradicts itself
  kLimit,       // more frames than asked for
  kGuessed,     // the last frame looks like the outermost one, but nothing proves that it is, or that a frame before
                // it is right
  kForeign,     // code of another machine
  kBudget,      // WalkOptions::max_followed was too little to find the caller
  kChained,     // the outermost frame was reached, or marked by a frame pointer of 0, in part by frame pointers alone
};
[[nodiscard]] std::string_view end_name(WalkEnd end);

class AddressSpace;
namespace walk {
class Module;
struct KeptRow;
struct Scratch;
struct ReturnScratch {
  void operator()(Scratch* scratch) const;
};
}  // namespace walk

// Memory, modules and code ranges of one process. Movable. Any number of walkers may read it at a time. Code ranges may
// come and go meanwhile; adding and removing modules, and all else, is not thread-safe against walkers on it.
class AddressSpace {
 public:
  class Modules;  // src/walk/space_modules.h

  AddressSpace(Architecture architecture, std::unique_ptr<Memory> memory);
  AddressSpace(Architecture architecture, std::unique_ptr<Memory> memory, std::unique_ptr<Modules> modules);
  // The own process with the modules loaded now, named. What dlopen and dlclose change later is seen too: see
  // own_process() in backtrace.h. Allocates: not for signal handlers, though walking on it is.
  [[nodiscard]] static AddressSpace self();
  AddressSpace(AddressSpace&&) noexcept;
  AddressSpace& operator=(AddressSpace&&) noexcept;
  ~AddressSpace();

  [[nodiscard]] Architecture architecture() const { return architecture_; }
  [[nodiscard]] const Memory& memory() const { return *memory_; }
  // Made by self(), or own_process().
  [[nodiscard]] bool is_own_process() const;

  // Its unwind information is read from the file when a frame is first looked up in it; a file that cannot be read is
  // no error here: code without unwind information is unwound by its instructions. kMalformed for an empty or
  // overlapping range.
  Expected<void> add_module(ModuleInfo info);
  // The same for an image whose bytes are given by the caller: an ELF file's, or a PE image's as it is mapped (the byte
  // at an RVA is at that index).
  Expected<void> add_module(ModuleInfo info, std::vector<std::byte> image);
  // Of the library's own kinds (src/walk/module.h).
  Expected<void> add_module(std::unique_ptr<walk::Module> module);
  // Removes the module that begins at `begin`, or retires the code range. kNotFound.
  Expected<void> remove(std::uint64_t begin);

  // Code without a file, for walks in this space alone. Everything that add_own_code() and retire_own_code() say holds:
  // thread-safe against walkers and itself. kMalformed for a range that overlaps a module, too.
  Expected<CodeRangeId> add(CodeRange range);
  Expected<void> retire(CodeRangeId id);

  // The module or code range that contains `address`, or null. Logarithmic; signal-safe. Valid until the module is
  // removed or the range retired; in the life of a StackWalker, while that lives.
  [[nodiscard]] const walk::Module* find(std::uint64_t address) const;
  [[nodiscard]] std::vector<const ModuleInfo*> modules() const;

  // Bits of an AArch64 return address that are its authentication code (NT_ARM_PAC_MASK); the default fits 48-bit
  // addresses.
  void set_pointer_mask(std::uint64_t code_bits) { pac_mask_ = code_bits; }
  [[nodiscard]] std::uint64_t pointer_mask() const { return pac_mask_; }
  // The same in return addresses of which nothing says that they are signed; none by default. For who knows which bits
  // no address has.
  void set_unsigned_mask(std::uint64_t code_bits) { unsigned_mask_ = code_bits; }
  [[nodiscard]] std::uint64_t unsigned_mask() const { return unsigned_mask_; }

 private:
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Modules> modules_;
  std::uint64_t pac_mask_ = 0xffff'0000'0000'0000;
  std::uint64_t unsigned_mask_ = 0;
  Architecture architecture_;
};

// Where each register of a frame was saved by its callees: what a collector updates and an exception restores.
class SavedLocations {
 public:
  // The address, or 0: still in the register itself (or not known: ask Registers::has).
  [[nodiscard]] std::uint64_t at(const Registers& registers, RegisterNumber reg) const {
    return registers.holds(reg) ? address_[registers.slot_of(reg)] : 0;
  }
  void set(const Registers& registers, RegisterNumber reg, std::uint64_t address) {
    if (registers.holds(reg)) address_[registers.slot_of(reg)] = address;
  }
  void set_slot(unsigned slot, std::uint64_t address) { address_[slot] = address; }

 private:
  std::uint64_t address_[Registers::kSlots] = {};
};

struct Frame {
  Registers registers;  // at pc; for a caller: as they are just after its call returns. Without sp behind a frame
                        // record of AArch64, which does not say where it is
  const ModuleInfo* module = nullptr;                     // what contains pc, if anything
  FrameOrigin origin = FrameOrigin::kContext;             // who found it
  bool signal_frame = false;                              // its callee is a signal trampoline: pc was interrupted
  FrameCertainty certainty = FrameCertainty::kDescribed;  // and how sure that is
  SavedLocations saved;                                   // where this frame's registers were saved by its callees
  std::uint64_t function = 0;  // of code that runs many functions, an interpreter's, stands for the one that it runs
                               // here, to Symbolizer::name(); 0: the pc says it

  [[nodiscard]] CodeAddress pc() const { return registers.pc(); }
  [[nodiscard]] std::uint64_t sp() const { return registers.sp(); }
};

struct WalkOptions {
  std::size_t max_frames = 65536;
  bool synthesize = true;  // look at the code where unwind information is absent or contradicted
  // Memory of the target that is written while the walk goes on, [begin, end): an array for what it finds, say. No
  // frame is found by a return address that stands there.
  std::uint64_t written_begin = 0;
  std::uint64_t written_end = 0;
  // Instructions of code that are followed at most, 0.1 to 0.4 us each; what else takes time where unwind information
  // does not answer counts as several. For who cannot wait, a signal handler: see WalkEnd::kBudget.
  std::uint32_t max_followed = ~std::uint32_t{0};
};

// Emits the frames of one thread, innermost first, the first being the registers given. One thread at a time; several
// walkers may share a space. The space must outlive it.
class StackWalker {
 public:
  StackWalker(const AddressSpace& space, const Registers& registers, const WalkOptions& options = {});
  ~StackWalker();
  StackWalker(const StackWalker&) = delete;
  StackWalker& operator=(const StackWalker&) = delete;

  [[nodiscard]] const Frame& frame() const { return frame_; }
  // Goes to the caller. False at the end; end() and error() then say why, and frame() is still the last frame.
  bool step();
  [[nodiscard]] WalkEnd end_reason() const { return end_; }
  // Of the frames so far, the least certain one's.
  [[nodiscard]] FrameCertainty certainty() const { return certainty_; }
  [[nodiscard]] const Error& error() const { return error_; }
  // What is left of WalkOptions::max_followed.
  [[nodiscard]] std::uint32_t may_follow() const;
  // Starts again from other registers, keeping what was prepared.
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
  const walk::Module* module_ = nullptr;  // what contains the frame's pc
  WalkOptions options_;
  std::size_t frames_ = 1;
  std::unique_ptr<walk::Scratch, walk::ReturnScratch> scratch_;
  Frame frame_;
  WalkEnd end_ = WalkEnd::kRunning;
  FrameCertainty certainty_ = FrameCertainty::kDescribed;  // of the least certain frame so far
  std::uint64_t guess_ = 0;                                // the pc of the first frame that is a guess
  Error error_;
};

}  // namespace windlass
