// The result of one virtual unwind, in one form for both unwinders: every register, the place where it was saved, the
// frame, the handler.
#pragma once

#include <windows.h>

#include <cstdint>
#include <string>

#include "formats/winx64/exec.h"
#include "made_up_state.h"

namespace windlass::test {

struct Outcome {
  std::uint64_t rip = 0;
  std::uint64_t establisher = 0;
  std::uint64_t integer[16] = {};  // rsp too
  M128A xmm[16] = {};
  std::uint64_t integer_at[16] = {};
  std::uint64_t xmm_at[16] = {};
  std::uint64_t handler = 0;  // addresses
  std::uint64_t handler_data = 0;
};

// The parts in which two outcomes differ: "rip rsp rbx [rbx] xmm6 frame handler"; empty: none.
inline std::string differences(const Outcome& a, const Outcome& b) {
  std::string text;
  const auto note = [&](bool differs, std::string_view name) {
    if (differs) (text += text.empty() ? "" : " ") += name;
  };
  note(a.rip != b.rip, "rip");
  for (unsigned i = 0; i < 16; ++i) note(a.integer[i] != b.integer[i], winx64::register_name(i));
  for (unsigned i = 0; i < 16; ++i) {
    const std::string name = std::string(winx64::register_name(i));
    note(i != winx64::kRsp && a.integer_at[i] != b.integer_at[i], "[" + name + "]");
  }
  for (unsigned i = 0; i < 16; ++i) {
    const std::string name = "xmm" + std::to_string(i);
    note(a.xmm[i].Low != b.xmm[i].Low || a.xmm[i].High != b.xmm[i].High, name);
    note(a.xmm_at[i] != b.xmm_at[i], "[" + name + "]");
  }
  note(a.establisher != b.establisher, "frame");
  note(a.handler != b.handler, "handler");
  note(a.handler_data != b.handler_data, "data");
  return text;
}

// The system's. `entry` is the direct one of the function around pc.
inline Outcome system_unwind(std::uint64_t base, const winx64::RuntimeFunction& entry, const CONTEXT& from,
                             ULONG handlers = UNW_FLAG_EHANDLER | UNW_FLAG_UHANDLER) {
  CONTEXT context = from;
  RUNTIME_FUNCTION function{entry.begin, entry.end, {entry.info}};
  KNONVOLATILE_CONTEXT_POINTERS saved{};
  void* data = nullptr;
  DWORD64 frame = 0;
  Outcome to;
  to.handler = reinterpret_cast<std::uint64_t>(
      RtlVirtualUnwind(handlers, base, from.Rip, &function, &context, &data, &frame, &saved));
  to.rip = context.Rip;
  to.establisher = frame;
  to.handler_data = to.handler != 0 ? reinterpret_cast<std::uint64_t>(data) : 0;
  for (unsigned i = 0; i < 16; ++i) {
    to.integer[i] = (&context.Rax)[i];
    to.xmm[i] = (&context.Xmm0)[i];
    to.integer_at[i] = reinterpret_cast<std::uint64_t>(saved.IntegerContext[i]);
    to.xmm_at[i] = reinterpret_cast<std::uint64_t>(saved.FloatingContext[i]);
  }
  return to;
}

inline Registers registers_of(const CONTEXT& context) {
  Registers registers(Architecture::kX86_64);
  for (unsigned i = 0; i < 16; ++i) registers.set(winx64::dwarf_number(i), (&context.Rax)[i]);
  registers.set_pc(CodeAddress::instruction(context.Rip));
  return registers;
}

// Windlass's result over what was in the registers before.
template <typename Memory>
Outcome outcome_of(const winx64::Unwound& unwound, const winx64::SavedAddresses& saved, std::uint64_t base,
                   const CONTEXT& from, const Memory& memory) {
  Outcome to;
  to.rip = unwound.caller.pc().value();
  to.establisher = unwound.establisher;
  if (unwound.handler != 0) {
    to.handler = base + unwound.handler;
    to.handler_data = base + unwound.handler_data;
  }
  for (unsigned i = 0; i < 16; ++i) {
    const RegisterNumber reg = winx64::dwarf_number(i);
    to.integer[i] = unwound.caller.has(reg) ? unwound.caller.get(reg) : (&from.Rax)[i];
    to.integer_at[i] = saved.integer[i];
    to.xmm[i] = (&from.Xmm0)[i];
    to.xmm_at[i] = saved.xmm[i];
    if (saved.xmm[i] != 0) (void)memory.read(saved.xmm[i], &to.xmm[i], sizeof to.xmm[i]);
  }
  return to;
}

}  // namespace windlass::test
