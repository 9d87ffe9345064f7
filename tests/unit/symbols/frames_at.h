// What symbolize() says of one address.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "symbols/symbolize.h"

namespace windlass::test {

// "function file:line" of each frame at the address, innermost first.
inline std::vector<std::string> frames_at(const profile::Module& module, std::uint64_t address,
                                          const symbols::SymbolizeOptions& options = {}) {
  profile::Profile profile;
  profile.modules = {module};
  profile.locations = {{.module = 0, .address = address}};
  symbolize(profile, options);
  std::vector<std::string> frames;
  for (const auto& line : profile.locations[0].lines) {
    const auto& function = profile.functions.at(line.function);
    const auto file = function.file.substr(function.file.rfind('/') + 1);
    frames.push_back(function.name + (file.empty() ? "" : " " + file + ":" + std::to_string(line.line)));
  }
  return frames;
}

}  // namespace windlass::test
