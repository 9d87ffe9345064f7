#include "symbols/text_symbols.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <vector>

#include "os/mapped_files.h"
#include "os/perf_map.h"

namespace windlass::symbols {

namespace {

constexpr std::size_t kLongestLine = 64 * 1024;

// Calls `line` with every line of a regular file (procfs files count as such), in 256 KiB pieces.
template <typename Handle>
bool for_each_line(const std::string& path, std::string& note, Handle handle) {
  const int fd = os::open_regular(path);
  struct stat status {};
  if (fd < 0 || ::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    note = fmt::format("{}: {}", path, fd < 0 ? std::strerror(errno) : "not a regular file");
    if (fd >= 0) ::close(fd);
    return false;
  }
  std::string buffer;
  char piece[256 * 1024];
  for (;;) {
    const ssize_t got = ::read(fd, piece, sizeof piece);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    buffer.append(piece, static_cast<std::size_t>(got));
    std::size_t start = 0;
    for (std::size_t end; (end = buffer.find('\n', start)) != std::string::npos; start = end + 1)
      handle(std::string_view(buffer).substr(start, end - start));
    buffer.erase(0, start);
    if (buffer.size() > kLongestLine) buffer.clear();  // no line is that long: not such a file
  }
  ::close(fd);
  return true;
}

// Cuts the next blank-separated field off `line`.
std::string_view next_field(std::string_view& line) {
  const auto begin = line.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return line = {};
  const auto end = std::min(line.find_first_of(" \t", begin), line.size());
  const auto field = line.substr(begin, end - begin);
  line.remove_prefix(end);
  return field;
}

bool parse_hex(std::string_view text, std::uint64_t& value) {
  if (text.starts_with("0x")) text.remove_prefix(2);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return error == std::errc() && end == text.data() + text.size();
}

struct KernelSymbol {
  std::uint64_t address;
  std::string_view module;  // into `text` of the caller's arena
  std::string_view name;
  bool is_global;
};

// Names outlive the read buffer here. A deque of blocks would do too; the kernel has some 10 MB of them.
struct KernelSymbols {
  std::vector<std::unique_ptr<char[]>> blocks;
  std::size_t used = 0, block_size = 0;
  std::vector<KernelSymbol> symbols;

  std::string_view keep(std::string_view text) {
    if (used + text.size() > block_size) {
      block_size = std::max<std::size_t>(1 << 20, text.size());
      blocks.push_back(std::make_unique<char[]>(block_size));
      used = 0;
    }
    char* place = blocks.back().get() + used;
    std::memcpy(place, text.data(), text.size());
    used += text.size();
    return {place, text.size()};
  }
};

KernelSymbols read_kallsyms(const std::string& path, std::string& note) {
  KernelSymbols result;
  std::string_view module;  // runs of symbols share it
  bool any_address = false;
  const bool read = for_each_line(path, note, [&](std::string_view line) {
    std::uint64_t address = 0;
    if (!parse_hex(next_field(line), address)) return;
    const auto type = next_field(line);
    const auto name = next_field(line);
    auto in_module = next_field(line);  // "[xfs]"; empty for the kernel itself
    any_address |= address != 0;
    if (type.size() != 1 || name.empty() || std::strchr("tTwW", type[0]) == nullptr) return;
    if (name[0] == '$')
      return;  // $x, $d: what AArch64's assemblers mark code and data with (AAELF64 5.5.4), in modules
    if (in_module != module) module = result.keep(in_module);
    result.symbols.push_back({address, module, result.keep(name), type[0] == 'T'});
  });
  if (read && !any_address) note = path + ": addresses are hidden (kernel.kptr_restrict, or not privileged)";
  if (!any_address) result.symbols.clear();
  std::stable_sort(result.symbols.begin(), result.symbols.end(),
                   [](const auto& a, const auto& b) { return a.address < b.address; });
  return result;
}

}  // namespace

void name_from_kallsyms(const std::string& path, std::span<const std::uint64_t> addresses, ModuleNames& names) {
  constexpr std::uint64_t kLongestFunction = 1 << 20;
  const auto kernel = read_kallsyms(path, names.note);
  const auto& symbols = kernel.symbols;
  names.opened = !symbols.empty();
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const auto next = std::upper_bound(symbols.begin(), symbols.end(), addresses[i],
                                       [](std::uint64_t address, const auto& s) { return address < s.address; });
    if (next == symbols.begin() || next == symbols.end()) continue;
    auto best = next - 1;
    for (auto alias = best; alias != symbols.begin() && (alias - 1)->address == best->address;) {
      --alias;  // first a global name, then the first in the file
      if (alias->is_global || !best->is_global) best = alias;
    }
    // The end of a symbol is where the next one starts; the last one of a module has no end that could be known.
    if (next->module != best->module && next->address - best->address > 4096) continue;
    if (addresses[i] - best->address >= kLongestFunction) continue;
    names.add_line(i, {names.function(best->name, {}, 0), 0});
  }
}

void name_from_perf_map(const std::string& path, std::span<const std::uint64_t> addresses, ModuleNames& names) {
  std::vector<std::string> found(addresses.size());
  names.opened = for_each_line(path, names.note, [&](std::string_view line) {
    const auto code = os::parse_perf_map_line(line);
    if (!code) return;
    auto address = std::lower_bound(addresses.begin(), addresses.end(), code->begin);
    for (; address != addresses.end() && *address - code->begin < code->size; ++address) {
      const auto index = static_cast<std::size_t>(address - addresses.begin());
      found[index] = code->name;
      names.begins[index] = code->begin;
    }
  });
  for (std::size_t i = 0; i < found.size(); ++i)
    if (!found[i].empty()) names.add_line(i, {names.function(found[i], {}, 0), 0});
}

}  // namespace windlass::symbols
