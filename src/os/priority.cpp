#include "os/priority.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <string_view>

#include "os/descriptor.h"
#include "os/proc_file.h"
#include "os/readers.h"

namespace windlass::os {

namespace {

constexpr int kHighest = -20;

void raise_session() {
  if (::getsid(0) != ::getpid()) return;
  const Descriptor group(::open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC));  // or there are none
  constexpr std::string_view kValue = "-20";
  if (group) (void)!::write(group.get(), kValue.data(), kValue.size());
}

bool schedule_thread(pid_t thread, int policy) {
  const sched_param parameters{policy == SCHED_RR ? ::sched_get_priority_min(policy) : 0};
  return ::sched_setscheduler(thread, policy, &parameters) == 0;
}

// The calling thread first, so that those it starts have the policy, too.
bool schedule_all(int policy) {
  if (!schedule_thread(0, policy)) return false;
  for (int i = 0; i < 2; ++i)  // one that was not reached yet may have started another meanwhile
    for (const pid_t thread : list_ids("/proc/self/task")) (void)schedule_thread(thread, policy);
  return true;
}

}  // namespace

void raise_priority(bool alone) {
  if (getpriority(PRIO_PROCESS, 0) != 0) return;  // asked for otherwise
  (void)setpriority(PRIO_PROCESS, 0, kHighest);
  if (readers() != nullptr) readers()->set_priority(kHighest);
  if (alone) raise_session();
}

void restore_priority() {
  if (getpriority(PRIO_PROCESS, 0) < 0) (void)setpriority(PRIO_PROCESS, 0, 0);
}

EndsFirst::EndsFirst() {
  using namespace std::chrono_literals;
  if (::getpriority(PRIO_PROCESS, 0) != kHighest || !schedule_all(SCHED_RR)) return;
  bound_ = std::thread([this] {
    std::unique_lock hold(mutex_);
    changed_.wait_for(hold, 500ms, [this] { return over_; });
    (void)schedule_all(SCHED_OTHER);
  });
}

EndsFirst::~EndsFirst() {
  if (!bound_.joinable()) return;
  {
    const std::scoped_lock hold(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  bound_.join();
}

}  // namespace windlass::os
