// Names that the maker of generated code gives.
#pragma once

#include <string>
#include <vector>

#include "walk/module.h"

namespace windlass::test {

// Of the function at an address, not of those that are inlined in it. `function`: Frame::function. Empty: not known.
inline std::string made_name(const walk::Module* module, std::uint64_t address, std::uint64_t function = 0) {
  std::vector<sources::NamedFunction> names;
  if (module != nullptr && module->names() != nullptr)
    module->names()->functions_at(address, function, sources::NameSource::kTimeSet, names);
  return names.empty() ? std::string() : names.back().name;
}

}  // namespace windlass::test
