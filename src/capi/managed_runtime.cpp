// Explicit frames, methods, runtimes and their threads.
#include <algorithm>
#include <cstddef>

#include "capi/capture.h"
#include "capi/managed.h"
#include "managed/gc_roots.h"
#include "windlass/backtrace.h"

using namespace windlass;
using namespace windlass::capi;

namespace {

Shells<windlass_runtime> closed_runtimes;
Shells<windlass_mutator> closed_mutators;

// ---- one layout in both languages ---------------------------------------------------------------------------------

static_assert(sizeof(windlass_explicit_frame) == sizeof(managed::ExplicitFrame));
static_assert(WINDLASS_FRAME_NEXT_OFFSET == offsetof(managed::ExplicitFrame, next));
static_assert(WINDLASS_FRAME_COOKIE_OFFSET == offsetof(managed::ExplicitFrame, cookie));
static_assert(WINDLASS_FRAME_KIND_OFFSET == offsetof(managed::ExplicitFrame, kind));
static_assert(WINDLASS_FRAME_FORM_OFFSET == offsetof(managed::ExplicitFrame, form));
static_assert(WINDLASS_FRAME_ATTRIBUTES_OFFSET == offsetof(managed::ExplicitFrame, attributes));
static_assert(WINDLASS_FRAME_REFERENCE_COUNT_OFFSET == offsetof(managed::ExplicitFrame, reference_count));
static_assert(WINDLASS_FRAME_REFERENCES_OFFSET == offsetof(managed::ExplicitFrame, references));
static_assert(WINDLASS_FRAME_USER_OFFSET == offsetof(managed::ExplicitFrame, user));
static_assert(offsetof(windlass_explicit_frame, user) == WINDLASS_FRAME_USER_OFFSET);
static_assert(WINDLASS_CALL_SITE_PC_OFFSET == sizeof(managed::ExplicitFrame) + offsetof(managed::CallSite, pc));
static_assert(WINDLASS_CALL_SITE_SP_OFFSET == sizeof(managed::ExplicitFrame) + offsetof(managed::CallSite, sp));
static_assert(WINDLASS_CALL_SITE_FP_OFFSET == sizeof(managed::ExplicitFrame) + offsetof(managed::CallSite, fp));
static_assert(offsetof(windlass_call_site_frame, fp) == WINDLASS_CALL_SITE_FP_OFFSET);
static_assert(WINDLASS_FRAME_CONTEXT_OFFSET == offsetof(managed::ContextFrame, context));
static_assert(sizeof(windlass_context_frame) == sizeof(managed::ContextFrame));
static_assert(WINDLASS_LIST_TOP_OFFSET == offsetof(managed::FrameList, top));
static_assert(WINDLASS_LIST_COOKIE_OFFSET == offsetof(managed::FrameList, cookie));
static_assert(sizeof(windlass_frame_list) == sizeof(managed::FrameList));
static_assert(WINDLASS_REFERENCE_INTERIOR == managed::kInterior && WINDLASS_REFERENCE_PINNED == managed::kPinned);
static_assert(WINDLASS_FRAME_FUNCTION_EVALUATION == static_cast<int>(managed::FrameKind::kFunctionEvaluation));
static_assert(WINDLASS_FRAME_USER == static_cast<int>(managed::FrameKind::kUser));
static_assert(WINDLASS_FORM_LAZY == static_cast<int>(managed::FrameForm::kLazy));
static_assert(WINDLASS_FRAME_STANDS_FOR_FUNCTION == managed::kStandsForFunction);
static_assert(WINDLASS_FRAME_HAS_FAULTED == managed::kFaulted && WINDLASS_FRAME_ABORTED == managed::kFrameAborted);
static_assert(WINDLASS_END_OF_FRAMES == managed::kEndOfFrames);
static_assert(WINDLASS_FAULT == static_cast<int>(managed::Funclet::kFault));
static_assert(WINDLASS_AT_REGISTER == static_cast<int>(managed::FramePlace::kAtRegister));
static_assert(WINDLASS_CLAUSE_FAULT == static_cast<int>(managed::ClauseKind::kFault));

managed::FrameList& list_of(windlass_frame_list* list) { return *reinterpret_cast<managed::FrameList*>(list); }

bool clauses_from_c(const windlass_method_description& from, std::vector<managed::Clause>& to) {
  if ((from.clauses == nullptr) != (from.clause_count == 0)) return false;
  for (std::uint32_t i = 0; i < from.clause_count; ++i) {
    const windlass_clause& clause = from.clauses[i];
    if (clause.kind > WINDLASS_CLAUSE_FAULT || clause.begin > clause.end || clause.reserved != 0) return false;
    to.push_back({.kind = static_cast<managed::ClauseKind>(clause.kind),
                  .begin = clause.begin,
                  .end = clause.end,
                  .handler = clause.handler,
                  .filter = clause.filter,
                  .user = clause.user,
                  .resume = clause.resume});
  }
  return true;
}

// Null, or what is wrong.
const char* method_from_c(const windlass_method_description& from, windlass_method& to) {
  if (from.begin >= from.end) return "method has no code";
  if (from.funclet > WINDLASS_FAULT || (from.flags & ~WINDLASS_TRANSPARENT) != 0)
    return "method is of no kind that there is";
  if ((from.funclet == WINDLASS_NO_FUNCLET) != (from.parent == nullptr)) return "funclet without a method";
  if (!clauses_from_c(from, to.own_clauses)) return "method's clauses are of no kind that there is";
  if (!capi::from_c(from.this_object, to.this_object) || !capi::from_c(from.generic_context, to.generic_context) ||
      !capi::from_c(from.guard, to.guard))
    return "place of a frame is of no kind that there is";
  if ((from.roots == nullptr) != (from.roots_size == 0)) return "stack map without its size";
  const auto* bytes = static_cast<const std::byte*>(from.roots);
  to.own_roots.assign(bytes, bytes + from.roots_size);
  to.begin = from.begin;
  to.end = from.end;
  to.id = from.id;
  to.funclet = static_cast<managed::Funclet>(from.funclet);
  to.parent = from.parent;
  to.transparent = (from.flags & WINDLASS_TRANSPARENT) != 0;
  to.windows.base = from.windows_base;
  if (from.windows_end != 0) {
    to.windows.function = {from.windows_begin, from.windows_end, from.windows_info};
  } else if (from.windows_info != 0) {
    to.own_entry = {from.windows_begin, from.windows_info};
    to.windows.entries = {&to.own_entry, 1};
  }
  to.roots = to.own_roots;
  to.clauses = to.own_clauses;
  return nullptr;
}

}  // namespace

bool windlass::capi::from_c(const windlass_place& from, managed::FramePlace& to) {
  to = {static_cast<managed::FramePlace::Base>(from.base), from.reg, from.offset};
  return from.base <= WINDLASS_AT_REGISTER;
}

extern "C" {

// ---- explicit frames ----------------------------------------------------------------------------------------------

windlass_status windlass_frame_list_init(windlass_frame_list* list) {
  if (list == nullptr) return WINDLASS_INVALID;
  list_of(list) = managed::FrameList();
  return WINDLASS_OK;
}

void windlass_push_frame(windlass_frame_list* list, windlass_explicit_frame* frame) {
  list_of(list).push(*reinterpret_cast<managed::ExplicitFrame*>(frame));
}

void windlass_pop_frame(windlass_frame_list* list, const windlass_explicit_frame* frame) {
  list_of(list).pop(*reinterpret_cast<const managed::ExplicitFrame*>(frame));
}

WINDLASS_HIDDEN void windlass_capi_capture_frame(windlass_context_frame* frame, const std::uint64_t* slots) {
  frame->context.known = managed::kCapturedSlots;
  frame->context.return_address = 1;
  std::copy_n(slots, Registers::kSlots, frame->context.value);
}
WINDLASS_CAPTURING_ENTRY(windlass_capture_frame, windlass_capi_capture_frame, 1);

// ---- methods and runtimes -----------------------------------------------------------------------------------------

windlass_status windlass_make_method(const windlass_method_description* description, windlass_method** method,
                                     windlass_error* error) {
  windlass_method_description given;
  if (method == nullptr || !take(description, given))
    return invalid("windlass_method_description is not set up", error);
  auto made = std::unique_ptr<windlass_method>(new (std::nothrow) windlass_method);
  if (made == nullptr) return no_memory(error);
  if (const char* wrong = method_from_c(given, *made); wrong != nullptr)
    return report({ErrorCode::kMalformed, wrong, given.begin}, error);
  if (!made->roots.empty())
    if (const auto map = managed::MapReader::open(made->roots); !map) return report(map.error(), error);
  *method = made.release();
  return WINDLASS_OK;
}

void windlass_free_method(windlass_method* method) { delete method; }
uint64_t windlass_method_id(const windlass_method* method) { return method != nullptr ? method->id : 0; }

windlass_status windlass_open_runtime(const windlass_runtime_callbacks* callbacks, windlass_runtime** runtime,
                                      windlass_error* error) {
  windlass_runtime_callbacks given;
  if (runtime == nullptr || !take(callbacks, given) || given.find == nullptr)
    return invalid("windlass_runtime_callbacks is not set up", error);
  return open_shell(closed_runtimes, runtime, error, [&](windlass_runtime& shell) { shell.runtime.emplace(given); });
}

windlass_status windlass_close_runtime(windlass_runtime* runtime) {
  if (!usable(runtime)) return WINDLASS_INVALID;
  close_shell(closed_runtimes, *runtime, [](windlass_runtime& shell) { shell.runtime.reset(); });
  return WINDLASS_OK;
}

uint64_t windlass_new_generation(void) { return managed::new_generation(); }

// ---- threads ------------------------------------------------------------------------------------------------------

windlass_status windlass_open_mutator(windlass_runtime* runtime, const windlass_personality* personality,
                                      windlass_mutator** mutator, windlass_error* error) {
  windlass_personality given;
  if (mutator == nullptr || !usable(runtime)) return invalid("the runtime is not open", error);
  if (personality != nullptr && (!take(personality, given) || given.catches == nullptr))
    return invalid("windlass_personality is not set up", error);
  return open_shell(closed_mutators, mutator, error, [&](windlass_mutator& shell) {
    shell.thread.emplace();
    shell.thread->handle = &shell;
    shell.thread->walk.space = &own_process();
    shell.thread->walk.runtime = &*runtime->runtime;
    if (personality != nullptr) shell.thread->personality = &shell.personality.emplace(given);
    shell.runtime = runtime;
  });
}

windlass_status windlass_close_mutator(windlass_mutator* mutator) {
  if (!usable(mutator) || mutator->attached) return WINDLASS_INVALID;
  close_shell(closed_mutators, *mutator, [](windlass_mutator& shell) {
    shell.thread.reset();
    shell.personality.reset();
  });
  return WINDLASS_OK;
}

windlass_frame_list* windlass_mutator_frames(windlass_mutator* mutator) {
  return usable(mutator) ? reinterpret_cast<windlass_frame_list*>(&mutator->thread->frames) : nullptr;
}

}  // extern "C"
