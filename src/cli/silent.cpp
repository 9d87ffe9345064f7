#include "cli/silent.h"

#include <string>
#include <vector>

#include "cli/say.h"
#include "os/readers.h"
#include "os/silent.h"

namespace windlass::cli {

void say_silent(const std::function<void()>& before) {
  if (os::readers() == nullptr) return;
  const std::vector<std::string> silent = os::readers()->take_silent();
  if (!silent.empty()) before();
  for (const std::string& subject : silent)
    say("windlass: {} does not answer: stacks that lead there may stay incomplete\n", os::describe_silent(subject));
}

}  // namespace windlass::cli
