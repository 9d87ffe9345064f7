#include "profiler/annotate/function_code.h"

namespace windlass::annotate {

std::optional<CodeFile> CodeFile::open(const profile::Module& module) {
  for (const std::string& path : {module.open_path, module.path}) {
    if (!path.starts_with('/')) continue;
    auto file = MappedFile::open(path);
    if (!file) continue;
    auto source = sources::open_source(file->bytes(), image::PeLayout::kFile);
    if (!source || (*source)->build_id() != module.build_id) continue;
    CodeFile code;
    code.path_ = path;
    code.file_ = std::move(*file);
    code.source_ = std::move(*source);
    if (auto elf = image::ElfImage::parse(code.file_.bytes()))
      code.elf_ = std::move(*elf);
    else if (auto pe = image::PeImage::parse(code.file_.bytes()))
      code.pe_ = std::move(*pe);
    return code;
  }
  return std::nullopt;
}

std::optional<FunctionCode> CodeFile::function_at(std::uint64_t address) const {
  const auto function = source_->function_at(address);
  const auto architecture = source_->architecture();
  if (!function || !architecture || function->end <= function->begin) return std::nullopt;
  const std::uint64_t size = function->end - function->begin;
  if (size > kMost) return std::nullopt;
  Expected<ByteView> bytes = fail(ErrorCode::kNotFound, "no code", address);
  if (elf_) bytes = elf_->at_address(function->begin, size);
  if (pe_ && function->begin <= 0xffffffff) bytes = pe_->at_rva(static_cast<std::uint32_t>(function->begin), size);
  if (!bytes) return std::nullopt;
  return FunctionCode{.architecture = *architecture, .begin = function->begin, .bytes = *bytes};
}

}  // namespace windlass::annotate
