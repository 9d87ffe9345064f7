// Cursors and walks.
#include <cstdint>
#include <memory>
#include <new>

#include "capi/handles.h"
#include "capi/structs.h"

using namespace windlass;
using namespace windlass::capi;

namespace {

static_assert(WINDLASS_ORIGIN_CFI == static_cast<int>(FrameOrigin::kCfi));
static_assert(WINDLASS_ORIGIN_CODE == static_cast<int>(FrameOrigin::kSynthesis));
static_assert(WINDLASS_ORIGIN_FRAME_POINTER == static_cast<int>(FrameOrigin::kFramePointer));
static_assert(WINDLASS_ORIGIN_LEAF == static_cast<int>(FrameOrigin::kLeaf));
static_assert(WINDLASS_ORIGIN_PDATA == static_cast<int>(FrameOrigin::kPdata));
static_assert(WINDLASS_CERTAINTY_DESCRIBED == static_cast<int>(FrameCertainty::kDescribed));
static_assert(WINDLASS_CERTAINTY_CHAINED == static_cast<int>(FrameCertainty::kChained));
static_assert(WINDLASS_CERTAINTY_GUESSED == static_cast<int>(FrameCertainty::kGuessed));
static_assert(WINDLASS_END_COMPLETE == static_cast<int>(WalkEnd::kComplete));
static_assert(WINDLASS_END_NO_ROW == static_cast<int>(WalkEnd::kNoRow));
static_assert(WINDLASS_END_LOST == static_cast<int>(WalkEnd::kLost));
static_assert(WINDLASS_END_LIMIT == static_cast<int>(WalkEnd::kLimit));
static_assert(WINDLASS_END_FOREIGN == static_cast<int>(WalkEnd::kForeign));
static_assert(WINDLASS_END_BUDGET == static_cast<int>(WalkEnd::kBudget));
static_assert(WINDLASS_END_CHAINED == static_cast<int>(WalkEnd::kChained));
static_assert(alignof(windlass_cursor) <= WINDLASS_CURSOR_ALIGNMENT);

bool options_from_c(const windlass_options* from, WalkOptions& to) {
  if (from == nullptr) return true;
  windlass_options given;
  if (!take(from, given) || (given.flags & ~WINDLASS_NO_CODE_ANALYSIS) != 0) return false;
  if (given.max_frames != 0) to.max_frames = given.max_frames;
  to.synthesize = (given.flags & WINDLASS_NO_CODE_ANALYSIS) == 0;
  return true;
}

// Checks and converts the arguments of a walk. Returns null, or the text of the error.
const char* prepare(const windlass_space* space, const windlass_registers* from, const windlass_options* options_from,
                    Registers& registers, WalkOptions& options) {
  if (!usable(space)) return "the space is not open";
  windlass_registers given;
  if (!take(from, given) || !from_c(given, registers)) return "windlass_registers is not set up";
  if (registers.architecture() != space->target->space.architecture()) return "registers of another architecture";
  if (!registers.has(Registers::pc_number(registers.architecture())) || !registers.has_sp())
    return "a walk needs the pc and the stack pointer";
  if (!options_from_c(options_from, options)) return "windlass_options is not set up";
  return nullptr;
}

windlass_frame frame_to_c(const Frame& frame, std::uint64_t index) {
  windlass_frame to{};
  to.size = sizeof to;
  to.pc = frame.pc().value();
  to.sp = frame.sp();
  to.lookup = frame.pc().lookup();
  to.origin = static_cast<std::uint32_t>(frame.origin);
  to.flags = (frame.pc().is_return_address() ? WINDLASS_RETURN_ADDRESS : 0u) |
             (frame.signal_frame ? WINDLASS_SIGNAL_FRAME : 0u);
  to.certainty = static_cast<std::uint32_t>(frame.certainty);
  to.index = index;
  if (frame.module != nullptr) {
    to.module_begin = frame.module->begin;
    to.module_end = frame.module->end;
    to.module_bias = frame.module->bias;
    to.module_path = frame.module->path.c_str();
  }
  return to;
}

// Why the walk has ended; of a whole stack that there is no error, so that what the caller prints is never its own
// uninitialised memory.
void report_end(const StackWalker& walker, windlass_error* error) {
  if (walker.end_reason() != WalkEnd::kComplete)
    report(walker.error(), error);
  else if (error != nullptr)
    (void)give(windlass_error{}, error);
}

}  // namespace

extern "C" {

// end_name and origin_name give views of literals.
const char* windlass_origin_name(uint32_t origin) {
  return origin <= WINDLASS_ORIGIN_PDATA ? origin_name(static_cast<FrameOrigin>(origin)).data() : "?";
}
const char* windlass_certainty_name(uint32_t certainty) {
  return certainty <= WINDLASS_CERTAINTY_GUESSED ? certainty_name(static_cast<FrameCertainty>(certainty)).data() : "?";
}
const char* windlass_end_name(uint32_t end) {
  if (end == WINDLASS_END_STOPPED) return "stopped";
  return end <= WINDLASS_END_BUDGET ? end_name(static_cast<WalkEnd>(end)).data() : "?";
}

windlass_status windlass_walk(const windlass_space* space, const windlass_registers* registers,
                              const windlass_options* options, windlass_callback callback, void* user, uint32_t* end,
                              windlass_error* error) {
  Registers from;
  WalkOptions how;
  if (const char* wrong = prepare(space, registers, options, from, how); wrong != nullptr) return invalid(wrong, error);
  if (callback == nullptr) return invalid("there is no callback", error);
  windlass_cursor cursor(*space, from, how);
  std::uint32_t reason = WINDLASS_END_STOPPED;
  for (;;) {
    const windlass_frame frame = frame_to_c(cursor.walker.frame(), cursor.index);
    if (callback(&cursor, &frame, user) != 0) break;
    if (cursor.walker.step()) {
      ++cursor.index;
      continue;
    }
    reason = static_cast<std::uint32_t>(cursor.walker.end_reason());
    report_end(cursor.walker, error);
    break;
  }
  cursor.magic = 0;
  if (end != nullptr) *end = reason;
  return WINDLASS_OK;
}

windlass_status windlass_step_registers(const windlass_space* space, windlass_registers* registers,
                                        windlass_frame* frame, uint32_t* end, windlass_error* error) {
  Registers from;
  WalkOptions how;
  if (const char* wrong = prepare(space, registers, nullptr, from, how); wrong != nullptr) return invalid(wrong, error);
  if (frame != nullptr && !sized(frame)) return invalid("windlass_frame is not set up", error);
  StackWalker walker(space->target->space, from, how);
  const bool moved = walker.step();
  if (end != nullptr) *end = static_cast<std::uint32_t>(walker.end_reason());
  if (!moved) {
    report_end(walker, error);
    return WINDLASS_END;
  }
  (void)give(to_c(walker.frame().registers), registers);
  if (frame != nullptr) (void)give(frame_to_c(walker.frame(), 1), frame);
  return WINDLASS_OK;
}

size_t windlass_cursor_size(void) { return sizeof(windlass_cursor); }

windlass_status windlass_cursor_init(void* storage, size_t storage_size, const windlass_space* space,
                                     const windlass_registers* registers, const windlass_options* options,
                                     windlass_cursor** cursor, windlass_error* error) {
  if (cursor == nullptr) return invalid("nowhere to put the cursor", error);
  *cursor = nullptr;
  if (storage == nullptr || storage_size < sizeof(windlass_cursor) ||
      reinterpret_cast<std::uintptr_t>(storage) % WINDLASS_CURSOR_ALIGNMENT != 0)
    return invalid("the storage is too small or not aligned", error);
  Registers from;
  WalkOptions how;
  if (const char* wrong = prepare(space, registers, options, from, how); wrong != nullptr) return invalid(wrong, error);
  *cursor = new (storage) windlass_cursor(*space, from, how);
  return WINDLASS_OK;
}

windlass_status windlass_cursor_end(windlass_cursor* cursor) {
  // Of a closed space too: the walker's own memory goes with it.
  if (cursor == nullptr || cursor->magic != windlass_cursor::kAlive) return WINDLASS_INVALID;
  cursor->magic = 0;
  std::destroy_at(&cursor->walker);
  return WINDLASS_OK;
}

windlass_status windlass_step(windlass_cursor* cursor, windlass_error* error) {
  if (!usable(cursor)) return invalid("the cursor has ended or its space is closed", error);
  if (cursor->walker.step()) {
    ++cursor->index;
    return WINDLASS_OK;
  }
  report_end(cursor->walker, error);
  return WINDLASS_END;
}

windlass_status windlass_end_reason(const windlass_cursor* cursor, uint32_t* end) {
  if (!usable(cursor) || end == nullptr) return WINDLASS_INVALID;
  *end = static_cast<std::uint32_t>(cursor->walker.end_reason());
  return WINDLASS_OK;
}

windlass_status windlass_cursor_frame(const windlass_cursor* cursor, windlass_frame* frame) {
  if (!usable(cursor)) return WINDLASS_INVALID;
  return give(frame_to_c(cursor->walker.frame(), cursor->index), frame) ? WINDLASS_OK : WINDLASS_INVALID;
}

windlass_status windlass_cursor_registers(const windlass_cursor* cursor, windlass_registers* registers) {
  if (!usable(cursor)) return WINDLASS_INVALID;
  return give(to_c(cursor->walker.frame().registers), registers) ? WINDLASS_OK : WINDLASS_INVALID;
}

windlass_status windlass_cursor_get(const windlass_cursor* cursor, uint32_t number, uint64_t* value) {
  if (!usable(cursor) || value == nullptr) return WINDLASS_INVALID;
  const Registers& registers = cursor->walker.frame().registers;
  if (!registers.holds(number)) return WINDLASS_OUT_OF_RANGE;
  if (!registers.has(number)) return WINDLASS_NOT_FOUND;
  *value = registers.get(number);
  return WINDLASS_OK;
}

windlass_status windlass_saved_at(const windlass_cursor* cursor, uint32_t number, uint64_t* address) {
  if (!usable(cursor) || address == nullptr) return WINDLASS_INVALID;
  const Frame& frame = cursor->walker.frame();
  if (!frame.registers.holds(number)) return WINDLASS_OUT_OF_RANGE;
  if (!frame.registers.has(number) || number == Registers::sp_number(frame.registers.architecture()))
    return WINDLASS_NOT_FOUND;
  *address = frame.saved.at(frame.registers, static_cast<RegisterNumber>(number));
  return WINDLASS_OK;
}

}  // extern "C"
