// Running another program and reading what it prints, line by line.
#pragma once

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

#include "formats/image/elf.h"
#include "formats/image/unwind_sections.h"

namespace windlass::peer {

// The lines of a shell command's standard output.
class Lines {
 public:
  explicit Lines(const std::string& command) : pipe_(::popen(command.c_str(), "r")) {}
  ~Lines() {
    if (pipe_ != nullptr) ::pclose(pipe_);
    std::free(line_);
  }
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;

  // Valid until the next call.
  std::optional<std::string_view> next() {
    if (pipe_ == nullptr) return std::nullopt;
    const ssize_t length = ::getline(&line_, &capacity_, pipe_);
    if (length <= 0) return std::nullopt;
    const bool newline = line_[length - 1] == '\n';
    return std::string_view(line_, static_cast<std::size_t>(length - (newline ? 1 : 0)));
  }

 private:
  std::FILE* pipe_;
  char* line_ = nullptr;
  std::size_t capacity_ = 0;
};

inline std::string first_line(const std::string& command) {
  Lines lines(command);
  return std::string(lines.next().value_or(""));
}

inline bool have(const std::string& program) { return !first_line("command -v " + program + " 2>/dev/null").empty(); }

struct Subject {
  std::string name;
  std::string path;  // empty: not on this machine
};

// The real binaries that rows are compared on, looked for where distributions put them.
inline std::vector<Subject> subjects() {
  const auto first_of = [](std::initializer_list<std::string> candidates) {
    for (const std::string& path : candidates)
      if (!path.empty() && ::access(path.c_str(), R_OK) == 0) return path;
    return std::string();
  };
  const std::string python = "python3 -c 'import os,sys; print(os.path.realpath(sys.executable))' 2>/dev/null";
  const std::string libpython =
      "python3 -c 'import os,sysconfig as s; print(os.path.join(s.get_config_var(\"LIBDIR\"), "
      "s.get_config_var(\"INSTSONAME\")))' 2>/dev/null";
  return {
      {"libc", first_of({"/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/usr/lib/libc.so.6"})},
      {"libstdc++", first_of({"/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "/usr/lib64/libstdc++.so.6"})},
      {"libLLVM-14", first_of({"/usr/lib/llvm-14/lib/libLLVM-14.so.1", "/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1"})},
      {"node", first_line("readlink -f \"$(command -v node)\" 2>/dev/null")},
      {"python3", first_line(python)},
      {"libpython3", first_of({first_line(libpython)})},
      {"bash", first_line("readlink -f \"$(command -v bash)\" 2>/dev/null")},
  };
}

// Of i386, as libclang-rt-dev has them brought along.
inline std::vector<Subject> i386_subjects() {
  const auto if_there = [](const char* path) { return ::access(path, R_OK) == 0 ? std::string(path) : std::string(); };
  return {{"i386 libc", if_there("/lib32/libc.so.6")},
          {"i386 libstdc++", if_there("/usr/lib32/libstdc++.so.6")},
          {"i386 ld.so", if_there("/lib32/ld-linux.so.2")}};
}

}  // namespace windlass::peer
