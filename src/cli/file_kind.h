// A file given to the wrong command is answered with the right one.
#pragma once

#include <string>
#include <string_view>

namespace windlass::cli {

// Says on stderr what `path` is, and which command reads such files: "windlass: /bin/sh is an ELF file. Way out:
// windlass dump /bin/sh". False, and nothing is said: the file is not known, cannot be read, or is of a kind that
// `command` reads, so that the command's own error says more.
bool say_other_kind(const std::string& path, std::string_view command);

}  // namespace windlass::cli
