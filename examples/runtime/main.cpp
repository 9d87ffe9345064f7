// lilt FILE runs a program; lilt alone reads one from standard input, a declaration or statement a line.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>

#include "runtime.h"

namespace {

const char kUsage[] =
    "usage: lilt [OPTIONS] [FILE]\n"
    "  --tier0            no function is compiled again\n"
    "  --tier-up=N        after N calls (1000)\n"
    "  --again=N          and after N more once more, for ever\n"
    "  --gc-stress        collects at every call and allocation\n"
    "  --heap=BYTES       of each half (32 MiB)\n"
    "  --check-stacks     keeps a shadow stack, compares walks with it, and says how many were wrong\n"
    "  --sample=US        compares in every thread, so many microseconds after the last time, in a signal handler\n"
    "  --seconds=S        runs the file again and again until so many seconds have gone by\n"
    "  --alarm=S          raises SIGALRM after so many seconds, for a debugger to stop at\n"
    "  --windows-unwind   describes frames to walks by Windows unwind information, not by rows\n"
    "  --gdb              shows compiled code to GDB and LLDB\n";

bool parse_option(const std::string& text, lilt::Options& options) {
  const std::size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  const unsigned long value = equals == std::string::npos ? 0 : std::strtoul(text.c_str() + equals + 1, nullptr, 10);
  if (name == "--tier0")
    options.tier_up = 0;
  else if (name == "--tier-up")
    options.tier_up = static_cast<std::uint32_t>(value);
  else if (name == "--again")
    options.again = static_cast<std::uint32_t>(value);
  else if (name == "--gc-stress")
    options.gc_stress = true;
  else if (name == "--heap")
    options.heap = value;
  else if (name == "--check-stacks")
    options.check_stacks = true;
  else if (name == "--sample")
    options.check_stacks = true, options.sample_us = static_cast<long>(value);
  else if (name == "--seconds")
    options.seconds = static_cast<long>(value);
  else if (name == "--alarm")
    alarm(static_cast<unsigned>(value));
  else if (name == "--windows-unwind")
    options.windows_unwind = true;
  else if (name == "--gdb")
    options.gdb = true;
  else
    return false;
  return true;
}

// What is open has to be closed before it is compiled.
bool is_open(const std::string& source) {
  return std::count(source.begin(), source.end(), '{') > std::count(source.begin(), source.end(), '}');
}

void read_and_run(lilt::Runtime& runtime) {
  std::string source;
  for (std::string line; std::getline(std::cin, line);) {
    source += line + "\n";
    if (is_open(source)) continue;
    try {
      runtime.compile(source);
      runtime.run_main();
    } catch (const std::runtime_error& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    source.clear();
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  lilt::Options options;
  const char* file = nullptr;
  for (int i = 1; i < argc; ++i) {
    if (argv[i][0] != '-')
      file = argv[i];
    else if (!parse_option(argv[i], options))
      return std::fputs(kUsage, stderr), 2;
  }
  lilt::Runtime runtime(options);
  if (options.sample_us != 0) lilt::Runtime::handle_samples();
  if (file == nullptr) return read_and_run(runtime), 0;
  std::ifstream stream(file);
  if (!stream) return std::fprintf(stderr, "%s: cannot be read\n", file), 2;
  const std::string source{std::istreambuf_iterator<char>(stream), {}};
  try {
    runtime.compile(source);
  } catch (const std::runtime_error& error) {
    return std::fprintf(stderr, "%s: %s\n", file, error.what()), 2;
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(options.seconds);
  do runtime.run_main();
  while (std::chrono::steady_clock::now() < end);
  std::fflush(stdout);
  if (options.check_stacks) runtime.report();
  return runtime.wrong == 0 ? 0 : 4;
}
