// Replaces only the plain forms of new and delete, which the other forms of libstdc++ call: `-fsized-deallocation` and
// nothrow lead there. The blocks are never malloc()'s. Prints a line at its end.
#include <cstddef>
#include <cstdio>
#include <new>

namespace {
alignas(16) char pool[1 << 16];
std::size_t used = 0;

struct Virtual {
  virtual ~Virtual() = default;
  int numbers[20];
};
}  // namespace

void* operator new(std::size_t size) {
  void* const block = pool + used;
  used += (size + 15) & ~std::size_t{15};
  return block;
}
void operator delete(void*) noexcept {}

int main() {
  Virtual* volatile sized = new Virtual;
  delete sized;
  int* volatile array = new int[5];
  delete[] array;
  Virtual* volatile nothrow = new (std::nothrow) Virtual;
  delete nothrow;
  std::puts("fine");
  return used >= 3 * sizeof(Virtual) ? 0 : 1;
}
