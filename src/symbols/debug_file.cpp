#include "symbols/debug_file.h"

#include <zlib.h>

#include <cstdlib>
#include <cstring>
#include <string_view>

#include <fmt/format.h>

#include "base/mapped_file.h"
#include "formats/image/elf.h"
#include "os/mapped_files.h"
#include "os/readers.h"
#include "symbols/debuginfod_program.h"

namespace windlass::symbols {

std::string build_id_of(Dwfl_Module* module) {
  const unsigned char* bits = nullptr;
  GElf_Addr address = 0;
  const int size = dwfl_module_build_id(module, &bits, &address);
  std::string text;
  for (int i = 0; i < size; ++i) text += fmt::format("{:02x}", bits[i]);
  return text;
}

namespace {

// As libdwfl looks: by the build id, then by the link's name beside the file, below it, and in the debug trees.
std::vector<std::string> places(const std::vector<std::string>& trees, const std::string& build_id,
                                std::string_view file, std::string_view link) {
  std::vector<std::string> found;
  if (build_id.size() > 2)
    for (const std::string& tree : trees)
      found.push_back(fmt::format("{}/.build-id/{}/{}.debug", tree, build_id.substr(0, 2), build_id.substr(2)));
  const std::size_t slash = file.rfind('/');
  if (slash == std::string_view::npos) return found;
  const std::string_view folder = file.substr(0, slash);
  const std::string named = link.empty() ? fmt::format("{}.debug", file.substr(slash + 1)) : std::string(link);
  if (named.starts_with('/')) {
    found.push_back(named);
    return found;
  }
  found.push_back(fmt::format("{}/{}", folder, named));
  found.push_back(fmt::format("{}/.debug/{}", folder, named));
  for (const std::string& tree : trees) found.push_back(fmt::format("{}{}/{}", tree, folder, named));
  return found;
}

bool is_right(int fd, const std::string& build_id, GElf_Word crc) {
  const auto file = MappedFile::from_fd(fd);
  if (!file) return false;
  const auto image = image::ElfImage::parse(file->bytes());
  if (!image) return false;
  if (!build_id.empty()) return image->build_id() == build_id;
  const ByteView bytes = file->bytes();
  return crc != 0 && crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()) == crc;
}

}  // namespace

int find_debug_file(Dwfl_Module* module, void** userdata, const char* name, Dwarf_Addr base, const char* file,
                    const char* link, GElf_Word link_crc, char** found) {
  if (os::readers() == nullptr)
    return dwfl_standard_find_debuginfo(module, userdata, name, base, file, link, link_crc, found);
  const auto* trees = static_cast<const std::vector<std::string>*>(*userdata);
  const std::string build_id = build_id_of(module);
  for (const std::string& path : places(trees != nullptr ? *trees : std::vector<std::string>(), build_id,
                                        file != nullptr ? file : "", link != nullptr ? link : "")) {
    if (file != nullptr && path == file) continue;
    os::Descriptor opened(os::open_regular(path));
    if (!opened || !is_right(opened.get(), build_id, link_crc)) continue;
    *found = ::strdup(path.c_str());
    return opened.release();
  }
  // debuginfod, by the build id alone: no name that leads to a file of others.
  if (!asks_debuginfod()) return -1;
  return dwfl_standard_find_debuginfo(module, userdata, name, base, nullptr, "windlass-none", 0, found);
}

}  // namespace windlass::symbols
