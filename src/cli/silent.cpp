#include "cli/silent.h"

#include <cstdio>
#include <string>
#include <vector>

#include "process/readers.h"
#include "process/silent.h"

namespace windlass::cli {

void say_silent(const std::function<void()>& before) {
  if (process::readers() == nullptr) return;
  const std::vector<std::string> silent = process::readers()->take_silent();
  if (!silent.empty()) before();
  for (const std::string& subject : silent)
    std::fprintf(stderr, "windlass: %s does not answer: stacks that lead there may stay incomplete\n",
                 process::describe_silent(subject).c_str());
}

}  // namespace windlass::cli
