// Names for profiles that come while a recording goes on.
#pragma once

#include "profiler/profile/profile.h"
#include "symbols/kernel_symbols.h"
#include "symbols/live_names.h"

namespace windlass::cli {

// By symbol tables, without inlined calls and lines: reading DWARF costs more than the recording. Begins to read the
// kernel's symbols when it is made. One thread only.
class QuickNames {
 public:
  // As of SymbolizeOptions and LiveNames.
  explicit QuickNames(unsigned threads = symbols::SymbolizeOptions{}.threads,
                      std::uint64_t longest_idle = symbols::LiveNames::kLongestUnused)
      : names_(options(threads), longest_idle) {}

  void name(profile::Profile& profile) { names_.name(profile); }
  [[nodiscard]] symbols::KernelSymbolsAhead& kernel() { return kernel_; }

 private:
  symbols::SymbolizeOptions options(unsigned threads) {
    symbols::SymbolizeOptions options;
    options.lines = false;
    options.threads = threads;
    options.kernel = &kernel_;
    return options;
  }

  symbols::KernelSymbolsAhead kernel_;
  symbols::LiveNames names_;
};

}  // namespace windlass::cli
