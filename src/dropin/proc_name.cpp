#include "dropin/proc_name.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace windlass::dropin {
namespace {

// The bytes of a file that is mapped for as long as this lives. MappedFile would allocate its path.
class File {
 public:
  explicit File(const char* path) {
    const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    struct stat status;
    if (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0) {
      void* mapped = ::mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
      if (mapped != MAP_FAILED) {
        data_ = static_cast<const char*>(mapped);
        size_ = static_cast<std::size_t>(status.st_size);
      }
    }
    ::close(fd);
  }
  ~File() {
    if (data_ != nullptr) ::munmap(const_cast<char*>(data_), size_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  // `count` of T at `offset`, or null where they are not all in the file or not aligned.
  template <typename T>
  [[nodiscard]] const T* at(std::uint64_t offset, std::uint64_t count = 1) const {
    if (data_ == nullptr || offset > size_ || count > (size_ - offset) / sizeof(T) || offset % alignof(T) != 0)
      return nullptr;
    return reinterpret_cast<const T*>(data_ + offset);
  }

 private:
  const char* data_ = nullptr;
  std::size_t size_ = 0;
};

struct Found {
  const char* name = nullptr;
  std::size_t length = 0;
  std::uint64_t begin = 0;
};

// The innermost function symbol around `address` in one table.
bool search(const File& file, const Elf64_Shdr& table, const Elf64_Shdr& strings, std::uint64_t address, Found& found) {
  const std::uint64_t count = table.sh_size / sizeof(Elf64_Sym);
  const auto* symbols = file.at<Elf64_Sym>(table.sh_offset, count);
  const auto* text = file.at<char>(strings.sh_offset, strings.sh_size);
  if (symbols == nullptr || text == nullptr) return false;
  for (std::uint64_t i = 0; i < count; ++i) {
    const Elf64_Sym& symbol = symbols[i];
    const unsigned type = ELF64_ST_TYPE(symbol.st_info);
    if ((type != STT_FUNC && type != STT_GNU_IFUNC) || symbol.st_shndx == SHN_UNDEF || symbol.st_value > address ||
        address - symbol.st_value >= std::max<std::uint64_t>(symbol.st_size, 1) || symbol.st_name >= strings.sh_size)
      continue;
    if (found.name != nullptr && symbol.st_value <= found.begin) continue;
    found = {text + symbol.st_name, ::strnlen(text + symbol.st_name, strings.sh_size - symbol.st_name),
             symbol.st_value};
  }
  return found.name != nullptr;
}

bool search(const File& file, std::uint64_t address, Found& found) {
  const auto* header = file.at<Elf64_Ehdr>(0);
  if (header == nullptr || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
      header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_shentsize != sizeof(Elf64_Shdr))
    return false;
  const auto* sections = file.at<Elf64_Shdr>(header->e_shoff, header->e_shnum);
  if (sections == nullptr) return false;
  for (const std::uint32_t type : {SHT_SYMTAB, SHT_DYNSYM})
    for (unsigned i = 0; i < header->e_shnum; ++i)
      if (sections[i].sh_type == type && sections[i].sh_link < header->e_shnum &&
          search(file, sections[i], sections[sections[i].sh_link], address, found))
        return true;
  return false;
}

}  // namespace

bool proc_name(std::uint64_t address, char* name, std::size_t size, std::uint64_t& begin, bool& whole) {
  dl_find_object object;
  if (::_dl_find_object(reinterpret_cast<void*>(address), &object) != 0) return false;
  const link_map& module = *object.dlfo_link_map;
  const File file(module.l_name[0] != 0 ? module.l_name : "/proc/self/exe");
  Found found;
  if (!search(file, address - module.l_addr, found)) return false;
  begin = found.begin + module.l_addr;
  whole = found.length < size;
  const std::size_t length = std::min(found.length, size - 1);
  std::memcpy(name, found.name, length);
  name[length] = 0;
  return true;
}

}  // namespace windlass::dropin
