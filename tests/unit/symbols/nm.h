// What nm says of a file with all its symbols.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>

#include "support/run_command.h"

namespace windlass::test {

// Symbol -> address.
inline std::map<std::string, std::uint64_t> symbols_of(const std::string& file, const std::string& nm = "nm") {
  std::map<std::string, std::uint64_t> symbols;
  std::istringstream lines(run(nm + " " + file).output);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string address, type, name;
    if (fields >> address >> type >> name) symbols[name] = std::strtoull(address.c_str(), nullptr, 16);
  }
  return symbols;
}

}  // namespace windlass::test
