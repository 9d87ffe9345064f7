#include "symbols/function_starts.h"

#include <string>

#include "base/mapped_file.h"

namespace windlass::symbols {

std::vector<std::uint64_t> function_starts(const sources::UnwindSource& source,
                                           std::span<const std::uint64_t> addresses) {
  std::vector<std::uint64_t> starts;
  starts.reserve(addresses.size());
  for (const std::uint64_t address : addresses) {
    const auto function = source.function_at(address);
    starts.push_back(function ? function->primary : 0);
  }
  return starts;
}

std::vector<std::uint64_t> function_starts(const profile::Module& module, std::span<const std::uint64_t> addresses) {
  for (const std::string& path : {module.open_path, module.path}) {
    if (!path.starts_with('/')) continue;
    const auto file = MappedFile::open(path);
    if (!file) continue;
    const auto source = sources::open_source(file->bytes(), image::PeLayout::kFile);
    if (source && (*source)->build_id() == module.build_id) return function_starts(**source, addresses);
  }
  return {};
}

}  // namespace windlass::symbols
