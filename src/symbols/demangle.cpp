#define HAVE_DECL_BASENAME 1  // else libiberty.h declares its own basename, at odds with string.h
#include <libiberty/demangle.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "symbols/demangle_msvc.h"
#include "symbols/symbolize.h"

namespace windlass::symbols {

std::string demangle(const char* name) {
  // Itanium C++ names start with _Z, and so do names of clones and Rust's legacy names (_ZN..17h<hash>E). Rust v0 names
  // start with _R, D names with _D. libiberty bounds its recursion. In its automatic style it tries Rust first, and
  // drops Rust's hash unless verbose.
  constexpr std::size_t kLongest = 1 << 16;
  constexpr std::string_view kStub = "@plt";  // of a linkage stub: StubNames
  if (name[0] == '?') return undecorate(name);
  if (name[0] != '_' || std::strchr("ZRD", name[1]) == nullptr || std::strlen(name) > kLongest) return name;
  if (std::string target(name); target.ends_with(kStub))
    return demangle(target.erase(target.size() - kStub.size()).c_str()).append(kStub);
  const int style = name[1] == 'D' ? DMGL_DLANG : DMGL_AUTO;
  char* text = cplus_demangle(name, style | DMGL_PARAMS | DMGL_ANSI);
  if (text == nullptr) return name;
  std::string result(text);
  std::free(text);
  return result;
}

}  // namespace windlass::symbols
