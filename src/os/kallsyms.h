// The symbols of the running kernel, as /proc/kallsyms lists them (kernel/kallsyms.c). Those of modules come last.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "windlass/function_ref.h"

namespace windlass::os {

struct KernelSymbol {
  std::uint64_t address = 0;      // 0: hidden, or of per-CPU data
  char type = '\0';               // of nm(1)
  std::string_view name, module;  // "[xfs]"; empty for the kernel itself

  [[nodiscard]] bool is_code() const { return type == 't' || type == 'T' || type == 'w' || type == 'W'; }
};

// Calls `symbol` with each, until it says no. The texts are there during the call. Lines of another form are left out.
// False, and `note` says why: the file cannot be read.
bool for_each_kernel_symbol(const std::string& path, std::string& note,
                            FunctionRef<bool(const KernelSymbol& symbol)> symbol);

// Where the kernel itself has a symbol. 0: nowhere, or addresses are hidden.
[[nodiscard]] std::uint64_t find_kernel_symbol(const std::string& path, std::string_view name);

// Cuts the next blank-separated field off a line; empty: there is no more.
[[nodiscard]] std::string_view next_field(std::string_view& line);

}  // namespace windlass::os
