// One step of a walk. The unwinders are asked in an order, and the first that can decides.
#pragma once

#include "base/grace_period.h"
#include "flow/synthesis.h"
#include "walk/apply.h"
#include "walk/module.h"
#include "walk/own_modules.h"
#include "walk/progress.h"
#include "walk/row_cache.h"

namespace windlass::walk {

// The executable memory that a walk has met outside of modules and code ranges. It stays mapped as long as the walk
// lasts.
class UndescribedCode {
 public:
  void forget() { *this = UndescribedCode(); }
  [[nodiscard]] bool holds(std::uint64_t address, std::size_t size) const;
  // Asks the kernel if nothing is known, a few times a walk, as long as `budget` allows.
  [[nodiscard]] Executable ask(std::uint64_t address, flow::Budget& budget);

 private:
  static constexpr unsigned kMost = 4;
  CodeExtent known_[kMost];
  unsigned used_ = 0;
  unsigned asked_ = 0;
  bool blind_ = false;  // The kernel gives no answer.
};

// What by_left_frame() knows of modules, by their ids.
class LeftFrames {
 public:
  struct Of {
    std::uint64_t module = 0;
    std::uint64_t room = 0;    // from sp to the return address; 0: not known
    std::uint32_t looked = 0;  // how often for nothing
    // A module that is of another language is searched less and less often: 8 times, 14 times in the next 56, and then
    // every 64th time.
    [[nodiscard]] bool may_look() {
      ++looked;
      return looked <= 8 || looked % (looked <= 64 ? 4 : 64) == 0;
    }
  };
  [[nodiscard]] Of& of(std::uint64_t module) {
    Of& kept = kept_[module % kMost];
    if (kept.module != module) kept = {.module = module};
    return kept;
  }

 private:
  static constexpr std::size_t kMost = 8;
  Of kept_[kMost];
};

struct Scratch {
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  RowCache rows;
  flow::SynthesisScratch* synthesis;
  Progress progress;                     // Of this walk.
  std::optional<std::uint64_t> fs_base;  // x86-64: of the walked thread, or a row's value for the callers.
  std::optional<std::uint64_t> gs_base;  // The same. Of Windows: the TEB.
  std::uint64_t lowest = 0;              // The least value that sp can have in the current frame, if it is not known.
  bool register_lost = false;            // In the last step: a row made from code needs a register that is not known.
  LeftFrames left_frames;                // Of all walks.
  Registers exact;                       // Of the last frame whose registers were all known.
  std::size_t since_exact = 0;           // How many frames ago that was.
  UndescribedCode undescribed;           // Of this walk.
  GracePeriod::Reader code;              // Entered while a walker has it: code ranges that it found stay.
};

// The code at an address: a module, a code range or, in the own process, code of Windows' function tables or
// undescribed_code(). With `ask`, the kernel is
// asked, which takes time. Without it, only the walk's own knowledge is used. Null: nothing.
[[nodiscard]] const Module* find_code(const AddressSpace& space, Scratch& scratch, std::uint64_t address, bool ask);

// What a step found: the caller in `caller`, or why there is none.
struct Step {
  Registers caller;
  SavedLocations saved;
  FrameOrigin origin = FrameOrigin::kCfi;
  FrameCertainty certainty = FrameCertainty::kGuessed;
  bool signal_frame = false;
  bool module_known = false;
  const Module* module = nullptr;  // what contains the caller's pc, once looked up
  StepStatus status{WalkEnd::kNoRow, {ErrorCode::kNotFound, "no unwinder knows this code"}};

  const Module* find_module(const AddressSpace& space, Scratch& scratch, bool ask) {
    if (!module_known || (ask && module == nullptr)) module = find_code(space, scratch, caller.pc().lookup(), ask);
    module_known = true;
    return module;
  }
};

// The caller of `frame`, whose pc lies in `module` (null: in none), without the check for progress.
void find_caller(const AddressSpace& space, const Frame& frame, const Module* module, const WalkOptions& options,
                 Scratch& scratch, Step& step);

// Code with calling conventions of its own may preserve registers that calls need not preserve. Adds to the caller in
// `step` the values that the code returning to it leaves in these registers.
void keep_by_code(const AddressSpace& space, const Frame& frame, const Module* module, const WalkOptions& options,
                  Scratch& scratch, Step& step);

// A thread in sigreturn, which nothing follows, has its pc behind the system call, at whatever code comes next. Puts it
// back on the instruction.
void correct_first_pc(const AddressSpace& space, Registers& registers);

}  // namespace windlass::walk
