#include "walk/target/pe_modules.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/pages.h"
#include "walk/target/loaded_pe.h"

namespace windlass::walk {
namespace {

constexpr std::size_t kMaxPeImage = std::size_t{256} << 20;

// The first of the files that is the image; `why` says what there was instead.
std::string find_file(std::span<const FileCandidate> files, const std::string& path, const PeIdentity& wanted,
                      std::string& why) {
  for (const FileCandidate& candidate : files) {
    const auto file = MappedFile::open(candidate.path);
    if (!file) continue;
    const auto image = image::PeImage::parse(file->bytes());
    if (image && (candidate.certain || is_same_image(*image, wanted))) return candidate.path;
    why = fmt::format("{} is not the file that ran", candidate.path);
  }
  if (why.empty()) why = fmt::format("{}: cannot be opened", path);
  return {};
}

// Where it was read; empty: in memory, or nowhere.
std::string add(Target& target, ModuleInfo info, const PeIdentity& wanted, std::span<const FileCandidate> files) {
  std::string why;
  info.windows = true;
  info.file = find_file(files, info.path, wanted, why);
  const std::string file = info.file;
  Expected<void> added;
  if (!file.empty()) {
    added = target.space.add_module(std::move(info));
  } else {
    target.notes.push_back(why);
    auto image = read_mapped_pe(target.space.memory(), info.begin);
    added =
        image ? target.space.add_module(std::move(info), std::move(*image)) : target.space.add_module(std::move(info));
  }
  if (!added) target.problems.push_back(added.error());
  return file;
}

// "Base Relocation Types": blocks of a page's RVA, their own size and 2 bytes a place. Is any of it in the section?
bool has_relocations(const image::PeImage& image, const image::PeSection& section) {
  const image::RvaRange range = image.directory(image::PeDirectory::kRelocation);
  const auto blocks = image.at_rva(range.rva, range.size);
  if (!blocks) return range.size != 0;
  for (std::uint64_t at = 0; at + 8 <= blocks->size();) {
    const std::uint32_t page = *blocks->at<std::uint32_t>(at);
    const std::uint32_t size = *blocks->at<std::uint32_t>(at + 4);
    if (size < 8) break;
    if (page + kSmallestPage > section.rva && page < std::uint64_t{section.rva} + section.virtual_size) return true;
    at += size;
  }
  return false;
}

}  // namespace

bool is_same_image(const image::PeImage& image, const PeIdentity& wanted) {
  const auto pages = [](std::uint64_t size) { return (size + kSmallestPage - 1) / kSmallestPage; };
  if (image.timestamp() == wanted.timestamp && pages(image.image_size()) == pages(wanted.image_size)) return true;
  return !wanted.build_id.empty() && image.build_id() == wanted.build_id;
}

Expected<std::vector<std::byte>> read_mapped_pe(const Memory& memory, std::uint64_t begin) {
  std::vector<std::byte> bytes(kSmallestPage);
  if (!memory.read(begin, bytes.data(), bytes.size()))
    return fail(ErrorCode::kNotFound, "image's headers are not in memory", begin);
  const auto headers = image::PeImage::parse(ByteView(bytes.data(), bytes.size()), image::PeLayout::kMapped);
  if (!headers) return Failure(headers.error());
  const image::RvaRange table = headers->directory(image::PeDirectory::kException);
  const std::size_t size = headers->image_size();
  if (size > kMaxPeImage) return fail(ErrorCode::kLimit, "image in memory is too large", begin, size);
  if (table.size == 0 || table.rva > size || table.size > size - table.rva)
    return fail(ErrorCode::kNotFound, "image has no function table", begin);
  bytes.resize(size);
  for (std::size_t at = kSmallestPage; at < size; at += kSmallestPage) {
    const bool read = memory.read(begin + at, bytes.data() + at, std::min<std::size_t>(kSmallestPage, size - at));
    if (!read && at + kSmallestPage > table.rva && at < std::size_t{table.rva} + table.size)
      return fail(ErrorCode::kNotFound, "function table is not in memory", begin + at);
  }
  return bytes;
}

std::vector<FileRange> add_listed_pe(Target& target, const ListedPe& listed, std::span<const FileCandidate> files) {
  const std::string path =
      add(target, {listed.begin, listed.end, listed.begin, listed.path, {}}, listed.identity, files);
  std::vector<FileRange> ranges;
  const auto file = path.empty() ? fail(ErrorCode::kNotFound, "", 0) : MappedFile::open(path);
  const auto image = file ? image::PeImage::parse(file->bytes()) : Failure(file.error());
  if (!image) return ranges;
  const std::uint64_t room = listed.end - listed.begin;
  for (const image::PeSection& section : image->sections()) {
    const std::uint64_t size = std::min(section.virtual_size, section.file_size);
    if (!section.executable() || section.writable() || section.rva > room || size > room - section.rva) continue;
    if (listed.begin != image->image_base() && has_relocations(*image, section)) continue;
    ranges.push_back({listed.begin + section.rva, listed.begin + section.rva + size, section.file_offset, path});
  }
  return ranges;
}

std::vector<os::ProcMap> add_loaded_pe(Target& target, std::span<const os::ProcMap> maps, FindFiles find) {
  const auto read = [&](std::uint64_t address, void* to, std::size_t size) {
    return target.space.memory().read(address, to, size);
  };
  const std::vector<LoadedPe> images = find_loaded_pe(maps, read);
  const Architecture architecture = target.space.architecture();
  const std::uint16_t machine = architecture == Architecture::kX86_64    ? 0x8664
                                : architecture == Architecture::kAArch64 ? 0xaa64
                                                                         : 0x14c;
  std::vector<os::ProcMap> rest;
  auto image = images.begin();
  for (const os::ProcMap& map : maps) {
    while (image != images.end() && map.begin >= image->end) ++image;
    if (image == images.end() || map.begin < image->begin) rest.push_back(map);
  }
  for (const LoadedPe& loaded : images) {
    if (static_cast<std::uint16_t>(loaded.machine) != machine) continue;
    const os::ProcMap& headers = maps[loaded.headers];
    const PeIdentity wanted{loaded.timestamp, static_cast<std::uint32_t>(loaded.end - loaded.begin), {}};
    const auto none = [] { return std::string(); };
    BuildId no_build_id(none);
    (void)add(target, {loaded.begin, loaded.end, loaded.begin, headers.path, {}}, wanted, find(headers, no_build_id));
  }
  return rest;
}

}  // namespace windlass::walk
