// A function for each subcommand. It adds itself to the application. When its command is chosen, it runs and sets
// `status`.
#pragma once

#include <cstddef>

namespace CLI {
class App;
}

namespace windlass::cli {

// What the command's callers rely on.
enum ExitStatus : int {
  kDone = 0,
  kFoundWrong = 1,  // Something is wrong in the input; the rest was still handled.
  kUsage = 2,
  kRefused = 3,  // The operating system refused; the message says the way out.
};

// The largest value of an option that counts. The parser takes -1 for the largest number there is.
inline constexpr std::size_t kMostNumber = 1'000'000'000;

void register_dump(CLI::App& app, int& status);
void register_rows(CLI::App& app, int& status);
void register_record(CLI::App& app, int& status);
void register_top(CLI::App& app, int& status);
void register_agent(CLI::App& app, int& status);
void register_doctor(CLI::App& app, int& status);
void register_emit(CLI::App& app, int& status);
void register_report(CLI::App& app, int& status);
void register_view(CLI::App& app, int& status);
void register_serve(CLI::App& app, int& status);
void register_store(CLI::App& app, int& status);
void register_walk(CLI::App& app, int& status);
void register_symbols(CLI::App& app, int& status);
void register_mcp(CLI::App& app, int& status);

}  // namespace windlass::cli
