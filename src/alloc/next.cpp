#include "alloc/next.h"

#include <dlfcn.h>

namespace windlass::alloc {
namespace {

constinit thread_local bool searching [[gnu::tls_model("initial-exec")]] = false;

}  // namespace

bool searching_next() { return searching; }

void* find_next(const char* name) {
  searching = true;
  void* found = dlsym(RTLD_NEXT, name);
  // A library that the program has opened for itself: modules of Python in C++ bring libstdc++ that way.
  if (found == nullptr)
    if (void* const library = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD); library != nullptr)
      found = dlsym(library, name);
  searching = false;
  return found;
}

}  // namespace windlass::alloc
