#include "symbols/text_symbols.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "os/perf_map.h"
#include "os/text_lines.h"
#include "symbols/kernel_symbols.h"

namespace windlass::symbols {

void name_from_kallsyms(const SymbolizeOptions& options, std::span<const std::uint64_t> addresses, ModuleNames& names) {
  const auto symbols = options.kernel != nullptr ? options.kernel->at(addresses, names.note)
                                                 : std::make_shared<const KernelSymbols>(options.kallsyms, names.note);
  names.opened = !symbols->empty();
  for (std::size_t i = 0; i < addresses.size(); ++i)
    if (const auto name = symbols->name_of(addresses[i])) names.add_line(i, {names.function(*name, {}, 0), 0});
}

void name_from_perf_map(const std::string& path, std::span<const std::uint64_t> addresses, ModuleNames& names) {
  std::vector<std::string> found(addresses.size());
  names.opened = os::for_each_line(path, names.note, [&](std::string_view line) {
    const auto code = os::parse_perf_map_line(line);
    if (!code) return true;
    auto address = std::lower_bound(addresses.begin(), addresses.end(), code->begin);
    for (; address != addresses.end() && *address - code->begin < code->size; ++address) {
      const auto index = static_cast<std::size_t>(address - addresses.begin());
      found[index] = code->name;
      names.begins[index] = code->begin;
    }
    return true;
  });
  for (std::size_t i = 0; i < found.size(); ++i)
    if (!found[i].empty()) names.add_line(i, {names.function(found[i], {}, 0), 0});
}

}  // namespace windlass::symbols
