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

const User* UserNames::find(std::uint32_t number) {
  const auto found = users_.find(number);
  if (found != users_.end()) return &found->second;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return nullptr;
  next_ = now + kAgain;
  users_ = parse_passwd(read_state_file(path_, kMostBytes));
  const auto again = users_.find(number);
  return again != users_.end() ? &again->second : nullptr;
}

}  // namespace windlass::profiler
