// nongnu libunwind's local interface over the own process.
#include "windlass/c/libunwind.h"

#include <cstring>
#include <iterator>
#include <type_traits>

#include "capi/capture.h"
#include "dropin/next.h"
#include "dropin/own_cursor.h"
#include "dropin/proc_name.h"
#include "walk/own/modules.h"
#include "windlass/backtrace.h"

using namespace windlass;
using namespace windlass::dropin;

namespace {

// What unw_cursor_t holds.
struct Cursor {
  std::uint64_t tag[2] = {kTag[0], kTag[1]};
  unw_context_t* context = nullptr;
  OwnCursor own;

  static Cursor* of(unw_cursor_t* cursor) { return is_ours(cursor) ? reinterpret_cast<Cursor*>(cursor) : nullptr; }
  [[nodiscard]] Registers start() const { return registers_of(context); }
  // Null where the walk of all registers goes another way.
  Frame* all_registers();
  bool step();
  void keep_in_context(Frame& frame) const;
};
static_assert(sizeof(Cursor) <= sizeof(unw_cursor_t) && alignof(Cursor) <= alignof(unw_cursor_t));
static_assert(std::is_trivially_copyable_v<Cursor> && std::is_trivially_destructible_v<Cursor>);
static_assert(sizeof(unw_cursor_t) == 127 * 8);

#define WINDLASS_TEXT(name) WINDLASS_TEXT_(name)
#define WINDLASS_TEXT_(name) #name
const Next<decltype(unw_init_local)> next_init_local(WINDLASS_TEXT(unw_init_local));
const Next<decltype(unw_init_local2)> next_init_local2(WINDLASS_TEXT(unw_init_local2));
const Next<decltype(unw_step)> next_step(WINDLASS_TEXT(unw_step));
const Next<decltype(unw_resume)> next_resume(WINDLASS_TEXT(unw_resume));
const Next<decltype(unw_get_reg)> next_get_reg(WINDLASS_TEXT(unw_get_reg));
const Next<decltype(unw_set_reg)> next_set_reg(WINDLASS_TEXT(unw_set_reg));
const Next<decltype(unw_get_fpreg)> next_get_fpreg(WINDLASS_TEXT(unw_get_fpreg));
const Next<decltype(unw_set_fpreg)> next_set_fpreg(WINDLASS_TEXT(unw_set_fpreg));
const Next<decltype(unw_get_save_loc)> next_get_save_loc(WINDLASS_TEXT(unw_get_save_loc));
const Next<decltype(unw_is_signal_frame)> next_is_signal_frame(WINDLASS_TEXT(unw_is_signal_frame));
const Next<decltype(unw_get_proc_info)> next_get_proc_info(WINDLASS_TEXT(unw_get_proc_info));
const Next<decltype(unw_get_proc_name)> next_get_proc_name(WINDLASS_TEXT(unw_get_proc_name));

// libunwind, too, calls these functions by their names. To throw (if `_Unwind_RaiseException` is bound to it), it needs
// cursors that can be resumed. So a cursor that libunwind makes is its own, and all later calls with that cursor are
// handed on.
bool called_by_libunwind(const void* return_address) {
  const auto* other = reinterpret_cast<const void*>(next_init_local.get());
  walk::LoadedObject object;
  if (other == nullptr || !walk::find_loaded(reinterpret_cast<std::uint64_t>(other), object)) return false;
  return reinterpret_cast<std::uint64_t>(return_address) - object.begin < object.end - object.begin;
}

// Where ucontext_t keeps each register: as long as no callee has saved it, that is its place.
constexpr int kGregs[] = {REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI, REG_RBP, REG_RSP, REG_R8,
                          REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP};

int error_of(WalkEnd end) {
  switch (end) {
    case WalkEnd::kComplete:
    case WalkEnd::kChained:
    case WalkEnd::kGuessed: return 0;
    case WalkEnd::kNoModule: return -UNW_EINVALIDIP;
    case WalkEnd::kNoRow: return -UNW_ENOINFO;
    case WalkEnd::kLimit: return -UNW_ESTOPUNWIND;
    default: return -UNW_EBADFRAME;
  }
}

// What no callee has saved is still where the context has it.
void Cursor::keep_in_context(Frame& frame) const {
  for (RegisterNumber reg = 0; reg < static_cast<RegisterNumber>(std::size(kGregs)); ++reg)
    if (frame.registers.has(reg) && frame.saved.at(frame.registers, reg) == 0 && reg != UNW_REG_SP)
      frame.saved.set(frame.registers, reg, reinterpret_cast<std::uint64_t>(&context->uc_mcontext.gregs[kGregs[reg]]));
}

Frame* Cursor::all_registers() {
  return own.all_registers([this] { return start(); }, [this](Frame& frame) { keep_in_context(frame); });
}

bool Cursor::step() {
  walk::FastWalk fast(own.trace(), false);
  return own.step(
      fast, [this] { return start(); }, [this](Frame& frame) { keep_in_context(frame); });
}

int init_local(unw_cursor_t* cursor, unw_context_t* context, int flags) {
  if (cursor == nullptr || context == nullptr || (flags & ~UNW_INIT_SIGNAL_FRAME) != 0) return -UNW_EINVAL;
  auto* own = new (cursor) Cursor;
  const auto greg = [&](int index) { return static_cast<std::uint64_t>(context->uc_mcontext.gregs[index]); };
  own->context = context;
  own->own = OwnCursor(walk::FastWalkState{greg(REG_RIP) | walk::kInstructionBit, greg(REG_RSP), greg(REG_RBP)});
  if (static_cast<std::int64_t>(greg(REG_RIP)) < 0) (void)own->all_registers();  // no address of ours
  return 0;
}

}  // namespace

extern "C" {

// The layout of ucontext_t in <sys/ucontext.h>. uc_mcontext.gregs are at byte 40, in this order: r8-r15, rdi, rsi, rbp,
// rbx, rdx, rax, rcx, rsp, rip. libunwind's setcontext resumes from this structure. At byte 0x1a8 it finds the address
// of the x87 environment and mxcsr. libunwind's own getcontext puts these at byte 0xe0.
static_assert(offsetof(ucontext_t, uc_mcontext.gregs) == 40 && REG_R8 == 0 && REG_RDI == 8 && REG_RIP == 16);
asm(WINDLASS_ENTRY_HEAD(_Ux86_64_getcontext, "@function") R"(
  endbr64
  movq %r8, 40(%rdi)
  movq %r9, 48(%rdi)
  movq %r10, 56(%rdi)
  movq %r11, 64(%rdi)
  movq %r12, 72(%rdi)
  movq %r13, 80(%rdi)
  movq %r14, 88(%rdi)
  movq %r15, 96(%rdi)
  movq %rdi, 104(%rdi)
  movq %rsi, 112(%rdi)
  movq %rbp, 120(%rdi)
  movq %rbx, 128(%rdi)
  movq %rdx, 136(%rdi)
  movq $0, 144(%rdi)
  movq %rcx, 152(%rdi)
  leaq 8(%rsp), %rax
  movq %rax, 160(%rdi)
  movq (%rsp), %rax
  movq %rax, 168(%rdi)
  leaq 0xe0(%rdi), %rax
  movq %rax, 0x1a8(%rdi)
  fnstenv (%rax)
  stmxcsr 24(%rax)
  xorl %eax, %eax
)" WINDLASS_ENTRY_TAIL(_Ux86_64_getcontext));

int unw_init_local2(unw_cursor_t* cursor, unw_context_t* context, int flags) {
  if (called_by_libunwind(__builtin_return_address(0)))
    return next_init_local2.call_or(-UNW_EINVAL, cursor, context, flags);
  return init_local(cursor, context, flags);
}
int unw_init_local(unw_cursor_t* cursor, unw_context_t* context) {
  if (called_by_libunwind(__builtin_return_address(0))) return next_init_local.call_or(-UNW_EINVAL, cursor, context);
  return init_local(cursor, context, 0);
}

int unw_step(unw_cursor_t* cursor) {
  Cursor* own = Cursor::of(cursor);
  if (own == nullptr) return next_step.call_or(-UNW_EINVAL, cursor);
  return own->step() ? 1 : error_of(own->own.end_reason());
}

int unw_get_reg(unw_cursor_t* cursor, int reg, unw_word_t* value) {
  Cursor* own = Cursor::of(cursor);
  if (own == nullptr) return next_get_reg.call_or(-UNW_EINVAL, cursor, reg, value);
  if (reg == UNW_REG_IP) {
    *value = own->own.pc().value();
  } else if (reg == UNW_REG_SP || reg == UNW_X86_64_CFA) {
    *value = own->own.sp();
  } else if (reg == UNW_X86_64_RBP && !own->own.has_all_registers()) {
    *value = own->own.trace().fp;
  } else {
    const Frame* frame = reg < 0 ? nullptr : own->all_registers();
    if (frame == nullptr || !frame->registers.has(static_cast<std::uint64_t>(reg))) return -UNW_EBADREG;
    *value = frame->registers.get(static_cast<std::uint64_t>(reg));
  }
  return 0;
}

int unw_set_reg(unw_cursor_t* cursor, int reg, unw_word_t value) {
  Cursor* own = Cursor::of(cursor);
  if (own == nullptr) return next_set_reg.call_or(-UNW_EINVAL, cursor, reg, value);
  if (reg == UNW_X86_64_CFA) return -UNW_EREADONLYREG;
  Frame* frame = own->all_registers();
  if (frame == nullptr) return -UNW_EBADFRAME;
  Registers& registers = frame->registers;
  if (reg < 0 || !registers.holds(static_cast<std::uint64_t>(reg))) return -UNW_EBADREG;
  const auto number = static_cast<RegisterNumber>(reg);
  const std::uint64_t saved_at = registers.has(number) ? frame->saved.at(registers, number) : 0;
  if (saved_at != 0) std::memcpy(reinterpret_cast<void*>(saved_at), &value, sizeof value);
  if (reg == UNW_REG_IP)
    registers.set_pc(registers.pc().is_return_address() ? CodeAddress::return_address(value)
                                                        : CodeAddress::instruction(value));
  else
    registers.set(number, value);
  return 0;
}

int unw_get_save_loc(unw_cursor_t* cursor, int reg, unw_save_loc_t* location) {
  Cursor* own = Cursor::of(cursor);
  if (own == nullptr) return next_get_save_loc.call_or(-UNW_EINVAL, cursor, reg, location);
  std::memset(location, 0, sizeof *location);
  const Frame* frame = own->all_registers();
  if (frame == nullptr) return -UNW_EBADFRAME;
  const Registers& registers = frame->registers;
  if (reg < 0 || !registers.has(static_cast<std::uint64_t>(reg)) || reg == UNW_REG_SP) return 0;
  location->u.addr = frame->saved.at(registers, static_cast<RegisterNumber>(reg));
  if (location->u.addr != 0) location->type = UNW_SLT_MEMORY;
  return 0;
}

int unw_is_signal_frame(unw_cursor_t* cursor) {
  Cursor* own = Cursor::of(cursor);
  if (own == nullptr) return next_is_signal_frame.call_or(-UNW_EINVAL, cursor);
  if (own->own.has_all_registers()) return own->all_registers()->signal_frame ? 1 : 0;
  return !own->own.is_first() && !own->own.pc().is_return_address() ? 1 : 0;
}

int unw_get_proc_info(unw_cursor_t* cursor, unw_proc_info_t* info) {
  const Cursor* own = Cursor::of(cursor);
  if (own == nullptr) return next_get_proc_info.call_or(-UNW_EINVAL, cursor, info);
  const auto function = own_function(own->own.pc().lookup());
  std::memset(info, 0, sizeof *info);
  if (!function) return -UNW_ENOINFO;
  info->start_ip = function->begin;
  info->end_ip = function->end;
  info->lsda = function->lsda;
  info->handler = function->personality;
  info->gp = function->data_base;
  return 0;
}

int unw_get_proc_name(unw_cursor_t* cursor, char* name, size_t size, unw_word_t* offset) {
  const Cursor* own = Cursor::of(cursor);
  if (own == nullptr) return next_get_proc_name.call_or(-UNW_EINVAL, cursor, name, size, offset);
  if (name == nullptr || size == 0) return -UNW_EINVAL;
  std::uint64_t begin = 0;
  bool whole = false;
  if (!proc_name(own->own.pc().lookup(), name, size, begin, whole)) return -UNW_ENOINFO;
  if (offset != nullptr) *offset = own->own.pc().value() - begin;
  return whole ? 0 : -UNW_ENOMEM;
}

[[gnu::visibility("hidden")]] int windlass_dropin_unw_backtrace(void** pcs, int size, const std::uint64_t* slots) {
  if (size <= 0) return 0;
  return static_cast<int>(backtrace_from(registers_from_capture(slots), reinterpret_cast<std::uint64_t*>(pcs),
                                         static_cast<std::size_t>(size)));
}
WINDLASS_CAPTURING_ENTRY(unw_backtrace, windlass_dropin_unw_backtrace, 2);

// ---- what is not offered, and what is nothing here ----------------------------------------------------------------

int unw_resume(unw_cursor_t* cursor) {
  return is_ours(cursor) ? -UNW_EINVAL : next_resume.call_or(-UNW_EINVAL, cursor);
}
int unw_get_fpreg(unw_cursor_t* cursor, int reg, unw_fpreg_t* value) {
  return is_ours(cursor) ? -UNW_EBADREG : next_get_fpreg.call_or(-UNW_EINVAL, cursor, reg, value);
}
int unw_set_fpreg(unw_cursor_t* cursor, int reg, unw_fpreg_t value) {
  return is_ours(cursor) ? -UNW_EBADREG : next_set_fpreg.call_or(-UNW_EINVAL, cursor, reg, value);
}
int unw_is_fpreg(int) { return 0; }
void unw_flush_cache(unw_addr_space_t, unw_word_t, unw_word_t) {}
int unw_set_caching_policy(unw_addr_space_t, unw_caching_policy_t) { return 0; }
int unw_set_cache_size(unw_addr_space_t, size_t, int) { return 0; }

const char* unw_regname(unw_regnum_t reg) {
  static constexpr const char* kNames[] = {"RAX", "RDX", "RCX", "RBX", "RSI", "RDI", "RBP", "RSP", "R8",
                                           "R9",  "R10", "R11", "R12", "R13", "R14", "R15", "RIP"};
  return reg >= 0 && static_cast<std::size_t>(reg) < std::size(kNames) ? kNames[reg] : "???";
}

const char* unw_strerror(int error) {
  switch (error < 0 ? -error : error) {
    case UNW_ESUCCESS: return "no error";
    case UNW_EUNSPEC: return "unspecified (general) error";
    case UNW_ENOMEM: return "out of memory";
    case UNW_EBADREG: return "bad register number";
    case UNW_EREADONLYREG: return "attempt to write read-only register";
    case UNW_ESTOPUNWIND: return "stop unwinding";
    case UNW_EINVALIDIP: return "invalid IP";
    case UNW_EBADFRAME: return "bad frame";
    case UNW_EINVAL: return "unsupported operation or bad value";
    case UNW_EBADVERSION: return "unwind info has unsupported version";
    case UNW_ENOINFO: return "no unwind info found";
    default: return "invalid error code";
  }
}

}  // extern "C"
