#include "symbols/demangle_msvc.h"

#include <algorithm>
#include <vector>

namespace windlass::symbols {
namespace {

bool is_identifier(std::string_view text) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$';
  };
  return !text.empty() && (text.front() < '0' || text.front() > '9') && std::ranges::all_of(text, is_letter);
}

}  // namespace

std::string undecorate(std::string_view name) {
  if (!name.starts_with('?')) return std::string(name);
  std::string_view rest = name.substr(1);
  const bool constructor = rest.starts_with("?0"), destructor = rest.starts_with("?1");
  if (constructor || destructor) rest.remove_prefix(2);
  // The innermost scope is first; an empty one ends the list.
  std::vector<std::string_view> scopes;
  while (!rest.starts_with('@')) {
    const std::size_t end = rest.find('@');
    if (end == std::string_view::npos || !is_identifier(rest.substr(0, end))) return std::string(name);
    scopes.push_back(rest.substr(0, end));
    rest.remove_prefix(end + 1);
  }
  if (scopes.empty()) return std::string(name);
  std::string text;
  for (std::size_t i = scopes.size(); i-- > 0;) text.append(scopes[i]).append(i != 0 ? "::" : "");
  if (constructor || destructor) text.append(destructor ? "::~" : "::").append(scopes.front());
  return text;
}

}  // namespace windlass::symbols
