#include "cli/symbol_options.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/symbol_places.h"

namespace windlass::cli {

void add_symbols_option(CLI::App& command) {
  command
      .add_option_function<std::vector<std::string>>(
          "--symbols",
          [](const std::vector<std::string>& places) {
            symbol_places().insert(symbol_places().begin(), places.begin(), places.end());
          },
          "a folder or a store with symbol files, for addresses of stripped programs (repeatable) [$WINDLASS_SYMBOLS]")
      ->type_name("DIR")
      ->check([](const std::string& place) {
        if (access(place.c_str(), R_OK) == 0) return std::string();
        return fmt::format("cannot open {}: {}. Way out: a folder or a store that is there", place,
                           std::strerror(errno));
      })
      ->allow_extra_args(false);
}

}  // namespace windlass::cli
