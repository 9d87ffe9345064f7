#include "symbols/write_symbols.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/mapped_file.h"
#include "formats/image/elf.h"
#include "formats/image/pe.h"
#include "symbols/code_points.h"
#include "symbols/module_symbols.h"
#include "symbols/symbol_writer.h"

namespace windlass::symbols {
namespace {

constexpr std::size_t kChunk = 1u << 16;  // addresses named at a time
constexpr const char* kNoBuildId = "has no build id. Way out: link the program with -Wl,--build-id";
constexpr const char* kNoNames =
    "has no symbols, and no debug information was found. Way out: a file that is not stripped, the package with its "
    "debug information, or DEBUGINFOD_URLS";
constexpr const char* kSpent = "the PDB file takes too long to read";

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// Names of all code between points, in order.
class FileNames {
 public:
  using Name = std::function<Expected<void>(std::span<const std::uint64_t>, ModuleNames&)>;

  Expected<void> take(std::vector<std::uint64_t>& points, const Name& name) {
    std::ranges::sort(points);
    const auto repeated = std::ranges::unique(points);
    points.erase(repeated.begin(), repeated.end());
    for (std::size_t at = 0; at < points.size(); at += kChunk) {
      const std::span chunk = std::span(points).subspan(at, std::min(kChunk, points.size() - at));
      ModuleNames names(chunk.size(), functions_);
      if (const auto named = name(chunk, names); !named) return named;
      for (std::size_t i = 0; i < chunk.size(); ++i) add(chunk[i], names.begins[i], names.lines()[i]);
    }
    return {};
  }
  Expected<WrittenSymbols> finish(SymbolFileSubject&& subject) {
    if (!has_names_) return fail(ErrorCode::kNotFound, kNoNames, 0);
    subject.detail = has_lines_ ? wlsym::Detail::kLines : wlsym::Detail::kFunctions;
    auto file = writer_.finish(subject);
    if (!file) return Failure(file.error());
    return WrittenSymbols{.build_id = subject.build_id,
                          .name = subject.name,
                          .rank = wlsym::rank_of(wlsym::kVersion, subject.detail),
                          .file = std::move(*file)};
  }
  [[nodiscard]] bool has_lines() const { return has_lines_; }

 private:
  void add(std::uint64_t address, std::uint64_t begin, const std::vector<profile::Line>& lines) {
    frames_.clear();
    for (const profile::Line& line : lines) {
      if (line.function >= numbers_.size()) numbers_.resize(line.function + 1);
      std::optional<std::uint32_t>& number = numbers_[line.function];
      const profile::Function& function = functions_[line.function];
      if (!number) number = writer_.function(function.system_name, function.file, function.start_line);
      frames_.push_back({*number, line.line});
      has_lines_ |= line.line != 0;
    }
    has_names_ |= !frames_.empty();
    writer_.add(address, begin, frames_);
  }

  FunctionTable functions_;
  std::vector<std::optional<std::uint32_t>> numbers_;  // the writer's, of functions_
  SymbolFileWriter writer_;
  std::vector<wlsym::Frame> frames_;
  bool has_names_ = false, has_lines_ = false;
};

Expected<WrittenSymbols> write_elf(const std::string& path, const image::ElfImage& image, SymbolizeOptions options) {
  if (image.build_id().empty()) return fail(ErrorCode::kNotFound, kNoBuildId, 0);
  options.go_table = false;  // a program of Go's names its code by that even when stripped
  ModuleSymbols symbols({.path = path, .open_path = path, .build_id = image.build_id()}, options);
  if (!symbols.open() || symbols.elf() == nullptr) return fail(ErrorCode::kMalformed, "cannot be read as ELF", 0);
  std::vector<std::uint64_t> points;
  const bool is_full = add_code_points(symbols.elf()->module(), points);
  FileNames names;
  const auto taken = names.take(points, [&](std::span<const std::uint64_t> addresses, ModuleNames& to) {
    symbols.elf()->name(addresses, to);
    return Expected<void>();
  });
  if (!taken) return Failure(taken.error());
  if (!is_full && !names.has_lines()) return fail(ErrorCode::kNotFound, kNoNames, 0);
  SymbolFileSubject subject{.build_id = image.build_id(), .name = base_name(path)};
  for (const image::ExecutableSegment& segment : image.executable_segments())
    subject.segments.push_back({segment.file_offset, segment.vaddr, segment.memsz});
  return names.finish(std::move(subject));
}

Expected<WrittenSymbols> write_pe(const std::string& path, const image::PeImage& image,
                                  const SymbolizeOptions& options) {
  if (image.build_id().empty())
    return fail(ErrorCode::kNotFound, "has no identity of a PDB file. Way out: link with /DEBUG, or -Wl,--build-id", 0);
  const profile::Module module{.path = path, .open_path = path, .build_id = image.build_id()};
  std::optional<ModuleSymbols> symbols(std::in_place, module, options);
  if (!symbols->open() || symbols->pe() == nullptr) return fail(ErrorCode::kMalformed, "cannot be read as PE", 0);
  std::vector<std::uint64_t> points;
  symbols->pe()->add_points(points);
  FileNames names;
  const auto taken = names.take(points, [&](std::span<const std::uint64_t> addresses, ModuleNames& to) {
    symbols.emplace(module, options);  // reads of a PDB file are counted, and end some time
    if (symbols->open() && symbols->pe() != nullptr) symbols->pe()->name(addresses, to);
    return symbols->pe() != nullptr && symbols->pe()->is_spent() ? fail(ErrorCode::kLimit, kSpent, 0)
                                                                 : Expected<void>();
  });
  if (!taken) return Failure(taken.error());
  SymbolFileSubject subject{.build_id = image.build_id(), .name = base_name(path)};
  for (const image::PeSection& section : image.sections())
    if (section.executable()) subject.segments.push_back({section.file_offset, section.rva, section.file_size});
  return names.finish(std::move(subject));
}

Expected<WrittenSymbols> write_pdb(const std::string& path, ByteView bytes) {
  const auto identity = pdb::PdbFile::identity_of(bytes);
  if (!identity) return Failure(identity.error());
  auto file = pdb::PdbFile::parse(bytes);
  if (!file) return Failure(file.error());
  std::vector<std::uint64_t> points;
  file->each_rva([&](std::uint32_t rva) { points.push_back(rva); });
  FileNames names;
  const auto taken = names.take(points, [&](std::span<const std::uint64_t> addresses, ModuleNames& to) {
    auto again = pdb::PdbFile::parse(bytes);
    if (!again) return Expected<void>(Failure(again.error()));
    for (std::size_t i = 0; i < addresses.size(); ++i) {
      const auto rva = static_cast<std::uint32_t>(addresses[i]);
      if (!name_by_pdb(*again, i, rva, true, to)) (void)name_by_public(*again, i, rva, to);
    }
    return again->is_spent() ? fail(ErrorCode::kLimit, kSpent, 0) : Expected<void>();
  });
  if (!taken) return Failure(taken.error());
  return names.finish({.build_id = *identity, .name = base_name(path)});
}

}  // namespace

Expected<WrittenSymbols> write_symbols(const std::string& path, const SymbolizeOptions& options) {
  elf_version(EV_CURRENT);
  const auto file = MappedFile::open(path);
  if (!file) return Failure(file.error());
  if (const auto elf = image::ElfImage::parse(file->bytes())) return write_elf(path, *elf, options);
  if (const auto pe = image::PeImage::parse(file->bytes())) return write_pe(path, *pe, options);
  if (pdb::PdbFile::identity_of(file->bytes())) return write_pdb(path, file->bytes());
  return fail(ErrorCode::kUnsupported, "no ELF file, Windows image or PDB file", 0);
}

}  // namespace windlass::symbols
