// Names and home folders of users, by /etc/passwd alone: getpwuid_r(3) loads libraries, which a static command cannot.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace windlass::profiler {

struct User {
  std::string name, home;
};

// passwd(5). Of two lines for a number the first counts.
[[nodiscard]] std::map<std::uint32_t, User> parse_passwd(std::string_view text);

// Not thread-safe.
class UserNames {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{4} << 20;           // of the file
  static constexpr std::chrono::seconds kAgain = std::chrono::seconds(10);  // it is read, for a user it does not name

  explicit UserNames(std::string path) : path_(std::move(path)) {}
  // Null where the file does not name the user: those of LDAP and the like.
  [[nodiscard]] const User* find(std::uint32_t number);
  [[nodiscard]] std::optional<std::uint32_t> number_of(std::string_view name);
  // Does the file name nobody, when last read? It is missing, unreadable or empty.
  [[nodiscard]] bool none() const { return users_.empty(); }

 private:
  void read_again();

  std::string path_;
  std::map<std::uint32_t, User> users_;
  std::chrono::steady_clock::time_point next_;
};

}  // namespace windlass::profiler
