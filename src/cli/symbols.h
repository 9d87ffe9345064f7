// Symbol files made, put into stores and listed.
#pragma once

#include <string>
#include <vector>

namespace windlass::cli {

struct SymbolsArguments {
  std::string action;              // "write", "push", "list"
  std::vector<std::string> files;  // and folders
  std::string output = "symbols";  // of write: a folder
  std::string to{};                // of push: a store or a folder
  bool json = false;               // of list: an object a line
};

// Returns the exit status; says on stderr what failed. The static file has none of it.
[[nodiscard]] int run_symbols(const SymbolsArguments& arguments);

}  // namespace windlass::cli
