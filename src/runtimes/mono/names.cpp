#include "runtimes/mono/names.h"

#include "runtimes/memory_reader.h"

namespace windlass::runtimes::mono {
namespace {

constexpr std::size_t kLongest = 512;  // of each part
constexpr unsigned kMaxNesting = 16;

std::string text_at(const Memory& memory, std::uint64_t field) {
  const auto at = read_value<std::uint64_t>(memory, field);
  return at ? read_text(memory, *at, kLongest) : std::string();
}

std::string joined(std::string outer, const std::string& name) {
  if (!outer.empty() && !name.empty()) outer += '.';
  return outer += name;
}

std::string class_name(const Memory& memory, const Layout& layout, std::uint64_t of) {
  std::string name;
  for (unsigned nesting = 0; of != 0 && nesting < kMaxNesting; ++nesting) {
    const std::string part = text_at(memory, of + layout.class_name);
    name = joined(part, name);
    const auto outer = read_value<std::uint64_t>(memory, of + layout.class_outer);
    if (!outer || *outer == 0) {
      const std::string space = text_at(memory, of + layout.class_namespace);
      return joined(space, name);
    }
    of = *outer;
  }
  return name;
}

// MonoTrampInfo: code, code_size, name (mono/mini/mini-unwind.h). That it is one its first word says.
std::string trampoline_name(const Memory& memory, const CodeBlock& block) {
  constexpr std::uint64_t kName = 16;
  if (read_value<std::uint64_t>(memory, block.method) != block.begin) return "[trampoline]";
  const std::string name = text_at(memory, block.method + kName);
  return name.empty() ? "[trampoline]" : "[" + name + "]";
}

}  // namespace

std::string name_of(const Memory& memory, const Layout& layout, const CodeBlock& block) {
  if (block.is_trampoline) return trampoline_name(memory, block);
  const std::string method = text_at(memory, block.method + layout.method_name);
  const auto owner = read_value<std::uint64_t>(memory, block.method + layout.method_class);
  if (method.empty() || !owner) return {};
  const std::string of = class_name(memory, layout, *owner);
  return of.empty() ? method : of + "." + method;
}

}  // namespace windlass::runtimes::mono
