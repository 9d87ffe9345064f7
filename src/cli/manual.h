// Manual pages, made of what the parser knows.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace windlass::cli {

struct ManualPage {
  std::string file;  // "windlass-record.1"
  std::string text;  // roff
};

// A page of the whole command, and one of each subcommand.
[[nodiscard]] std::vector<ManualPage> manual_pages(const CLI::App& app);

}  // namespace windlass::cli
