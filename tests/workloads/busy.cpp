// Computes in functions that are known, for so many seconds, as a thread of the given name: busy SECONDS [NAME]
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>

namespace {

volatile unsigned long sum = 0;

}  // namespace

extern "C" [[gnu::noinline]] void burn() {
  for (unsigned long i = 0; i < 1'000'000; ++i) sum = sum + i;
}

extern "C" [[gnu::noinline]] void middle() {
  burn();
  sum = sum + 1;
}

int main(int count, char** arguments) {
  if (count > 2) ::prctl(PR_SET_NAME, arguments[2]);
  const auto end = std::time(nullptr) + (count > 1 ? std::atoi(arguments[1]) : 1);
  while (std::time(nullptr) <= end) middle();
  std::puts("burnt");
}
