#include "agent/perf_map.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "process/mapped_files.h"
#include "process/perf_map.h"

namespace windlass::agent {

bool PerfMap::open(const std::string& path) {
  file_ = process::Descriptor(process::open_regular(path));
  return static_cast<bool>(file_);
}

bool PerfMap::read(std::uint64_t now) {
  // What was not there the last time came since.
  const std::uint64_t since = last_read_;
  last_read_ = now;
  bool renamed = false;
  struct stat status {};
  if (::fstat(file_.get(), &status) == 0 && static_cast<std::uint64_t>(status.st_size) < read_) {
    read_ = 0;  // another program in the process has begun it anew
    rest_.clear();
  }
  std::array<char, 65536> piece;
  while (read_ < kMaxBytes) {
    const ssize_t got = ::pread(file_.get(), piece.data(), piece.size(), static_cast<off_t>(read_));
    if (got <= 0) break;
    read_ += static_cast<std::uint64_t>(got);
    rest_.append(piece.data(), static_cast<std::size_t>(got));
    std::size_t start = 0;
    for (std::size_t end; (end = rest_.find('\n', start)) != std::string::npos; start = end + 1)
      renamed |= add(std::string_view(rest_).substr(start, end - start), since);
    rest_.erase(0, start);
  }
  return renamed;
}

// By number of those that may have an address in the page, the later ones last.
template <typename Use>
void PerfMap::for_each_at(std::uint64_t page, Use&& use) const {
  for (const std::uint32_t number : large_) use(lines_[number]);
  if (const auto known = by_page_.find(page); known != by_page_.end())
    for (const std::uint32_t number : known->second) use(lines_[number]);
}

bool PerfMap::add(std::string_view text, std::uint64_t since) {
  const auto parsed = process::parse_perf_map_line(text);
  if (!parsed || parsed->size == 0 || parsed->size > ~std::uint64_t{0} - parsed->begin) return false;
  const Line line{parsed->begin, parsed->size, since, names_.size(), static_cast<std::uint32_t>(parsed->name.size())};
  const std::uint64_t last = line.begin + (line.size - 1);
  const std::uint64_t first_page = line.begin >> kPageShift, pages = (last >> kPageShift) - first_page + 1;
  bool renamed = false;
  const auto number = static_cast<std::uint32_t>(lines_.size());
  if (pages > kMaxPages) {
    large_.push_back(number);
  } else {
    for (std::uint64_t page = first_page; page < first_page + pages; ++page) {
      for_each_at(page, [&](const Line& other) {
        renamed |= other.begin <= last && line.begin - other.begin < other.size && name_of(other) != parsed->name;
        renamed |= other.begin >= line.begin && other.begin <= last && name_of(other) != parsed->name;
      });
      by_page_[page].push_back(number);
    }
  }
  names_ += parsed->name;
  lines_.push_back(line);
  return renamed;
}

std::optional<PerfMap::Function> PerfMap::find(std::uint64_t address, std::uint64_t time) const {
  const Line *then = nullptr, *later = nullptr;
  for_each_at(address >> kPageShift, [&](const Line& line) {
    if (address - line.begin >= line.size) return;
    if (line.since <= time && (then == nullptr || then < &line)) then = &line;
    if (line.since > time && (later == nullptr || later > &line)) later = &line;
  });
  const Line* found = then != nullptr ? then : later;
  if (found == nullptr) return std::nullopt;
  return Function{found->begin, name_of(*found)};
}

}  // namespace windlass::agent
