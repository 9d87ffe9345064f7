// A command run by the shell: what it printed and how it ended.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace windlass::test {

struct CommandResult {
  int status = -1;
  std::string output;
};

inline CommandResult run(const std::string& command) {
  CommandResult result;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  std::array<char, 65536> buffer{};
  for (std::size_t got; pipe != nullptr && (got = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    result.output.append(buffer.data(), got);
  if (pipe != nullptr) result.status = WEXITSTATUS(::pclose(pipe));
  return result;
}

}  // namespace windlass::test
