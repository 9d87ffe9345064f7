#include "profiler/spool/delivery.h"

#include <utility>

namespace windlass::spool {

using std::chrono::milliseconds;

void Delivery::notify() {
  const std::scoped_lock lock(mutex_);
  appended_ = true;
  changed_.notify_one();
}

void Delivery::stop(milliseconds rest) {
  const std::scoped_lock lock(mutex_);
  until_ = Clock::now() + rest;
  changed_.notify_one();
}

DeliveryCounters Delivery::counters() const {
  const std::scoped_lock lock(mutex_);
  return {.spool = spool_.counters(), .retries = retries_, .failures = failures_};
}

void Delivery::tell(const std::string& why) {
  if (why != std::exchange(told_, why)) say_(why);
}

Delivery::Step Delivery::send_oldest(milliseconds& wait) {
  const auto batch = spool_.oldest();
  if (batch && !*batch) return Step::kIdle;
  const Answer answer = batch ? send_(**batch) : Answer{.kind = Answer::Kind::kLater, .why = batch.error().text()};
  if (answer.kind == Answer::Kind::kLater) {
    wait = backoff_.failed(answer.retry_after);
  } else {
    backoff_.succeeded();
    (void)(answer.kind == Answer::Kind::kTaken ? spool_.acknowledge((*batch)->sequence, answer.dropped)
                                               : spool_.reject((*batch)->sequence));
  }
  if (answer.kind == Answer::Kind::kTaken && answer.dropped == 0)
    told_.clear();
  else
    tell(answer.why);
  const std::scoped_lock lock(mutex_);
  retries_ += answer.kind == Answer::Kind::kLater ? 1 : 0;
  failures_ = backoff_.failures();
  return answer.kind == Answer::Kind::kLater ? Step::kWait : Step::kAgain;
}

// False: run() is to return. The first step after stop() is not waited for.
bool Delivery::rest(Step step, milliseconds wait) {
  std::unique_lock lock(mutex_);
  const Clock::time_point due = Clock::now() + (step == Step::kWait ? wait : milliseconds(0));
  const bool was_stopped = until_.has_value();
  for (;;) {
    if (until_) {
      if (Clock::now() >= *until_) return false;
      if (step == Step::kIdle) return std::exchange(appended_, false);  // both may have come since the last step
      if (!was_stopped) return true;
      if (due >= *until_) return false;
    }
    if (step == Step::kIdle ? std::exchange(appended_, false) : Clock::now() >= due) return true;
    if (step == Step::kIdle)
      changed_.wait(lock);
    else
      changed_.wait_until(lock, due);
  }
}

void Delivery::run() {
  for (milliseconds wait(0);;) {
    const Step step = send_oldest(wait);
    if (!rest(step, wait)) return;
  }
}

}  // namespace windlass::spool
