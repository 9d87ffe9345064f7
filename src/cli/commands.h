// One function a subcommand: it adds itself to the application, and when it is the one chosen, runs and sets `status`.
#pragma once

#include <cstddef>

namespace CLI {
class App;
}

namespace windlass::cli {

// What the command's callers rely on.
enum ExitStatus : int {
  kDone = 0,
  kFoundWrong = 1,  // something wrong in the input; the rest of it was still handled
  kUsage = 2,
  kRefused = 3,  // the operating system refused; the message says the way out
};

// What an option that counts may be at most: the parser takes -1 for the largest number there is.
inline constexpr std::size_t kMostNumber = 1'000'000'000;

void register_dump(CLI::App& app, int& status);
void register_rows(CLI::App& app, int& status);
void register_record(CLI::App& app, int& status);
void register_doctor(CLI::App& app, int& status);
void register_emit(CLI::App& app, int& status);
void register_report(CLI::App& app, int& status);
void register_walk(CLI::App& app, int& status);

}  // namespace windlass::cli
