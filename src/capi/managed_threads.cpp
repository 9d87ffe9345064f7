// Exceptions and suspension.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "capi/managed.h"
#include "windlass/backtrace.h"

using namespace windlass;
using namespace windlass::capi;

namespace {

Shells<windlass_suspender> closed_suspenders;
std::atomic<bool> suspender_is_open = false;

static_assert(WINDLASS_NATIVE_FAIL_FAST == static_cast<int>(managed::NativePolicy::kFailFast));
static_assert(sizeof(std::atomic<managed::ThreadMode>) == sizeof(std::uint32_t) &&
              static_cast<int>(managed::ThreadMode::kNative) == 0);

windlass_thrown thrown_to_c(const managed::Thrown& thrown) {
  return {.object = thrown.object,
          .flags = (thrown.rethrown ? WINDLASS_RETHROWN : 0u) | (thrown.fault ? WINDLASS_OF_FAULT : 0u),
          .reserved = 0};
}

windlass_clause clause_to_c(const managed::Clause& clause) {
  return {.kind = static_cast<std::uint32_t>(clause.kind),
          .begin = clause.begin,
          .end = clause.end,
          .reserved = 0,
          .handler = clause.handler,
          .filter = clause.filter,
          .user = clause.user,
          .resume = clause.resume};
}

windlass_error error_to_c(const Error& why) {
  windlass_error to{};
  to.size = sizeof to;
  (void)report(why, &to);
  return to;
}

// Mutators are threads of this process.
windlass_crawl crawl_of(const managed::CrawlFrame& frame) { return {frame, own_process().memory()}; }

// A mutator that may throw; there is nowhere to return to without one.
managed::ThrowingThread& throwing(windlass_mutator* mutator) {
  if (usable(mutator) && mutator->personality) return *mutator->thread;
  std::fputs("windlass: an exception is thrown on a mutator that is closed or has no personality\n", stderr);
  std::abort();
}

}  // namespace

// ---- the personality ----------------------------------------------------------------------------------------------

bool CallbackPersonality::catches(const managed::CrawlFrame& frame, const managed::Clause& clause,
                                  const managed::Thrown& thrown) {
  const windlass_crawl crawl = crawl_of(frame);
  const windlass_crawl_frame shown = capi::to_c(frame);
  const windlass_clause its = clause_to_c(clause);
  const windlass_thrown what = thrown_to_c(thrown);
  return callbacks_.catches(&crawl, &shown, &its, &what, callbacks_.user) != 0;
}

void CallbackPersonality::trace(const managed::CrawlFrame& frame, const managed::Thrown& thrown) {
  if (callbacks_.trace == nullptr) return;
  const windlass_crawl crawl = crawl_of(frame);
  const windlass_crawl_frame shown = capi::to_c(frame);
  const windlass_thrown what = thrown_to_c(thrown);
  callbacks_.trace(&crawl, &shown, &what, callbacks_.user);
}

std::uint64_t CallbackPersonality::base(const managed::CrawlFrame& frame) const {
  if (callbacks_.base == nullptr) return Personality::base(frame);
  const windlass_crawl crawl = crawl_of(frame);
  const windlass_crawl_frame shown = capi::to_c(frame);
  return callbacks_.base(&crawl, &shown, callbacks_.user);
}

managed::NativePolicy CallbackPersonality::at_native(const managed::CrawlFrame& frame, const managed::Thrown& thrown) {
  if (callbacks_.at_native == nullptr) return Personality::at_native(frame, thrown);
  const windlass_crawl_frame shown = capi::to_c(frame);
  const windlass_thrown what = thrown_to_c(thrown);
  const std::uint32_t policy = callbacks_.at_native(&shown, &what, callbacks_.user);
  return policy <= WINDLASS_NATIVE_FAIL_FAST ? static_cast<managed::NativePolicy>(policy)
                                             : managed::NativePolicy::kFailFast;
}

void CallbackPersonality::notify_debugger(const managed::Thrown& thrown) {
  const windlass_thrown what = thrown_to_c(thrown);
  if (callbacks_.notify_debugger != nullptr) callbacks_.notify_debugger(&what, callbacks_.user);
}

void CallbackPersonality::unhandled(const managed::Thrown& thrown) {
  const windlass_thrown what = thrown_to_c(thrown);
  if (callbacks_.unhandled != nullptr) callbacks_.unhandled(&what, callbacks_.user);
}

std::uint64_t CallbackPersonality::object_of_fault(int signal, std::uint64_t address) {
  return callbacks_.object_of_fault != nullptr ? callbacks_.object_of_fault(signal, address, callbacks_.user) : 0;
}

void CallbackPersonality::failed(const Error& why, const managed::Thrown& thrown) {
  if (callbacks_.failed == nullptr) return Personality::failed(why, thrown);
  const windlass_error shown = error_to_c(why);
  const windlass_thrown what = thrown_to_c(thrown);
  callbacks_.failed(&shown, &what, callbacks_.user);
}

bool CallbackPersonality::make_room(std::uint64_t sp) {
  if (callbacks_.make_room == nullptr) return Personality::make_room(sp);
  return callbacks_.make_room(sp, callbacks_.user) != 0;
}

// ---- safe points --------------------------------------------------------------------------------------------------

void CallbackSafePoints::is_late(const managed::MutatorThread& thread, const Error& why) const {
  if (callbacks_.is_late == nullptr) return SafePoints::is_late(thread, why);
  const windlass_error shown = error_to_c(why);
  callbacks_.is_late(static_cast<const ThreadOfHandle&>(thread).handle, &shown, callbacks_.user);
}

extern "C" {

// ---- exceptions ---------------------------------------------------------------------------------------------------

void windlass_raise(windlass_mutator* mutator, uint64_t object) { managed::raise(throwing(mutator), object); }
void windlass_rethrow(windlass_mutator* mutator) { managed::rethrow(throwing(mutator)); }

int windlass_redirect_fault(windlass_mutator* mutator, int signal, const void* siginfo, void* ucontext) {
  if (!usable(mutator) || !mutator->personality || siginfo == nullptr || ucontext == nullptr) return 0;
  return managed::redirect_fault(*mutator->thread, signal, siginfo, ucontext) ? 1 : 0;
}

// ---- suspension ---------------------------------------------------------------------------------------------------

windlass_status windlass_open_suspender(windlass_runtime* runtime, const windlass_safe_points* safe_points, int signal,
                                        windlass_suspender** suspender, windlass_error* error) {
  windlass_safe_points given;
  if (suspender == nullptr || !usable(runtime)) return invalid("the runtime is not open", error);
  if (!take(safe_points, given) || given.is_safe_point == nullptr)
    return invalid("windlass_safe_points is not set up", error);
  if (suspender_is_open.exchange(true)) return invalid("there is a suspender already", error);
  const auto status = open_shell(closed_suspenders, suspender, error, [&](windlass_suspender& shell) {
    shell.safe_points.emplace(given);
    shell.suspender.emplace(own_process(), *runtime->runtime, *shell.safe_points, signal);
    shell.runtime = runtime;
  });
  suspender_is_open = status == WINDLASS_OK;
  return status;
}

windlass_status windlass_close_suspender(windlass_suspender* suspender) {
  if (!usable(suspender) || suspender->stopped != nullptr) return WINDLASS_INVALID;
  close_shell(closed_suspenders, *suspender, [](windlass_suspender& shell) {
    shell.suspender.reset();
    shell.safe_points.reset();
  });
  suspender_is_open = false;
  return WINDLASS_OK;
}

windlass_status windlass_attach(windlass_suspender* suspender, windlass_mutator* mutator) {
  if (!usable(suspender) || !usable(mutator) || mutator->attached || mutator->runtime != suspender->runtime)
    return WINDLASS_INVALID;
  mutator->attached = true;
  suspender->suspender->attach(*mutator->thread);
  return WINDLASS_OK;
}

windlass_status windlass_detach(windlass_suspender* suspender, windlass_mutator* mutator) {
  if (!usable(suspender) || !usable(mutator) || !mutator->attached) return WINDLASS_INVALID;
  suspender->suspender->detach(*mutator->thread);
  mutator->attached = false;
  return WINDLASS_OK;
}

void windlass_enter_native(windlass_suspender* suspender, windlass_mutator* mutator) {
  if (usable(suspender) && usable(mutator)) suspender->suspender->enter_native(*mutator->thread);
}
void windlass_leave_native(windlass_suspender* suspender, windlass_mutator* mutator) {
  if (usable(suspender) && usable(mutator)) suspender->suspender->leave_native(*mutator->thread);
}

uint32_t* windlass_mutator_mode(windlass_mutator* mutator) {
  return usable(mutator) ? reinterpret_cast<std::uint32_t*>(&mutator->thread->mode) : nullptr;
}
const uint32_t* windlass_pending(const windlass_suspender* suspender) {
  return usable(suspender) ? reinterpret_cast<const std::uint32_t*>(suspender->suspender->pending()) : nullptr;
}

windlass_status windlass_stop(windlass_suspender* suspender) {
  if (!usable(suspender)) return WINDLASS_INVALID;
  auto stopped = std::make_unique<const managed::Stopped>(*suspender->suspender);  // nobody else has stopped them now
  suspender->stopped = std::move(stopped);
  return WINDLASS_OK;
}

windlass_status windlass_stop_within(windlass_suspender* suspender, uint64_t nanoseconds, windlass_error* error) {
  constexpr std::uint64_t kLongest = std::uint64_t{1} << 62;
  if (!usable(suspender)) return invalid("the suspender is not open", error);
  const std::chrono::nanoseconds within(std::min(nanoseconds, kLongest));
  auto stopped = std::make_unique<const managed::Stopped>(*suspender->suspender, within);
  if (stopped->error()) return report(*stopped->error(), error);
  suspender->stopped = std::move(stopped);
  return WINDLASS_OK;
}

windlass_status windlass_resume(windlass_suspender* suspender) {
  if (!usable(suspender) || suspender->stopped == nullptr) return WINDLASS_INVALID;
  const auto stopped = std::move(suspender->stopped);
  return WINDLASS_OK;
}

windlass_status windlass_each_mutator(const windlass_suspender* suspender,
                                      void (*callback)(windlass_mutator* mutator, void* user), void* user) {
  if (!usable(suspender) || suspender->stopped == nullptr || callback == nullptr) return WINDLASS_INVALID;
  for (managed::MutatorThread* thread : suspender->stopped->threads())
    callback(static_cast<ThreadOfHandle*>(thread)->handle, user);
  return WINDLASS_OK;
}

}  // extern "C"
