// Where the threads of another process are, by looking at it a hundred times a second: it stands for each look only.
#include <windlass/target.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  auto target = windlass::open_process(std::strtoull(argv[1], nullptr, 10));
  if (!target) {
    std::fprintf(stderr, "%s: %s\n", argv[1], target.error().text().c_str());
    return 1;
  }
  const int looks = std::atoi(argv[2]);
  std::map<std::string, int> innermost;
  unsigned long long frames = 0, stood_ns = 0;
  int look = 0;
  do {
    for (const windlass::Thread& thread : target->threads) {
      windlass::StackWalker walker(target->space, thread.registers);
      ++innermost[walker.frame().module != nullptr ? walker.frame().module->path : "?"];
      do ++frames;
      while (walker.step());
    }
    stood_ns += target->release();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  } while (++look < looks && target->refresh());
  for (const auto& [path, count] : innermost) std::printf("%6d  %s\n", count, path.c_str());
  std::printf("%d looks, %llu frames, the process stood for %.3f ms in all\n", look, frames,
              static_cast<double>(stood_ns) / 1e6);
}
