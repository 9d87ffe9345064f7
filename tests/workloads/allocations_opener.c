/* A program in C that opens a module in C++ for itself and calls known_module(1000). */
#include <dlfcn.h>
#include <stdio.h>

int main(void) {
  void* module = dlopen(ALLOCATIONS_MODULE, RTLD_NOW | RTLD_LOCAL);
  if (module == NULL) {
    fputs(dlerror(), stderr);
    return 2;
  }
  int (*known_module)(unsigned long);
  *(void**)&known_module = dlsym(module, "known_module");
  return known_module == NULL ? 3 : known_module(1000);
}
