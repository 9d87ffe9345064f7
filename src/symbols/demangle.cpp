#define HAVE_DECL_BASENAME 1  // else libiberty.h declares its own basename, at odds with string.h
#include <libiberty/demangle.h>

#include <cstdlib>
#include <cstring>

#include "symbols/symbolize.h"

namespace windlass::symbols {

std::string demangle(const char* name) {
  // Itanium C++ starts with _Z (a clone's or Rust's legacy name too: _ZN..17h<hash>E), Rust v0 with _R. libiberty
  // bounds its recursion; it tries Rust first in its automatic style and drops Rust's hash unless verbose.
  constexpr std::size_t kLongest = 1 << 16;
  if (name[0] != '_' || (name[1] != 'Z' && name[1] != 'R') || std::strlen(name) > kLongest) return name;
  char* text = cplus_demangle(name, DMGL_AUTO | DMGL_PARAMS | DMGL_ANSI);
  if (text == nullptr) return name;
  std::string result(text);
  std::free(text);
  return result;
}

}  // namespace windlass::symbols
