// The reading side of the Itanium C++ ABI's unwinder (https://itanium-cxx-abi.github.io/cxx-abi/abi-eh.html, 1.3 and
// the GNU additions), for programs that walk stacks with it. Throwing stays libgcc's: exceptions need its own contexts.
// _Unwind_Find_FDE is not here on purpose: libgcc calls it through its PLT, and knows of registered frames.
#include <unwind.h>

#include "capi/capture.h"
#include "dropin/next.h"
#include "dropin/own_cursor.h"
#include "windlass/backtrace.h"

using namespace windlass;
using namespace windlass::dropin;

namespace {

// What a callback of _Unwind_Backtrace gets. It is only ever seen through the functions below.
struct Context {
  std::uint64_t tag[2] = {kTag[0], kTag[1]};
  const Registers& start;
  OwnCursor cursor;
  walk::FastWalk fast;

  explicit Context(const Registers& registers) : start(registers), cursor(registers), fast(cursor.trace(), true) {}
  // Null for a context that is not ours.
  static Context* of(_Unwind_Context* context) {
    return is_ours(context) ? reinterpret_cast<Context*>(context) : nullptr;
  }
  [[nodiscard]] CodeAddress pc() const { return cursor.pc(); }
  bool step() {
    return cursor.step(
        fast, [this] { return start; }, keep_as_found);
  }
  // 0 where it is not known.
  [[nodiscard]] std::uint64_t get(std::uint64_t reg) {
    if (reg == Registers::sp_number(kOwnArchitecture)) return cursor.sp();
    if (reg == Registers::pc_number(kOwnArchitecture)) return pc().value();
    if (reg == Registers::fp_number(kOwnArchitecture) && !cursor.has_all_registers()) return cursor.trace().fp;
    const Frame* frame = cursor.all_registers([this] { return start; }, keep_as_found);
    return frame != nullptr ? frame->registers.get(reg) : 0;
  }
  static constexpr auto keep_as_found = [](Frame&) {};
};

const Next<_Unwind_Ptr(_Unwind_Context*)> next_ip("_Unwind_GetIP");
const Next<_Unwind_Ptr(_Unwind_Context*, int*)> next_ip_info("_Unwind_GetIPInfo");
const Next<_Unwind_Word(_Unwind_Context*)> next_cfa("_Unwind_GetCFA");
const Next<_Unwind_Word(_Unwind_Context*, int)> next_register("_Unwind_GetGR");
const Next<void(_Unwind_Context*, int, _Unwind_Word)> next_set_register("_Unwind_SetGR");
const Next<void(_Unwind_Context*, _Unwind_Ptr)> next_set_ip("_Unwind_SetIP");
const Next<void*(_Unwind_Context*)> next_lsda("_Unwind_GetLanguageSpecificData");
const Next<_Unwind_Ptr(_Unwind_Context*)> next_start("_Unwind_GetRegionStart");
const Next<_Unwind_Ptr(_Unwind_Context*)> next_data_base("_Unwind_GetDataRelBase");
const Next<_Unwind_Ptr(_Unwind_Context*)> next_text_base("_Unwind_GetTextRelBase");
const Next<void*(void*)> next_enclosing("_Unwind_FindEnclosingFunction");

[[gnu::constructor]] void look_up_next() {
  next_ip.look_up();
  next_ip_info.look_up();
  next_cfa.look_up();
  next_register.look_up();
  next_set_register.look_up();
  next_set_ip.look_up();
  next_lsda.look_up();
  next_start.look_up();
  next_data_base.look_up();
  next_text_base.look_up();
  next_enclosing.look_up();
}

// One number of the function a frame is in; 0 where nothing is known of it.
std::uint64_t of_function(const Context& context, std::uint64_t OwnFunction::*member) {
  const auto function = own_function(context.pc().lookup());
  return function ? (*function).*member : 0;
}

// libgcc reports code that it has no unwind information for as the stack's end, and the rest as an error.
_Unwind_Reason_Code reason_of(WalkEnd end) {
  const bool outermost = end == WalkEnd::kComplete || end == WalkEnd::kChained || end == WalkEnd::kGuessed ||
                         end == WalkEnd::kNoModule || end == WalkEnd::kNoRow;
  return outermost ? _URC_END_OF_STACK : _URC_FATAL_PHASE1_ERROR;
}

}  // namespace

extern "C" {

[[gnu::visibility("hidden")]] _Unwind_Reason_Code windlass_dropin_unwind_backtrace(_Unwind_Trace_Fn trace,
                                                                                   void* argument,
                                                                                   const std::uint64_t* slots) {
  const Registers start = registers_from_capture(slots);
  Context context(start);
  do
    if (trace(reinterpret_cast<_Unwind_Context*>(&context), argument) != _URC_NO_REASON) return _URC_FATAL_PHASE1_ERROR;
  while (context.step());
  return reason_of(context.cursor.end_reason());
}
WINDLASS_CAPTURING_ENTRY(_Unwind_Backtrace, windlass_dropin_unwind_backtrace, 2);

_Unwind_Ptr _Unwind_GetIP(_Unwind_Context* context) {
  if (Context* own = Context::of(context)) return own->pc().value();
  return next_ip.call_or<_Unwind_Ptr>(0, context);
}

_Unwind_Ptr _Unwind_GetIPInfo(_Unwind_Context* context, int* before_instruction) {
  Context* own = Context::of(context);
  if (own == nullptr) return next_ip_info.call_or<_Unwind_Ptr>(0, context, before_instruction);
  *before_instruction = own->pc().is_return_address() ? 0 : 1;
  return own->pc().value();
}

// libgcc's answer is the CFA of the callee: the stack pointer within this frame.
_Unwind_Word _Unwind_GetCFA(_Unwind_Context* context) {
  if (Context* own = Context::of(context)) return own->cursor.sp();
  return next_cfa.call_or<_Unwind_Word>(0, context);
}

_Unwind_Word _Unwind_GetGR(_Unwind_Context* context, int number) {
  Context* own = Context::of(context);
  if (own == nullptr) return next_register.call_or<_Unwind_Word>(0, context, number);
  return number < 0 ? 0 : own->get(static_cast<std::uint64_t>(number));
}

// A walk has nothing to set; libgcc must not be asked to write into what is not its.
void _Unwind_SetGR(_Unwind_Context* context, int number, _Unwind_Word value) {
  if (is_ours(context)) return;
  if (auto* set = next_set_register.get()) set(context, number, value);
}
void _Unwind_SetIP(_Unwind_Context* context, _Unwind_Ptr value) {
  if (is_ours(context)) return;
  if (auto* set = next_set_ip.get()) set(context, value);
}

void* _Unwind_GetLanguageSpecificData(_Unwind_Context* context) {
  Context* own = Context::of(context);
  if (own == nullptr) return next_lsda.call_or<void*>(nullptr, context);
  return reinterpret_cast<void*>(of_function(*own, &OwnFunction::lsda));
}
_Unwind_Ptr _Unwind_GetRegionStart(_Unwind_Context* context) {
  if (Context* own = Context::of(context)) return of_function(*own, &OwnFunction::begin);
  return next_start.call_or<_Unwind_Ptr>(0, context);
}
_Unwind_Ptr _Unwind_GetDataRelBase(_Unwind_Context* context) {
  if (Context* own = Context::of(context)) return of_function(*own, &OwnFunction::data_base);
  return next_data_base.call_or<_Unwind_Ptr>(0, context);
}
_Unwind_Ptr _Unwind_GetTextRelBase(_Unwind_Context* context) {
  if (Context* own = Context::of(context)) return of_function(*own, &OwnFunction::text_base);
  return next_text_base.call_or<_Unwind_Ptr>(0, context);
}

void* _Unwind_FindEnclosingFunction(void* pc) {
  const auto function = own_function(CodeAddress::return_address(reinterpret_cast<std::uint64_t>(pc)).lookup());
  if (function) return reinterpret_cast<void*>(function->begin);
  return next_enclosing.call_or<void*>(nullptr, pc);
}

// glibc's own goes to libgcc_s by its handle, past every preloaded library.
[[gnu::visibility("hidden")]] int windlass_dropin_backtrace(void** pcs, int size, const std::uint64_t* slots) {
  if (size <= 0) return 0;
  static_assert(sizeof(void*) == sizeof(std::uint64_t));
  return static_cast<int>(backtrace_from(registers_from_capture(slots), reinterpret_cast<std::uint64_t*>(pcs),
                                         static_cast<std::size_t>(size)));
}
WINDLASS_CAPTURING_ENTRY(backtrace, windlass_dropin_backtrace, 2);

}  // extern "C"
