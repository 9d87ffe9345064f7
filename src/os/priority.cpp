#include "os/priority.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <string_view>

#include "os/descriptor.h"
#include "os/readers.h"

namespace windlass::os {

namespace {

void raise_session() {
  constexpr std::string_view kHighest = "-20";
  if (::getsid(0) != ::getpid()) return;
  const Descriptor group(::open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC));  // or there are none
  if (group) (void)!::write(group.get(), kHighest.data(), kHighest.size());
}

}  // namespace

void raise_priority(bool alone) {
  constexpr int kHighest = -20;
  if (getpriority(PRIO_PROCESS, 0) != 0) return;  // asked for otherwise
  (void)setpriority(PRIO_PROCESS, 0, kHighest);
  if (readers() != nullptr) readers()->set_priority(kHighest);
  if (alone) raise_session();
}

void restore_priority() {
  if (getpriority(PRIO_PROCESS, 0) < 0) (void)setpriority(PRIO_PROCESS, 0, 0);
}

}  // namespace windlass::os
