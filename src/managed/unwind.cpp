// One frame of managed code, and what explicit frames lead to.
#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/registers.h"
#include "formats/winarm64/exec.h"
#include "formats/winx64/exec.h"
#include "formats/winx64/lower.h"
#include "managed/walk_state.h"
#include "walk/apply.h"
#include "walk/inside.h"

namespace windlass::managed {
namespace {

// The unwind information of one method, for winx64's unwinder: read in place, or copied here. In the own process the
// addresses that the runtime gives are trusted, because asking the system would take longer than all the rest.
class MethodImage {
 public:
  MethodImage(const ManagedThread& thread, const Method& method)
      : memory_(thread.space->memory()),
        unwind_(method.windows),
        method_(method),
        is_own_(thread.space->is_own_process()),
        is_x64_(thread.space->architecture() == Architecture::kX86_64) {}

  [[nodiscard]] bool find(std::uint32_t rva, winx64::RuntimeFunction& to) const {
    to = unwind_.function;
    return rva >= to.begin && rva < to.end;
  }

  // If the end cannot be read, the readable part is returned: a record may be the last data in its page.
  [[nodiscard]] ByteView bytes(std::uint32_t rva, std::uint32_t wanted) const {
    const std::uint64_t address = unwind_.base + rva;
    if (is_own_) return own_bytes(address, wanted);
    const std::uint64_t page_left = kPage - address % kPage;
    for (std::uint64_t size = wanted; size != 0; size = size > page_left ? page_left : 0) {
      if (const std::byte* there = memory_.in_place(address, size); there != nullptr) return {there, size};
      if (size > sizeof copy_ - used_) continue;
      if (!memory_.read(address, copy_ + used_, size)) continue;
      const ByteView bytes(copy_ + used_, size);
      used_ += size;
      return bytes;
    }
    return {};
  }

 private:
  static constexpr std::uint64_t kPage = 4096;

  // Not a byte more than there is: code ends with its method, an information where its own first word says.
  [[nodiscard]] ByteView own_bytes(std::uint64_t address, std::uint32_t wanted) const {
    const auto* there = reinterpret_cast<const std::byte*>(address);
    std::uint64_t size = wanted;
    if (address - method_.begin < method_.end - method_.begin)
      size = std::min(size, method_.end - address);
    else if (is_x64_ && size > sizeof(winx64::RuntimeFunction))
      size = std::min(size, winx64::info_size(ByteView(there, winx64::kHeaderSize)));
    return {there, size};
  }

  const Memory& memory_;
  const WindowsUnwind& unwind_;
  const Method& method_;
  const bool is_own_, is_x64_;
  mutable std::size_t used_ = 0;
  mutable std::byte copy_[2048];
};
static_assert(winx64::UnwindImage<MethodImage>);

// By a row, which is kept where the runtime has a generation.
Expected<bool> by_row(const ManagedThread& thread, const FrameRow& row, const CrawlFrame& here, walk::RowCache& rows,
                      std::uint64_t generation, Place& caller) {
  caller.saved = here.saved;
  const walk::ApplyContext context{.pac_mask = thread.space->pointer_mask(), .slots_below_sp_are_dead = false};
  const walk::StepStatus status =
      walk::apply(row, thread.space->memory(), context, here.registers, caller.registers, &caller.saved);
  if (status.end == WalkEnd::kComplete) return false;
  if (!status.ok()) return Failure(status.error);
  rows.keep(generation, here.registers.pc(), row, FrameOrigin::kCfi, here.registers.architecture());
  return true;
}

// The row that unwind information comes to at a pc. False: no row can say it.
bool lowered_winx64(const MethodImage& image, const Method& method, CodeAddress pc, FrameRow& row) {
  const auto rva = static_cast<std::uint32_t>(pc.lookup() - method.windows.base);
  winx64::RuntimeFunction function;
  if (!image.find(rva, function)) return false;
  const auto find = [&image](std::uint32_t at) {
    winx64::RuntimeFunction found;
    return image.find(at, found) ? std::optional(found) : std::nullopt;
  };
  const auto bytes = [&image](std::uint32_t at, std::uint32_t wanted) { return image.bytes(at, wanted); };
  return winx64::row_at(winx64::AnyImage(find, bytes), function, rva, row).has_value();
}

Expected<bool> by_winx64(const ManagedThread& thread, const Method& method, const CrawlFrame& here,
                         walk::RowCache& rows, std::uint64_t generation, Place& caller) {
  const Memory& memory = thread.space->memory();
  const MethodImage image(thread, method);
  if (FrameRow row; generation != 0 && lowered_winx64(image, method, here.registers.pc(), row))
    return by_row(thread, row, here, rows, generation, caller);
  winx64::Unwound unwound;
  winx64::SavedAddresses addresses;
  const auto done = winx64::virtual_unwind(image, method.windows.base, memory, here.registers, unwound, &addresses);
  if (!done) return Failure(done.error());
  caller.registers = unwound.caller;
  caller.saved = here.saved;
  for (unsigned number = 0; number < 16; ++number)
    if (addresses.integer[number] != 0)
      caller.saved.set(caller.registers, winx64::dwarf_number(number), addresses.integer[number]);
  caller.saved.set(caller.registers, Registers::pc_number(Architecture::kX86_64), addresses.return_address);
  return caller.registers.pc().value() != 0;
}

// What holds at an RVA, by that of the method's entries which reaches there. `image` and `storage` outlive the result.
Expected<winarm64::Location> locate(const WindowsUnwind& windows, const MethodImage& image, std::uint64_t rva,
                                    winarm64::Expansion& storage) {
  winarm64::Location location;
  location.position.place = winarm64::Place::kLeaf;
  const auto behind = std::ranges::upper_bound(windows.entries, rva, {}, &winarm64::RuntimeFunction::begin);
  if (behind == windows.entries.begin()) return location;
  const winarm64::RuntimeFunction function = *std::prev(behind);
  Expected<winarm64::UnwindRecord> record;
  if (function.packed()) {
    record = winarm64::expand_packed(function, storage);
  } else if (function.kind() == winarm64::EntryKind::kParent) {
    return fail(ErrorCode::kUnsupported, "entry of a method refers to another one", function.begin, function.data);
  } else {
    const auto head = winarm64::read_head(image.bytes(function.target(), 8), function.target());
    if (!head) return Failure(head.error());
    record = winarm64::parse_record(image.bytes(function.target(), head->size()), function.target());
  }
  if (!record) return Failure(record.error());
  const std::uint64_t offset = rva - function.begin;
  if (offset < record->length)
    location = {function, *record, winarm64::position_at(*record, static_cast<std::uint32_t>(offset))};
  return location;
}

Expected<bool> by_winarm64(const ManagedThread& thread, const Method& method, const CrawlFrame& here, Place& caller) {
  constexpr RegisterNumber kLr = 30, kPc = Registers::pc_number(Architecture::kAArch64);
  const Memory& memory = thread.space->memory();
  const WindowsUnwind& windows = method.windows;
  const MethodImage image(thread, method);
  winarm64::Expansion storage;
  const auto location = locate(windows, image, here.registers.pc().lookup() - windows.base, storage);
  if (!location) return Failure(location.error());
  caller.saved = here.saved;
  caller.saved.set(here.registers, kPc, here.saved.at(here.registers, kLr));  // unless this frame has saved it
  const winarm64::ExecContext context{.image_base = windows.base, .pac_mask = thread.space->pointer_mask()};
  const auto done =
      winarm64::virtual_unwind(*location, context, memory, here.registers, caller.registers, &caller.saved);
  if (!done) return Failure(done.error());
  return caller.registers.pc().value() != 0;
}

Expected<bool> by_windows(const ManagedThread& thread, const Method& method, const CrawlFrame& here,
                          walk::RowCache& rows, std::uint64_t generation, Place& caller) {
  const bool x64 = here.registers.architecture() == Architecture::kX86_64;
  if (x64 != method.windows.entries.empty())
    return fail(ErrorCode::kUnsupported, "Windows unwind information of a method is of another machine",
                here.registers.pc().value());
  return x64 ? by_winx64(thread, method, here, rows, generation, caller) : by_winarm64(thread, method, here, caller);
}

Expected<bool> by_runtimes_row(const ManagedThread& thread, const Method& method, const CrawlFrame& here,
                               walk::RowCache& rows, std::uint64_t generation, Place& caller) {
  FrameRow row;
  if (const auto found = thread.runtime->row_at(*thread.space, method, here.registers.pc().lookup(), row); !found)
    return Failure(found.error());
  return by_row(thread, row, here, rows, generation, caller);
}

Expected<void> by_context(const ManagedThread& thread, const FrameView& view, Place& caller) {
  SavedContext context;
  if (!thread.space->memory().read(view.context_at, &context, sizeof context))
    return fail(ErrorCode::kUnreadable, "explicit frame's registers are not readable", view.context_at, sizeof context);
  caller.registers = context.registers(thread.space->architecture());
  save_in(view.context_at, caller);
  return {};
}

// From where a helper stood to the managed code that called it.
Expected<void> by_callers(const ManagedThread& thread, const FrameView& view, Place& caller) {
  if (const auto done = by_context(thread, view, caller); !done) return done;
  const auto found = managed_caller(thread, caller.registers);
  if (!found)
    return fail(ErrorCode::kNotFound, "no managed code called the helper of an explicit frame", view.address,
                found.error().where);
  caller = *found;
  return {};
}

}  // namespace

Expected<Place> managed_caller(const ManagedThread& thread, const Registers& from) {
  StackWalker walker(*thread.space, from);
  while (thread.runtime->find(walker.frame().pc().lookup()) == nullptr)
    if (!walker.step()) return fail(ErrorCode::kNotFound, "no managed code called this", walker.frame().pc().value());
  return Place{.registers = walker.frame().registers, .saved = walker.frame().saved};
}

void save_in(std::uint64_t context, Place& place) {
  place.saved = {};
  for (unsigned slot = 0; slot < Registers::kSlots; ++slot)
    if (place.registers.has_slot(slot))
      place.saved.set_slot(slot, context + offsetof(SavedContext, value) + slot * sizeof(std::uint64_t));
}

Expected<void> row_in_space(const AddressSpace& space, std::uint64_t pc, FrameRow& to) {
  const walk::Module* module = walk::module_at(space, pc);
  if (module == nullptr) return fail(ErrorCode::kNotFound, "no code range, manager or module has this code", pc);
  return module->row_at(pc, to);
}

Expected<bool> unwind_method(const ManagedThread& thread, const Method& method, const CrawlFrame& here,
                             walk::RowCache& rows, std::uint64_t generation, Place& caller) {
  const auto found = method.windows.any() ? by_windows(thread, method, here, rows, generation, caller)
                                          : by_runtimes_row(thread, method, here, rows, generation, caller);
  if (found && *found) see_through_hijack(thread, caller.registers, caller.saved);
  return found;
}

Expected<void> unwind_frame(const ManagedThread& thread, const FrameView& view, Place& caller) {
  switch (view.form) {
    case FrameForm::kMarker: break;
    case FrameForm::kCallSite: {
      const Architecture architecture = thread.space->architecture();
      caller = {.registers = Registers(architecture), .saved = {}};
      caller.registers.set_pc(CodeAddress::return_address(view.site.pc));
      caller.registers.set_sp(view.site.sp);
      caller.registers.set(frame_pointer(architecture), view.site.fp);
      return {};
    }
    case FrameForm::kSaved:
    case FrameForm::kContext: return by_context(thread, view, caller);
    case FrameForm::kLazy: return by_callers(thread, view, caller);
  }
  return fail(ErrorCode::kNotFound, "explicit frame leads nowhere", view.address);
}

}  // namespace windlass::managed
