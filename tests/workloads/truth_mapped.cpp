// Maps the code of two libraries over each other, by turns for 2 ms each, and calls it: by MAP_FIXED ("fixed"), or as
// data, which mprotect() makes code ("protect"). They differ in their frames and names alone. The stacks are known:
// spin_X <- deeper_X <- work_X <- work <- use_X <- main, or now <- deeper_X and so on, X being the one that is mapped.
//
// usage: truth_mapped SECONDS fixed|protect LIBRARY LIBRARY    (of processor time)
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace {

using Work = unsigned long long (*)(long long (*now)(), long long until);

struct Code {
  int file = -1;
  std::uint64_t begin = 0, size = 0, offset = 0;  // of the segment: address in the library, bytes, offset in the file
  std::uint64_t work = 0;                         // address in the library
};

Code code_of(const char* path) {
  Code code;
  void* const library = dlopen(path, RTLD_NOW);
  if (library == nullptr) std::abort();
  struct Search {
    std::uint64_t work;
    Code* code;
  } search{reinterpret_cast<std::uint64_t>(dlsym(library, "work")), &code};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        auto& wanted = *static_cast<Search*>(data);
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const ElfW(Phdr)& header = info->dlpi_phdr[i];
          const std::uint64_t work = wanted.work - info->dlpi_addr;
          if (header.p_type != PT_LOAD || (header.p_flags & PF_X) == 0 || work - header.p_vaddr >= header.p_memsz)
            continue;
          const std::uint64_t before = header.p_vaddr % static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
          *wanted.code = {-1, header.p_vaddr - before, header.p_memsz + before, header.p_offset - before, work};
          return 1;
        }
        return 0;
      },
      &search);
  dlclose(library);
  code.file = open(path, O_RDONLY | O_CLOEXEC);
  if (code.size == 0 || code.file < 0) std::abort();
  return code;
}

std::byte* room;
bool by_mprotect;

Work map(const Code& code) {
  const int protection = by_mprotect ? PROT_READ : PROT_READ | PROT_EXEC;
  void* const at = mmap(room + code.begin, code.size, protection, MAP_PRIVATE | MAP_FIXED, code.file,
                        static_cast<off_t>(code.offset));
  if (at == MAP_FAILED) std::abort();
  if (by_mprotect && mprotect(at, code.size, PROT_READ | PROT_EXEC) != 0) std::abort();
  return reinterpret_cast<Work>(room + code.work);
}

}  // namespace

extern "C" {

[[gnu::noinline]] long long now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1'000'000'000LL + time.tv_nsec;
}

[[gnu::noinline]] unsigned long long use_a(Work work) {
  const unsigned long long done = work(now, now() + 2'000'000);
  asm volatile("");
  return done;
}
[[gnu::noinline]] unsigned long long use_b(Work work) {
  const unsigned long long done = work(now, now() + 2'000'000);
  asm volatile("" ::: "memory");
  return done + 1;
}

}  // extern "C"

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  by_mprotect = std::strcmp(argv[2], "protect") == 0;
  const Code a = code_of(argv[3]), b = code_of(argv[4]);
  void* const reserved = mmap(nullptr, std::size_t{1} << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (reserved == MAP_FAILED) return 3;
  room = static_cast<std::byte*>(reserved);
  unsigned long long sum = 0;
  unsigned rounds = 0;
  const double end = std::atof(argv[1]) * CLOCKS_PER_SEC;
  for (; static_cast<double>(std::clock()) < end; rounds += 2) sum += use_a(map(a)) + use_b(map(b));
  std::printf("%u times, %llu\n", rounds, sum);
}
