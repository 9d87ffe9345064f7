#include "aarch64/guest_space.h"

#include <elf.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include "walk/module.h"

namespace windlass::aarch64_judge {
namespace {

class GuestMemory final : public Memory {
 public:
  explicit GuestMemory(const StubClient& stub) : stub_(stub) {}
  [[nodiscard]] bool read(std::uint64_t address, void* to, std::size_t size) const override {
    return stub_.read(address, to, size);
  }

 private:
  const StubClient& stub_;
};

// The file's addresses, if it is an AArch64 ELF file.
bool file_range(const std::string& path, std::uint64_t& begin, std::uint64_t& end) {
  std::ifstream file(path, std::ios::binary);
  Elf64_Ehdr header{};
  if (!file.read(reinterpret_cast<char*>(&header), sizeof header) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_machine != EM_AARCH64)
    return false;
  begin = ~std::uint64_t{0};
  end = 0;
  file.seekg(static_cast<std::streamoff>(header.e_phoff));
  Elf64_Phdr segment{};
  for (unsigned i = 0; i < header.e_phnum && file.read(reinterpret_cast<char*>(&segment), sizeof segment); ++i) {
    if (segment.p_type != PT_LOAD) continue;
    begin = std::min<std::uint64_t>(begin, segment.p_vaddr & ~std::uint64_t{0xfff});
    end = std::max<std::uint64_t>(end, segment.p_vaddr + segment.p_memsz);
  }
  return begin < end;
}

}  // namespace

GuestSpace::GuestSpace(const StubClient& stub)
    : stub_(stub), space_(Architecture::kAArch64, std::make_unique<GuestMemory>(stub)) {}

bool GuestSpace::refresh() {
  std::map<std::uint64_t, std::string> found;  // by the file's first mapping
  std::ifstream maps("/proc/" + std::to_string(stub_.pid()) + "/maps");
  std::string last;
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::string range, rights, offset, device, inode, path;
    words >> range >> rights >> offset >> device >> inode >> path;
    if (path.empty() || path[0] != '/' || std::stoull(offset, nullptr, 16) != 0 || path == last) continue;
    last = path;
    found.emplace(std::stoull(range, nullptr, 16), path);
  }
  bool changed = false;
  for (auto at = known_.begin(); at != known_.end();) {
    const auto now = found.find(at->first);
    if (now != found.end() && now->second == at->second) {
      ++at;
      continue;
    }
    (void)space_.remove(at->first);
    at = known_.erase(at);
    changed = true;
  }
  for (const auto& [begin, path] : found) {
    std::uint64_t first = 0;
    std::uint64_t last_address = 0;
    if (known_.contains(begin) || !file_range(path, first, last_address)) continue;
    const std::uint64_t bias = begin - first;
    if (!space_.add_module({begin, bias + last_address, bias, path, {}})) continue;
    known_.emplace(begin, path);
    changed = true;
  }
  return changed;
}

std::vector<GuestSpace::Mapped> GuestSpace::mapped() const {
  std::vector<Mapped> all;
  for (const auto& [begin, path] : known_)
    if (const ModuleInfo* module = space_.module_at(begin)) all.push_back({module->bias, path});
  return all;
}

std::string GuestSpace::name(std::uint64_t address) const {
  char text[32];
  const ModuleInfo* const module = space_.module_at(address);
  snprintf(text, sizeof text, "+0x%llx",
           static_cast<unsigned long long>(module != nullptr ? address - module->bias : address));
  if (module == nullptr) return std::string("?") + text;
  const std::string& path = module->path;
  return path.substr(path.rfind('/') + 1) + text;
}

}  // namespace windlass::aarch64_judge
