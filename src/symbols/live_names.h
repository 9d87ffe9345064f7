// Names for the profiles of one recording that come one after the other, each with addresses that others had before.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "profiler/profile/profile.h"
#include "symbols/module_symbols.h"
#include "symbols/symbol_result.h"
#include "symbols/symbolize.h"

namespace windlass::symbols {

// Reads each file once, and names each address once. One thread at a time.
//
// Bounds: kMostAddresses named addresses, then all are forgotten. Files that no profile has had for kLongestUnused
// calls are closed.
class LiveNames {
 public:
  static constexpr std::size_t kMostAddresses = std::size_t{1} << 19;
  static constexpr std::uint64_t kLongestUnused = 60;
  explicit LiveNames(SymbolizeOptions options, std::uint64_t longest_idle = kLongestUnused)
      : options_(std::move(options)), longest_idle_(longest_idle) {}

  // As symbolize(), which says what is named.
  void name(profile::Profile& profile) noexcept;
  // Whose names are known; and those of them that are open.
  [[nodiscard]] std::size_t files() const { return files_.size(); }
  [[nodiscard]] std::size_t open_files() const;

 private:
  struct Named {
    std::vector<profile::Line> lines;  // Of the module's `functions`.
    std::uint64_t begin = 0;
  };
  struct KnownFile {
    std::optional<ModuleSymbols> symbols;  // nothing: closed
    FunctionTable functions;
    std::unordered_map<std::uint64_t, Named> addresses;
    std::uint64_t used = 0, asked = 0;  // the calls of name() with an address, and with a new one
  };
  void forget_unused();
  void learn(KnownFile& file, const profile::Module& module, std::vector<std::uint64_t> addresses);
  void name_module(profile::Profile& profile, std::uint32_t module, const std::vector<std::uint32_t>& locations);

  SymbolizeOptions options_;
  std::uint64_t longest_idle_;
  std::map<std::string, std::unique_ptr<KnownFile>> files_;  // by what tells a module from others
  std::uint64_t calls_ = 0;
};

}  // namespace windlass::symbols
