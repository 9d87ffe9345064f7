#include "walk/target/pe_modules.h"

#include <algorithm>

#include <fmt/format.h>

#include "walk/target/loaded_pe.h"

namespace windlass::walk {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::size_t kMaxImage = std::size_t{256} << 20;

// The path to read it at; empty: nowhere. `why` says what was there instead.
std::string find_file(const ProcMap& headers, const PeIdentity& wanted, FindFiles find, std::string& why) {
  std::string build_id;
  for (const FileCandidate& candidate : find(headers, build_id)) {
    const auto file = image::MappedFile::open(candidate.path);
    if (!file) continue;
    const auto image = image::PeImage::parse(file->bytes());
    if (image && (candidate.certain || is_same_image(*image, wanted))) return candidate.path;
    why = fmt::format("{} is not the file that is loaded", candidate.path);
  }
  if (why.empty()) why = fmt::format("{}: cannot be opened", headers.path);
  return {};
}

void add(Target& target, ModuleInfo info, const PeIdentity& wanted, const ProcMap& headers, FindFiles find) {
  std::string why;
  info.file = find_file(headers, wanted, find, why);
  Expected<void> added;
  if (!info.file.empty()) {
    added = target.space.add_module(std::move(info));
  } else {
    target.notes.push_back(why);
    auto image = read_mapped_pe(target.space.memory(), info.begin);
    added =
        image ? target.space.add_module(std::move(info), std::move(*image)) : target.space.add_module(std::move(info));
  }
  if (!added) target.problems.push_back(added.error());
}

}  // namespace

bool is_same_image(const image::PeImage& image, const PeIdentity& wanted) {
  const auto pages = [](std::uint64_t size) { return (size + kPage - 1) / kPage; };
  if (image.timestamp() == wanted.timestamp && pages(image.image_size()) == pages(wanted.image_size)) return true;
  return !wanted.build_id.empty() && image.build_id() == wanted.build_id;
}

Expected<std::vector<std::byte>> read_mapped_pe(const Memory& memory, std::uint64_t begin) {
  std::vector<std::byte> bytes(kPage);
  if (!memory.read(begin, bytes.data(), bytes.size()))
    return fail(ErrorCode::kNotFound, "image's headers are not in memory", begin);
  const auto headers = image::PeImage::parse(ByteView(bytes.data(), bytes.size()), image::PeLayout::kMapped);
  if (!headers) return std::unexpected(headers.error());
  const image::RvaRange table = headers->directory(image::PeDirectory::kException);
  const std::size_t size = headers->image_size();
  if (size > kMaxImage) return fail(ErrorCode::kLimit, "image in memory is too large", begin, size);
  if (table.size == 0 || table.rva > size || table.size > size - table.rva)
    return fail(ErrorCode::kNotFound, "image has no function table", begin);
  bytes.resize(size);
  for (std::size_t at = kPage; at < size; at += kPage) {
    const bool read = memory.read(begin + at, bytes.data() + at, std::min<std::size_t>(kPage, size - at));
    if (!read && at + kPage > table.rva && at < std::size_t{table.rva} + table.size)
      return fail(ErrorCode::kNotFound, "function table is not in memory", begin + at);
  }
  return bytes;
}

std::vector<ProcMap> add_loaded_pe(Target& target, std::span<const ProcMap> maps, FindFiles find) {
  const auto read = [&](std::uint64_t address, void* to, std::size_t size) {
    return target.space.memory().read(address, to, size);
  };
  const std::vector<LoadedPe> images = find_loaded_pe(maps, read);
  const std::uint16_t machine = target.space.architecture() == Architecture::kX86_64 ? 0x8664 : 0xaa64;
  std::vector<ProcMap> rest;
  auto image = images.begin();
  for (const ProcMap& map : maps) {
    while (image != images.end() && map.begin >= image->end) ++image;
    if (image == images.end() || map.begin < image->begin) rest.push_back(map);
  }
  for (const LoadedPe& loaded : images) {
    if (static_cast<std::uint16_t>(loaded.machine) != machine) continue;
    const ProcMap& headers = maps[loaded.headers];
    ModuleInfo info{loaded.begin, loaded.end, loaded.begin, headers.path, {}, true};
    const PeIdentity wanted{loaded.timestamp, static_cast<std::uint32_t>(loaded.end - loaded.begin), {}};
    add(target, std::move(info), wanted, headers, find);
  }
  return rest;
}

}  // namespace windlass::walk
