#include "profiler/processes/file_catalogue.h"

#include <sys/stat.h>

#include <algorithm>
#include <unordered_set>

#include <fmt/format.h>

#include "os/living_thread.h"

namespace windlass::profiler {

CodeFile* FileCatalogue::find(std::uint32_t number) {
  const auto file = files_.find(number);
  return file != files_.end() ? &file->second : nullptr;
}

CodeFile* FileCatalogue::with_content(const std::string& content) {
  const auto found = by_content_.find(content);
  return found == by_content_.end() ? nullptr : found->second;
}

CodeFile* FileCatalogue::known(const os::ProcMap& map, std::uint32_t tgid) {
  const auto found = by_inode_.find(map.file);
  if (found == by_inode_.end()) return nullptr;
  CodeFile& file = *found->second;
  if ((file.image && !file.build_id.empty()) || file.fd < 0) return &file;
  // Only its inode identifies this file's content: written over in place, it is another module.
  struct stat now {};
  const std::string path = fmt::format("/proc/{}/root{}", os::living_thread(static_cast<pid_t>(tgid)), map.path);
  if (!os::status_of(path, now) || now.st_ino != file.inode) return &file;
  const bool same = now.st_size == static_cast<off_t>(file.file.bytes().size());
  return same ? &file : nullptr;
}

CodeFile& FileCatalogue::add(OpenedFile opened, const std::string& path) {
  CodeFile& file = files_[++last_number_];
  file.number = last_number_;
  by_content_[opened.content] = &file;
  file.take(std::move(opened), path);
  return file;
}

void FileCatalogue::remember(const os::FileIdentity& identity, CodeFile& file) {
  if (identity.inode == 0) return;
  if (by_inode_.size() >= kMaxIdentities) by_inode_.clear();
  by_inode_[identity] = &file;
}

std::vector<CodeFile*> FileCatalogue::unused(const std::vector<std::uint32_t>& in_use, std::size_t& tables) {
  ++generation_;
  for (const std::uint32_t number : in_use)
    if (CodeFile* file = find(number)) file->last_used = generation_;
  std::vector<CodeFile*> unused;
  tables = 0;
  for (auto& [number, file] : files_) {
    const TableState state = file.state;
    if (state == TableState::kDropped || state == TableState::kPending) continue;
    ++tables;
    if (file.last_used != generation_) unused.push_back(&file);
  }
  std::ranges::stable_sort(unused, {}, &CodeFile::last_used);
  return unused;
}

void FileCatalogue::forget(const std::vector<CodeFile*>& files) {
  const std::unordered_set<const CodeFile*> gone(files.begin(), files.end());
  const auto is_gone = [&](const auto& entry) { return gone.contains(entry.second); };
  std::erase_if(by_content_, is_gone);
  std::erase_if(by_inode_, is_gone);
}

void FileCatalogue::erase_dropped(const std::function<bool(std::uint32_t number)>& needed) {
  std::erase_if(files_,
                [&](const auto& entry) { return entry.second.state == TableState::kDropped && !needed(entry.first); });
}

}  // namespace windlass::profiler
