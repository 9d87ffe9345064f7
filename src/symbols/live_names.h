// Names for the profiles of one recording that come one after the other, each with addresses that others had before.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "profiler/profile/profile.h"
#include "symbols/module_symbols.h"
#include "symbols/symbol_result.h"
#include "symbols/symbolize.h"

namespace windlass::symbols {

// Reads each file once, and names each address once. The modules of all profiles have the same numbers. One thread at a
// time.
class LiveNames {
 public:
  explicit LiveNames(SymbolizeOptions options) : options_(std::move(options)) {}

  // As symbolize(), which says what is named.
  void name(profile::Profile& profile) noexcept;

 private:
  struct Named {
    std::vector<profile::Line> lines;  // Of the module's `functions`.
    std::uint64_t begin = 0;
  };
  struct KnownFile {
    KnownFile(profile::Module module, const SymbolizeOptions& options) : symbols(std::move(module), options) {}
    ModuleSymbols symbols;
    FunctionTable functions;
    std::unordered_map<std::uint64_t, Named> addresses;
  };
  void learn(KnownFile& file, std::vector<std::uint64_t> addresses);
  void name_module(profile::Profile& profile, std::uint32_t module, const std::vector<std::uint32_t>& locations);

  SymbolizeOptions options_;
  std::map<std::uint32_t, std::unique_ptr<KnownFile>> files_;  // by the module's number
};

}  // namespace windlass::symbols
