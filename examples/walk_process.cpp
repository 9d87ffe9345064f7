// Every thread of a process, a core file or a minidump, with names.
#include <windlass/stack.h>

#include <cstdio>

int main(int argc, char** argv) {
  const auto target = windlass::open_target(argc > 1 ? argv[1] : "");
  if (!target) return std::puts(target.error().text().c_str()), 1;
  for (const windlass::NamedStack& stack : windlass::named_stacks(*target))
    std::printf("thread %lu %s\n%s", stack.thread.id, stack.thread.name.c_str(), stack.text().c_str());
}
