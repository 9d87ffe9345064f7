#include "runtimes/windows/tables.h"

#include <algorithm>
#include <optional>

#include "base/pages.h"
#include "formats/image/pe.h"
#include "formats/image/pe_format.h"
#include "formats/image/pe_names.h"
#include "runtimes/memory_reader.h"

namespace windlass::runtimes::windows {
namespace {

constexpr std::string_view kLibrary = "ntdll.dll";
constexpr std::size_t kMostImage = std::size_t{64} << 20;

struct Link {
  std::uint64_t next, previous;
};
struct WineEntry {
  Link link;
  std::uint64_t base, end, functions;
  std::uint32_t count, max_count;
  std::uint64_t callback, context;
};
static_assert(sizeof(WineEntry) == 0x40);
struct WindowsEntry {
  Link link;
  std::uint64_t functions, time, begin, end, base, callback, context, library;
  std::uint32_t type, count;
};
static_assert(sizeof(WindowsEntry) == 0x58);
enum WindowsType : std::uint32_t { kSorted = 0, kUnsorted = 1, kCallback = 2 };

// The headers and the exports of ntdll.dll, where the image has them.
Expected<std::vector<std::byte>> read_exports(const Memory& memory, std::uint64_t base) {
  const auto other = [&] { return fail(ErrorCode::kNotFound, "image is no ntdll.dll of x64", base); };
  std::vector<std::byte> bytes(kSmallestPage);
  if (read_value<std::uint16_t>(memory, base) != 0x5a4d || !memory.read(base, bytes.data(), bytes.size()))
    return other();
  const auto headers = image::PeImage::parse(ByteView(bytes.data(), bytes.size()), image::PeLayout::kMapped);
  if (!headers || headers->machine() != image::PeMachine::kAmd64 || headers->image_size() > kMostImage) return other();
  const image::RvaRange exports = headers->directory(image::PeDirectory::kExport);
  const std::size_t size = headers->image_size();
  const auto directory = read_value<image::pe::ExportDirectory>(memory, base + exports.rva);
  if (exports.size == 0 || exports.rva > size || exports.size > size - exports.rva || !directory ||
      read_text(memory, base + directory->name, kLibrary.size() + 1) != kLibrary)
    return other();
  bytes.resize(size);
  if (!memory.read(base + exports.rva, &bytes[exports.rva], exports.size)) return other();
  return bytes;
}

// The places of the image's data that a function takes the address of: lea reg, [rip + disp32].
std::vector<std::uint64_t> addressed_by(const Memory& memory, const image::PeImage& image, std::uint64_t base,
                                        std::uint32_t function) {
  constexpr std::size_t kMostCode = 256, kLea = 7;
  std::uint8_t code[kMostCode];
  std::vector<std::uint64_t> found;
  if (!memory.read(base + function, code, sizeof code)) return found;
  for (std::size_t i = 0; i + kLea <= sizeof code; ++i) {
    if ((code[i] & 0xfb) != 0x48 || code[i + 1] != 0x8d || (code[i + 2] & 0xc7) != 0x05) continue;
    std::int32_t distance;
    std::memcpy(&distance, &code[i + 3], sizeof distance);
    const std::uint32_t rva = function + static_cast<std::uint32_t>(i + kLea) + static_cast<std::uint32_t>(distance);
    const image::PeSection* section = image.section_at(rva);
    if (section != nullptr && section->writable() && rva % 8 == 0) found.push_back(base + rva);
  }
  return found;
}

// Is it the head of a list? Its neighbours lead back to it; those of an empty one are the head itself.
bool heads_list(const Memory& memory, std::uint64_t head) {
  const auto link = read_value<Link>(memory, head);
  const auto next = link ? read_value<Link>(memory, link->next) : std::nullopt;
  const auto previous = link ? read_value<Link>(memory, link->previous) : std::nullopt;
  return next && previous && next->previous == head && previous->next == head;
}

std::optional<Table> read_table(const Memory& memory, const TableList& list, std::uint64_t address) {
  if (list.of_wine) {
    const auto entry = read_value<WineEntry>(memory, address);
    if (!entry) return std::nullopt;
    return Table{address,          entry->link.previous, entry->base, entry->end,     entry->base,
                 entry->functions, entry->count,         true,        entry->callback};
  }
  const auto entry = read_value<WindowsEntry>(memory, address);
  if (!entry) return std::nullopt;
  const bool is_callback = entry->type == kCallback;
  return Table{address,
               entry->link.previous,
               entry->begin,
               entry->end,
               entry->base,
               entry->functions,
               entry->count,
               entry->type != kUnsorted,
               is_callback ? entry->callback : 0,
               is_callback ? entry->library : 0};
}

std::optional<winx64::RuntimeFunction> entry_of(const Memory& memory, const Table& table, std::uint32_t index) {
  return read_value<winx64::RuntimeFunction>(memory,
                                             table.functions + std::uint64_t{index} * sizeof(winx64::RuntimeFunction));
}

bool has(const winx64::RuntimeFunction& function, std::uint32_t rva) {
  return rva >= function.begin && rva < function.end;
}

std::optional<winx64::RuntimeFunction> search_sorted(const Memory& memory, const Table& table, std::uint32_t rva) {
  std::optional<winx64::RuntimeFunction> last;
  for (std::uint32_t begin = 0, end = table.count; begin < end;) {
    const std::uint32_t middle = begin + (end - begin) / 2;
    const auto entry = entry_of(memory, table, middle);
    if (!entry) return std::nullopt;
    if (entry->begin <= rva) {
      last = entry;
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return last && has(*last, rva) ? last : std::nullopt;
}

std::optional<winx64::RuntimeFunction> search_all(const Memory& memory, const Table& table, std::uint32_t rva) {
  constexpr std::uint32_t kMost = 1 << 16;
  for (std::uint32_t i = 0; i < std::min(table.count, kMost); ++i) {
    const auto entry = entry_of(memory, table, i);
    if (!entry) return std::nullopt;
    if (has(*entry, rva)) return entry;
  }
  return std::nullopt;
}

}  // namespace

Expected<TableList> find_list(const Memory& memory, std::uint64_t base) {
  const auto bytes = read_exports(memory, base);
  if (!bytes) return Failure(bytes.error());
  const auto image = image::PeImage::parse(ByteView(bytes->data(), bytes->size()), image::PeLayout::kMapped);
  const auto exports = image ? image::PeExports::open(*image) : Failure(image.error());
  if (!exports) return Failure(exports.error());
  const bool of_wine = exports->find("wine_get_version").has_value();
  const auto function = exports->find(of_wine ? "RtlDeleteFunctionTable" : "RtlGetFunctionTableListHead");
  if (!function) return Failure(function.error());
  for (const std::uint64_t head : addressed_by(memory, *image, base, function->rva))
    if (heads_list(memory, head)) return TableList{head, of_wine};
  return fail(ErrorCode::kNotFound, "ntdll.dll has no list of function tables where it is expected", base);
}

std::vector<Table> read_tables(const Memory& memory, const TableList& list) {
  std::vector<Table> tables;
  auto link = read_value<Link>(memory, list.head);
  while (link && link->next != list.head && tables.size() < kMostTables) {
    const std::uint64_t address = link->next;
    const auto table = read_table(memory, list, address);
    if (!table) break;
    tables.push_back(*table);
    link = read_value<Link>(memory, address);
  }
  return tables;
}

bool is_still(const Memory& memory, const TableList& list, const Table& table) {
  const auto now = read_table(memory, list, table.address);
  if (!now) return false;
  Table same = table;  // growable tables grow, and neighbours come and go
  same.previous = now->previous;
  same.count = now->count;
  const auto previous = read_value<Link>(memory, now->previous);
  return *now == same && previous && previous->next == table.address;
}

Expected<winx64::RuntimeFunction> function_at(const Memory& memory, const Table& table, std::uint64_t address) {
  if (table.callback != 0)
    return fail(ErrorCode::kUnsupported, "a callback of the process makes the function table of this code", address);
  const std::uint64_t rva = address - table.base;
  if (rva >> 32 == 0) {
    const auto found = table.sorted ? search_sorted(memory, table, static_cast<std::uint32_t>(rva))
                                    : search_all(memory, table, static_cast<std::uint32_t>(rva));
    if (found) return *found;
  }
  return fail(ErrorCode::kNotFound, "no entry of a function table covers the address", address);
}

std::string library_of(const Memory& memory, const Table& table) {
  constexpr std::size_t kLongest = 260;  // MAX_PATH
  std::string path;
  for (std::uint64_t at = table.library; at != 0 && path.size() < kLongest; at += 2) {
    const auto letter = read_value<std::uint16_t>(memory, at);
    if (!letter || *letter == 0) break;
    path += *letter < 0x7f && *letter >= ' ' ? static_cast<char>(*letter) : '?';
  }
  return path;
}

}  // namespace windlass::runtimes::windows
