// Walks of managed stacks, and the roots of their frames.
#include <cstring>

#include "capi/code.h"
#include "capi/managed.h"

using namespace windlass;
using namespace windlass::capi;

namespace {

static_assert(WINDLASS_FUNCTIONS_ONLY == managed::kFunctionsOnly && WINDLASS_POP_FRAMES == managed::kPopFrames);
static_assert(WINDLASS_LIGHT_UNWIND == managed::kLightUnwind);
static_assert(WINDLASS_DISABLE_MISSING_FRAME_DETECTION == managed::kDisableMissingFrameDetection);
static_assert(WINDLASS_ALLOW_INVALID_OBJECTS == managed::kAllowInvalidObjects);
static_assert(WINDLASS_GC_FUNCLET_REFERENCES == managed::kGcFuncletReferences);
static_assert(WINDLASS_NATIVE_FRAMES == managed::kNativeFrames);
static_assert(WINDLASS_FRAMELESS == static_cast<int>(managed::CrawlState::kFrameless));
static_assert(WINDLASS_NATIVE_FRAME == static_cast<int>(managed::CrawlState::kNativeFrame));
static_assert(WINDLASS_MY_CALLERS_CALLER == static_cast<int>(managed::CrawlMark::kMyCallersCaller));
constexpr std::uint32_t kAllFlags = 2 * WINDLASS_NATIVE_FRAMES - 1;

// What a walk needs, checked.
struct Start {
  managed::ManagedThread other;  // of another process
  const managed::ManagedThread* thread = nullptr;
  Registers registers;
};

// Null, or what is wrong.
const char* prepare(const windlass_managed_thread* thread, const windlass_registers* registers, Start& start) {
  windlass_managed_thread given;
  if (!take(thread, given)) return "windlass_managed_thread is not set up";
  if (given.mutator != nullptr) {
    if (!usable(given.mutator)) return "the mutator is closed";
    start.thread = &given.mutator->thread->walk;
  } else {
    if (!usable(given.space) || !usable(given.runtime)) return "the space or the runtime is not open";
    start.other = {.space = &given.space->target->space,
                   .runtime = &*given.runtime->runtime,
                   .frames = given.frames,
                   .cookie = given.cookie,
                   .exceptions = given.exceptions};
    start.thread = &start.other;
  }
  start.registers = Registers(start.thread->space->architecture());
  windlass_registers from;
  if (registers != nullptr && (!take(registers, from) || !capi::from_c(from, start.registers) ||
                               start.registers.architecture() != start.thread->space->architecture()))
    return "windlass_registers is not set up, or of another architecture";
  return nullptr;
}

const managed::CrawlFrame* frameless(const windlass_crawl* crawl) {
  return crawl != nullptr && crawl->frame.frameless() ? &crawl->frame : nullptr;
}

windlass_status value_at(const windlass_crawl* crawl, const managed::FramePlace& place, std::uint64_t* value) {
  const auto found = crawl->frame.value(crawl->memory, place);
  if (!found) return status_of(found.error().code);
  *value = *found;
  return WINDLASS_OK;
}

windlass_root to_c(const managed::Root& root) {
  return {.value = root.value,
          .address = root.address,
          .base = root.base,
          .reg = root.reg,
          .flags = (root.interior ? WINDLASS_INTERIOR : 0u) | (root.pinned ? WINDLASS_PINNED : 0u) |
                   (root.derived ? WINDLASS_DERIVED : 0u)};
}

// Gives roots to a callback of C.
auto giving_to(windlass_root_callback callback, void* user) {
  return [=](const managed::Root& root) {
    const windlass_root shown = to_c(root);
    callback(&shown, user);
  };
}

bool from_c(const windlass_root_slot& from, managed::RootSlot& to) {
  to.interior = (from.flags & WINDLASS_INTERIOR) != 0;
  to.pinned = (from.flags & WINDLASS_PINNED) != 0;
  return capi::from_c(from.place, to.place) && (from.flags & ~(WINDLASS_INTERIOR | WINDLASS_PINNED)) == 0;
}

bool from_c(const windlass_root_slot* from, std::size_t count, std::vector<managed::RootSlot>& to) {
  if ((from == nullptr) != (count == 0)) return false;
  for (std::size_t i = 0; i < count; ++i)
    if (!from_c(from[i], to.emplace_back())) return false;
  return true;
}

bool from_c(const windlass_stack_map& from, managed::StackMap& to) {
  to.code_size = from.code_size;
  if (!from_c(from.always, from.always_count, to.always) || (from.derived == nullptr) != (from.derived_count == 0) ||
      (from.sites == nullptr) != (from.site_count == 0))
    return false;
  for (std::size_t i = 0; i < from.derived_count; ++i) {
    managed::DerivedSlot& derived = to.derived.emplace_back();
    if (!from_c(from.derived[i].slot, derived.slot) || !from_c(from.derived[i].base, derived.base)) return false;
  }
  for (std::size_t i = 0; i < from.site_count; ++i) {
    managed::RootSite& site = to.sites.emplace_back();
    site.offset = from.sites[i].offset;
    if (!from_c(from.sites[i].live, from.sites[i].live_count, site.live)) return false;
  }
  return true;
}

}  // namespace

Expected<void> CallbackRuntime::each_argument(const managed::CrawlFrame& frame, const Memory& memory,
                                              managed::RootSink sink) const {
  if (callbacks_.each_argument == nullptr) return {};
  const windlass_crawl crawl{frame, memory};
  const windlass_crawl_frame shown = capi::to_c(frame);
  const windlass_root_callback give = [](const windlass_root* root, void* to) {
    (*static_cast<managed::RootSink*>(to))({.value = root->value,
                                            .address = root->address,
                                            .reg = static_cast<RegisterNumber>(root->reg),
                                            .interior = (root->flags & WINDLASS_INTERIOR) != 0,
                                            .pinned = (root->flags & WINDLASS_PINNED) != 0,
                                            .derived = (root->flags & WINDLASS_DERIVED) != 0,
                                            .base = root->base});
  };
  const windlass_status said = callbacks_.each_argument(&crawl, &shown, give, &sink, callbacks_.user);
  if (said == WINDLASS_OK) return {};
  return fail(ErrorCode::kUnsupported, "the runtime's each_argument() failed", frame.frame.address,
              static_cast<std::uint64_t>(said));
}

windlass_crawl_frame windlass::capi::to_c(const managed::CrawlFrame& frame) {
  windlass_crawl_frame to{};
  to.size = sizeof to;
  to.state = static_cast<std::uint32_t>(frame.state);
  to.flags = (frame.pc().is_return_address() ? WINDLASS_RETURN_ADDRESS : 0u) | (frame.first ? WINDLASS_IS_FIRST : 0u) |
             (frame.interrupted ? WINDLASS_IS_INTERRUPTED : 0u) | (frame.faulted ? WINDLASS_HAS_FAULTED : 0u) |
             (frame.reports_roots ? WINDLASS_REPORTS_ROOTS : 0u) | (frame.saved_known ? WINDLASS_SAVED_KNOWN : 0u);
  to.pc = frame.pc().value();
  to.sp = frame.registers.sp();
  to.cfa = frame.cfa;
  to.function = frame.function();
  to.method = to_c(frame.method);
  to.exception = frame.exception;
  if (to.state == WINDLASS_FRAME_FUNCTION || to.state == WINDLASS_SKIPPED_FRAME) {
    to.frame = frame.frame.address;
    to.frame_user = frame.frame.user;
    to.frame_kind = static_cast<std::uint16_t>(frame.frame.kind);
    to.frame_form = static_cast<std::uint8_t>(frame.frame.form);
    to.frame_attributes = frame.frame.attributes;
  }
  return to;
}

extern "C" {

// ---- walks --------------------------------------------------------------------------------------------------------

windlass_status windlass_walk_managed(const windlass_managed_thread* thread, const windlass_registers* registers,
                                      uint32_t flags, windlass_crawl_callback callback, void* user, uint32_t* outcome,
                                      windlass_error* error) {
  Start start;
  if (const char* wrong = prepare(thread, registers, start); wrong != nullptr) return invalid(wrong, error);
  if (callback == nullptr || (flags & ~kAllFlags) != 0) return invalid("there is no callback, or no such flag", error);
  Error why;
  const auto end = managed::walk(
      *start.thread, start.registers, flags,
      [&](const managed::CrawlFrame& frame) {
        const windlass_crawl crawl{frame, start.thread->space->memory()};
        const windlass_crawl_frame shown = to_c(frame);
        switch (callback(&crawl, &shown, user)) {
          case WINDLASS_CONTINUE: return managed::WalkAction::kContinue;
          case WINDLASS_STOP: return managed::WalkAction::kStop;
          default: return managed::WalkAction::kAbort;
        }
      },
      &why);
  static_assert(WINDLASS_WALK_FAILED == static_cast<int>(managed::WalkOutcome::kFailed));
  if (end == managed::WalkOutcome::kFailed) report(why, error);
  if (outcome != nullptr) *outcome = static_cast<std::uint32_t>(end);
  return WINDLASS_OK;
}

windlass_status windlass_find_managed_caller(const windlass_managed_thread* thread, const windlass_registers* registers,
                                             uint32_t mark, windlass_crawl_frame* frame, windlass_error* error) {
  Start start;
  if (const char* wrong = prepare(thread, registers, start); wrong != nullptr) return invalid(wrong, error);
  if (!sized(frame) || mark > WINDLASS_MY_CALLERS_CALLER)
    return invalid("windlass_crawl_frame is not set up, or there is no such mark", error);
  const auto found = managed::find_caller(*start.thread, start.registers, static_cast<managed::CrawlMark>(mark));
  if (!found) return report(found.error(), error);
  (void)give(to_c(*found), frame);
  return WINDLASS_OK;
}

// ---- the frame at hand --------------------------------------------------------------------------------------------

windlass_status windlass_crawl_registers(const windlass_crawl* crawl, windlass_registers* registers) {
  return crawl != nullptr && give(to_c(crawl->frame.registers), registers) ? WINDLASS_OK : WINDLASS_INVALID;
}

windlass_status windlass_crawl_get(const windlass_crawl* crawl, uint32_t number, uint64_t* value) {
  if (crawl == nullptr || value == nullptr) return WINDLASS_INVALID;
  const Registers& registers = crawl->frame.registers;
  if (!registers.holds(number)) return WINDLASS_OUT_OF_RANGE;
  if (!registers.has(number)) return WINDLASS_NOT_FOUND;
  *value = registers.get(number);
  return WINDLASS_OK;
}

windlass_status windlass_crawl_saved_at(const windlass_crawl* crawl, uint32_t number, uint64_t* address) {
  if (crawl == nullptr || address == nullptr) return WINDLASS_INVALID;
  const Registers& registers = crawl->frame.registers;
  if (!registers.holds(number)) return WINDLASS_OUT_OF_RANGE;
  if (!registers.has(number) || !crawl->frame.saved_known || number == Registers::sp_number(registers.architecture()))
    return WINDLASS_NOT_FOUND;
  *address = crawl->frame.saved.at(registers, static_cast<RegisterNumber>(number));
  return WINDLASS_OK;
}

windlass_status windlass_crawl_value(const windlass_crawl* crawl, windlass_place place, uint64_t* value) {
  managed::FramePlace at;
  if (frameless(crawl) == nullptr || value == nullptr || !from_c(place, at)) return WINDLASS_INVALID;
  return value_at(crawl, at, value);
}

windlass_status windlass_crawl_this(const windlass_crawl* crawl, uint64_t* value) {
  const managed::CrawlFrame* frame = frameless(crawl);
  return frame != nullptr && value != nullptr ? value_at(crawl, frame->method->this_object, value) : WINDLASS_INVALID;
}

windlass_status windlass_crawl_generic_context(const windlass_crawl* crawl, uint64_t* value) {
  const managed::CrawlFrame* frame = frameless(crawl);
  return frame != nullptr && value != nullptr ? value_at(crawl, frame->method->generic_context, value)
                                              : WINDLASS_INVALID;
}

// ---- roots --------------------------------------------------------------------------------------------------------

windlass_status windlass_encode_stack_map(const windlass_stack_map* map, void* bytes, size_t capacity, size_t* needed,
                                          windlass_error* error) {
  windlass_stack_map given;
  managed::StackMap own;
  if (!take(map, given) || !from_c(given, own) || (bytes == nullptr && capacity != 0) || needed == nullptr)
    return invalid("windlass_stack_map is not set up", error);
  const auto encoded = managed::encode(own);
  if (!encoded) return report(encoded.error(), error);
  *needed = encoded->size();
  if (capacity < encoded->size())
    return report({ErrorCode::kLimit, "stack map does not fit", capacity, encoded->size()}, error);
  std::memcpy(bytes, encoded->data(), encoded->size());
  return WINDLASS_OK;
}

windlass_status windlass_crawl_roots(const windlass_crawl* crawl, windlass_root_callback callback, void* user,
                                     windlass_error* error) {
  if (crawl == nullptr || callback == nullptr) return invalid("there is no frame or no callback", error);
  return done(managed::each_root(crawl->frame, crawl->memory, giving_to(callback, user)), error);
}

windlass_status windlass_each_root(const windlass_managed_thread* thread, const windlass_registers* registers,
                                   uint32_t flags, windlass_root_callback callback, void* user, windlass_error* error) {
  Start start;
  if (const char* wrong = prepare(thread, registers, start); wrong != nullptr) return invalid(wrong, error);
  if (callback == nullptr || (flags & ~WINDLASS_THREAD_IS_SUSPENDED) != 0)
    return invalid("there is no callback, or the flag is none of a collector's", error);
  return done(managed::each_root(*start.thread, start.registers, flags, giving_to(callback, user)), error);
}

windlass_status windlass_open_llvm_stack_maps(const void* section, size_t section_size, windlass_llvm_stack_maps** maps,
                                              windlass_error* error) {
  if (maps == nullptr || (section == nullptr && section_size != 0)) return invalid("there is no section", error);
  auto opened = managed::LlvmStackMaps::open({static_cast<const std::byte*>(section), section_size});
  if (!opened) return report(opened.error(), error);
  *maps = new (std::nothrow) windlass_llvm_stack_maps{std::move(*opened)};
  return *maps != nullptr ? WINDLASS_OK : no_memory(error);
}

void windlass_free_llvm_stack_maps(windlass_llvm_stack_maps* maps) { delete maps; }

windlass_status windlass_crawl_llvm_roots(const windlass_crawl* crawl, const windlass_llvm_stack_maps* maps,
                                          windlass_root_callback callback, void* user, windlass_error* error) {
  if (frameless(crawl) == nullptr || maps == nullptr || callback == nullptr)
    return invalid("there is no frame of managed code, no stack maps or no callback", error);
  return done(maps->maps.each_root(crawl->frame, crawl->memory, giving_to(callback, user)), error);
}

}  // extern "C"
