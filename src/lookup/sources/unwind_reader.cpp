// The public reader: a source, and the bytes that it is of.
#include "base/mapped_file.h"
#include "lookup/sources/unwind_source.h"
#include "windlass/unwind_info.h"

namespace windlass {
namespace {

using sources::UnwindSource;

struct FormatOf final : sources::FormatVisitor {
  void elf(const UnwindSource&, const image::ElfImage&) override { format = UnwindFormat::kDwarf; }
  void go(const UnwindSource&, const image::ElfImage&) override { format = UnwindFormat::kGo; }
  void sframe(const UnwindSource&, const image::ElfImage&) override { format = UnwindFormat::kSFrame; }
  void winx64(const UnwindSource&, const winx64::Functions&) override { format = UnwindFormat::kWinX64; }
  void winarm64(const UnwindSource&, const winarm64::Functions&) override { format = UnwindFormat::kWinArm64; }
  void rows(const UnwindSource&) override {}  // no file is that
  UnwindFormat format = UnwindFormat::kDwarf;
};

auto reporter(std::vector<Error>* problems) {
  return [problems](const Error& error) {
    if (problems != nullptr) problems->push_back(error);
  };
}

class Reader final : public UnwindReader {
 public:
  Reader(MappedFile file, std::unique_ptr<UnwindSource> source) : file_(std::move(file)), source_(std::move(source)) {}

  UnwindFormat format() const override {
    FormatOf visitor;
    source_->accept(visitor);
    return visitor.format;
  }
  Architecture architecture() const override { return *source_->architecture(); }
  const std::string& build_id() const override { return source_->build_id(); }
  std::uint64_t entry_point() const override { return source_->entry_point(); }
  std::span<const Error> problems() const override { return source_->problems(); }

  std::vector<UnwindFunction> functions(std::vector<Error>* problems) const override {
    std::vector<UnwindFunction> all;
    const auto add = [&](const UnwindFunction& function) {
      all.push_back(function);
      return true;
    };
    const auto report = reporter(problems);
    source_->for_each_function(add, report);
    return all;
  }

  Expected<UnwindFunction> function_at(std::uint64_t address) const override { return source_->function_at(address); }

  std::vector<FrameRow> rows(const UnwindFunction& function, std::vector<Error>* problems) const override {
    std::vector<FrameRow> all;
    const auto add = [&](const FrameRow& row) { all.push_back(row); };
    const auto report = reporter(problems);
    source_->for_each_row(function, add, report);
    return all;
  }

  // Not the source's row_at, which leaves out what no walk needs.
  Expected<FrameRow> row_at(std::uint64_t address) const override {
    const auto function = source_->function_at(address);
    if (!function) return Failure(function.error());
    Expected<FrameRow> found = fail(ErrorCode::kNotFound, "no row covers the address", address);
    const auto take = [&](const FrameRow& row) {
      if (address >= row.begin && address < row.end) found = row;
    };
    Error first{ErrorCode::kNotFound};
    const auto report = [&](const Error& error) {
      if (first.code == ErrorCode::kNotFound) first = error;
    };
    source_->for_each_row(*function, take, report);
    if (!found && first.code != ErrorCode::kNotFound) return Failure(first);
    return found;
  }

 private:
  MappedFile file_;  // empty: the bytes are the caller's
  std::unique_ptr<UnwindSource> source_;
};

Expected<std::unique_ptr<UnwindReader>> read(MappedFile file, ByteView bytes, image::PeLayout layout) {
  auto source = sources::open_source(bytes, layout);
  if (!source) return Failure(source.error());
  return std::make_unique<Reader>(std::move(file), std::move(*source));
}

}  // namespace

std::string_view format_name(UnwindFormat format) {
  switch (format) {
    case UnwindFormat::kDwarf: return "DWARF";
    case UnwindFormat::kWinX64: return "Windows x64";
    case UnwindFormat::kWinArm64: return "Windows ARM64";
    case UnwindFormat::kSFrame: return "SFrame";
    case UnwindFormat::kGo: return "Go";
  }
  return "?";
}

Expected<std::unique_ptr<UnwindReader>> open_unwind_info(const std::string& path) {
  auto file = MappedFile::open(path);
  if (!file) return Failure(file.error());
  const ByteView bytes = file->bytes();
  return read(std::move(*file), bytes, image::PeLayout::kFile);
}

Expected<std::unique_ptr<UnwindReader>> read_unwind_info(std::span<const std::byte> bytes, ImageLayout layout) {
  return read({}, ByteView(bytes.data(), bytes.size()),
              layout == ImageLayout::kLoaded ? image::PeLayout::kMapped : image::PeLayout::kFile);
}

}  // namespace windlass
