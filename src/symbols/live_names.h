// Names for the profiles of one recording that come one after the other, each with addresses that others had before.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
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
// Bounds: kMostAddresses named addresses, then all are forgotten. Files without new addresses for `longest_idle` calls
// are closed. Files that no profile has had for kLongestUnused calls of name() are forgotten.
class LiveNames {
 public:
  static constexpr std::size_t kMostAddresses = std::size_t{1} << 19;
  static constexpr std::uint64_t kLongestUnused = 60;
  explicit LiveNames(SymbolizeOptions options, std::uint64_t longest_idle = kLongestUnused)
      : options_(std::move(options)), longest_idle_(longest_idle) {}
  // No more files are open at a time, from the next call of learn() on.
  void keep_open(std::size_t files) { most_open_ = files; }

  // As symbolize(), which says what is named.
  void name(profile::Profile& profile) noexcept;
  // Learns the names of a Profile's addresses for later, up to kAtOnce of them after `stopped` has become true.
  void learn(const profile::Profile& profile, const std::atomic<bool>& stopped) noexcept;
  static constexpr std::size_t kAtOnce = 128;
  // Whose names are known; and those of them that are open.
  [[nodiscard]] std::size_t files() const { return files_.size(); }
  [[nodiscard]] std::size_t open_files() const;

  // What is known of one file.
  struct KnownFile {
    struct Named {
      std::vector<profile::Line> lines;  // Of `functions`.
      std::uint64_t begin = 0;
    };
    // Those of these addresses that are not known yet, ascending.
    [[nodiscard]] std::vector<std::uint64_t> unknown(std::span<const std::uint64_t> addresses_asked) const;
    void learn(const profile::Module& module, std::span<const std::uint64_t> ascending,
               const SymbolizeOptions& options);

    std::optional<ModuleSymbols> symbols;  // nothing: closed
    FunctionTable functions;
    std::unordered_map<std::uint64_t, Named> addresses;
    std::uint64_t used = 0, asked = 0;  // the calls with an address, and with a new one
    bool opened = false;
    std::string note;
  };
  // For symbolize(): gives away what is known of the module's file, and forgets it. Null: nothing is.
  [[nodiscard]] std::unique_ptr<KnownFile> take(const profile::Module& module);

 private:
  KnownFile& file_of(const profile::Module& module);
  void close_idle();
  void close_longest_idle();
  void name_module(profile::Profile& profile, std::uint32_t module, const std::vector<std::uint32_t>& locations);

  SymbolizeOptions options_;
  std::uint64_t longest_idle_;
  std::size_t most_open_ = ~std::size_t{0};
  std::map<std::string, std::unique_ptr<KnownFile>> files_;  // by what tells a module from others
  std::uint64_t calls_ = 0;
};

}  // namespace windlass::symbols
