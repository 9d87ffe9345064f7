// A process of two threads to name. Prints the places of its code, a line each. Obeys lines from its standard input
// until that ends:
//   load PATH SYMBOL   loads a library and prints the address of the symbol
#include <dlfcn.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

extern "C" __attribute__((noinline)) int known_function(int x) {
  asm volatile("");
  return x * 3;
}

// A page of code, as a JIT compiler would make it: function one, and 64 bytes behind it function two.
static unsigned char* make_code() {
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return static_cast<unsigned char*>(page);
}

int main() {
  std::thread([] {
    for (;;) pause();
  }).detach();
  unsigned char* code = make_code();
  const std::string map = "/tmp/perf-" + std::to_string(getpid()) + ".map";
  if (std::FILE* file = std::fopen(map.c_str(), "w")) {
    std::fprintf(file, "%lx 40 made_first\n%lx 40 made second\n", reinterpret_cast<unsigned long>(code),
                 reinterpret_cast<unsigned long>(code) + 64);
    std::fclose(file);
  }
  std::printf("known_function %p\ngetpid %p\ncode %p\nvdso %#lx\nend\n", reinterpret_cast<void*>(known_function),
              dlsym(RTLD_DEFAULT, "getpid"), static_cast<void*>(code), getauxval(AT_SYSINFO_EHDR));
  std::fflush(stdout);
  for (char line[4096]; std::fgets(line, sizeof line, stdin) != nullptr;) {
    char path[2048], symbol[512];
    if (std::sscanf(line, "load %2047s %511s", path, symbol) != 2) continue;
    void* library = dlopen(path, RTLD_LAZY);
    std::printf("%s %#lx\nend\n", symbol,
                reinterpret_cast<unsigned long>(library == nullptr ? nullptr : dlsym(library, symbol)));
    std::fflush(stdout);
  }
  unlink(map.c_str());
  return known_function(0);
}
