// What does not answer while a command looks at other processes, said on stderr.
#pragma once

#include <functional>

namespace windlass::cli {

// A sentence for each thing that has become silent since the last call (os/readers.h); `before` them.
void say_silent(const std::function<void()>& before = [] {});

}  // namespace windlass::cli
