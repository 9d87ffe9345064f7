#include "symbols/function_starts.h"

#include <string>
#include <utility>

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

FunctionStarts::FunctionStarts(const profile::Module& module) {
  for (const std::string& path : {module.open_path, module.path}) {
    if (!path.starts_with('/')) continue;
    auto file = MappedFile::open(path);
    if (!file) continue;
    auto source = sources::open_source(file->bytes(), image::PeLayout::kFile);
    if (!source || (*source)->build_id() != module.build_id) continue;
    file_ = std::move(*file);
    source_ = std::move(*source);
    return;
  }
}

std::vector<std::uint64_t> FunctionStarts::at(std::span<const std::uint64_t> addresses) const {
  return source_ != nullptr ? function_starts(*source_, addresses) : std::vector<std::uint64_t>();
}

}  // namespace windlass::symbols
