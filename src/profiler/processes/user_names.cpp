#include "profiler/processes/user_names.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "profiler/processes/state_file.h"

namespace windlass::profiler {

std::map<std::uint32_t, User> parse_passwd(std::string_view text) {
  std::map<std::uint32_t, User> users;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    std::array<std::string_view, 6> fields;  // name, password, number, group, comment, home
    for (std::string_view& field : fields) {
      field = line.substr(0, line.find(':'));
      line.remove_prefix(std::min(field.size() + 1, line.size()));
    }
    const std::string_view number = fields[2];
    std::uint32_t user = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), user);
    if (error != std::errc() || end != number.data() + number.size() || fields[0].empty()) continue;
    users.try_emplace(user, User{std::string(fields[0]), std::string(fields[5])});
  }
  return users;
}

void UserNames::read_again() {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return;
  next_ = now + kAgain;
  users_ = parse_passwd(read_state_file(path_, kMostBytes));
}

const User* UserNames::find(std::uint32_t number) {
  if (!users_.contains(number)) read_again();
  const auto found = users_.find(number);
  return found != users_.end() ? &found->second : nullptr;
}

std::optional<std::uint32_t> UserNames::number_of(std::string_view name) {
  read_again();
  const auto found = std::ranges::find(users_, name, [](const auto& entry) { return entry.second.name; });
  return found != users_.end() ? std::optional(found->first) : std::nullopt;
}

}  // namespace windlass::profiler
