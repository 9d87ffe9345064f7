#include "cli/serve_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "cli/commands.h"
#include "cli/errors.h"
#include "cli/profile_input.h"
#include "profiler/store/open_store.h"

namespace windlass::cli {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

void add_label(profile::Profile& profile, const std::string& key, const std::string& value) {
  const auto text = static_cast<std::uint32_t>(profile.strings.size());
  profile.strings.insert(profile.strings.end(), {key, value});
  for (auto& set : profile.label_sets) set.push_back({text, text + 1});
}

// Of a format that does not say when it was recorded: the file was written at its end.
std::uint64_t begin_of(const profile::Profile& profile, const std::string& file) {
  if (profile.start_unix_ns != 0) return profile.start_unix_ns;
  struct stat facts {};
  if (stat(file.c_str(), &facts) != 0 || facts.st_mtim.tv_sec <= 0) return kSecond;
  const std::uint64_t end = static_cast<std::uint64_t>(facts.st_mtim.tv_sec) * kSecond;
  return end - std::min(end - kSecond, profile.duration_ns);
}

}  // namespace

std::optional<ServedFiles> ServedFiles::read(const std::vector<std::string>& files, int& status) {
  std::error_code ignored;
  std::string folder = (std::filesystem::temp_directory_path(ignored) / "windlass-serve-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) {
    say_unwritten(folder, errno);
    status = kRefused;
    return std::nullopt;
  }
  ServedFiles made(std::move(folder));
  const auto store = store::open_store(made.store(), {.write = true, .keep = {}});
  if (!store) {
    say_error(made.store(), store.error());
    status = kRefused;
    return std::nullopt;
  }
  std::uint64_t sequence = 0;
  for (const std::string& file : files) {
    auto profile = read_profile(file, "serve", status);
    if (!profile) return std::nullopt;
    add_label(*profile, "file", shown_profile(file));
    const std::uint64_t begin = begin_of(*profile, file);
    const store::Batch batch{.id = {.host = "[unknown]", .agent_start_ns = 0, .sequence = sequence++},
                             .begin_ns = begin,
                             .end_ns = begin + std::max(profile->duration_ns, kSecond),
                             .profile = *profile};
    if (const auto appended = (*store)->append(batch); !appended) {
      say_error(shown_profile(file), appended.error());
      status = kRefused;
      return std::nullopt;
    }
  }
  return made;
}

ServedFiles::ServedFiles(ServedFiles&& other) noexcept : folder_(std::exchange(other.folder_, {})) {}

ServedFiles::~ServedFiles() {
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

}  // namespace windlass::cli
