// Functions of a library that was opened at run time.
#pragma once

#include <dlfcn.h>

namespace windlass::os {

// False: the library has no function of that name. Thread-safe; not for signal handlers.
template <typename Function>
bool find_function(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace windlass::os
