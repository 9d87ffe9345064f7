#include "profiler/processes/perf_map.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>

#include "os/mapped_files.h"
#include "os/perf_map.h"

namespace windlass::profiler {

bool PerfMap::open(const std::string& path, std::uint32_t tgid) {
  struct stat status {};
  file_ = os::GrowingFile::open({.path = path}, status);
  if (file_ && os::is_left_behind(status, static_cast<pid_t>(tgid))) file_ = {};
  return static_cast<bool>(file_);
}

bool PerfMap::read(std::uint64_t now) {
  // What was not there the last time came since.
  const std::uint64_t since = last_read_;
  last_read_ = now;
  bool renamed = false;
  struct stat status {};
  if (file_.status(status) && static_cast<std::uint64_t>(status.st_size) < read_) {
    read_ = 0;  // another program in the process has begun it anew
    rest_.clear();
  }
  std::array<char, 65536> piece;
  while (read_ < kMaxBytes) {
    const ssize_t got = file_.read_at(read_, std::as_writable_bytes(std::span(piece)));
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

bool PerfMap::add(std::string_view text, std::uint64_t since) {
  const auto parsed = os::parse_perf_map_line(text);
  if (!parsed || parsed->size == 0 || parsed->size > ~std::uint64_t{0} - parsed->begin) return false;
  bool renamed = false;
  lines_.for_each_in(parsed->begin, parsed->size,
                     [&](const auto& earlier) { renamed |= name_of(earlier) != parsed->name; });
  lines_.add({parsed->begin, parsed->size, since, static_cast<std::uint32_t>(names_.size())});
  names_.push_back({texts_.size(), static_cast<std::uint32_t>(parsed->name.size())});
  texts_ += parsed->name;
  return renamed;
}

std::optional<PerfMap::Function> PerfMap::find(std::uint64_t address, std::uint64_t time) const {
  const auto* found = lines_.find(address, time);
  if (found == nullptr) found = lines_.find_first(address);
  if (found == nullptr) return std::nullopt;
  return Function{found->begin, name_of(*found)};
}

}  // namespace windlass::profiler
