// How fast call frame information becomes rows and tables, and what the tables weigh.
//
//   bench_compile [--rounds N] [--no-peers] FILE...     one line a file and tool
//   bench_compile --whole-machine [DIR...]              every ELF file below the directories, totals and the worst ones
//
// CPU time (user and system) of one thread; of N rounds the fastest counts. MB is 10^6 bytes of the sections read.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "bench/peers.h"
#include "formats/image/elf.h"
#include "formats/image/unwind_sections.h"
#include "lookup/table/compile.h"

namespace {

using namespace windlass;
using bench::cpu_seconds;

template <typename Run>
double fastest(int rounds, Run&& run) {
  double best = 1e9;
  for (int i = 0; i < rounds; ++i) {
    const double start = cpu_seconds();
    run();
    best = std::min(best, cpu_seconds() - start);
  }
  return best;
}

void print_header() {
  fmt::print("{:<28} {:<28} {:>9} {:>10} {:>9} {:>9} {:>9}\n", "file", "what", "MB", "rows", "ms", "MB/s", "Mrows/s");
}
void print_line(const std::string& file, const char* what, double bytes, std::uint64_t rows, double seconds) {
  fmt::print("{:<28} {:<28} {:>9.2f} {:>10} {:>9.2f} {:>9.1f} {:>9.2f}\n", file, what, bytes / 1e6, rows, seconds * 1e3,
             bytes / 1e6 / seconds, static_cast<double>(rows) / 1e6 / seconds);
  std::fflush(stdout);
}

void print_size(const std::string& file, const table::UnwindTable& table) {
  const auto& stats = table.stats();
  const auto per = [&](std::uint64_t rows) { return static_cast<double>(table.bytes()) / static_cast<double>(rows); };
  fmt::print(
      "{:<28} table: {} bytes, {} raw rows, {} kept, {} pages of {}; {:.3f} bytes a raw row, {:.3f} a kept row; "
      "{} rules, {} escapes, {} overlaps, {} functions dropped; extra register {}\n",
      file, table.bytes(), stats.raw_rows, stats.rows,
      std::ranges::count_if(table.directory(), [](std::uint32_t page) { return page != 0; }), table.directory().size(),
      per(stats.raw_rows), per(stats.rows), table.rules().size(), stats.escapes, stats.overlaps,
      stats.dropped_functions, table.x_reg() == WL_NO_XREG ? std::string("none") : fmt::format("{}", table.x_reg()));
}

int bench_file(const std::string& path, int rounds, bool peers) {
  const auto mapped = MappedFile::open(path);
  if (!mapped) return fmt::print(stderr, "{}: {}\n", path, mapped.error().text()), 1;
  const auto elf = image::ElfImage::parse(mapped->bytes());
  if (!elf) return fmt::print(stderr, "{}: {}\n", path, elf.error().text()), 1;
  const std::string name = std::filesystem::path(path).filename();
  std::uint64_t errors = 0;
  auto report = [&](const Error&) { ++errors; };
  const auto found = image::find_unwind_sections(*elf, report);

  double bytes = 0;
  for (const auto& section : found.sections) bytes += static_cast<double>(section.bytes.size());
  std::uint64_t rows = 0;
  const double evaluated = fastest(rounds, [&] {
    rows = 0;
    for (const auto& section : found.sections) rows += table::evaluate_section(section, report).rows;
  });
  print_line(name, "windlass, rows", bytes, rows, evaluated);
  Expected<table::UnwindTable> table;
  const double compiled = fastest(rounds, [&] { table = table::compile(*sources::make_source(*elf), report); });
  if (!table) return fmt::print(stderr, "{}: {}\n", path, table.error().text()), 1;
  print_line(name, "windlass, rows and table", bytes, rows, compiled);
  if (peers) {
    for (const auto& peer : bench::peers()) {
      const auto result = peer.run(path);
      if (result.seconds > 0) print_line(name, peer.name, bytes, result.rows, result.seconds);
    }
  }
  print_size(name, *table);
  return 0;
}

struct Machine {
  std::uint64_t files = 0, with_rows = 0, failed = 0, errors = 0, raw_rows = 0, rows = 0, section_bytes = 0,
                table_bytes = 0, rules = 0, escapes = 0, dropped_functions = 0, dropped_rows = 0, with_x_reg = 0;
  double seconds = 0;
};

void add_file(const std::filesystem::path& path, Machine& machine) {
  const auto mapped = MappedFile::open(path);
  if (!mapped || mapped->bytes().size() < 64 ||
      std::memcmp(mapped->bytes().data(),
                  "\x7f"
                  "ELF",
                  4) != 0)
    return;
  const auto elf = image::ElfImage::parse(mapped->bytes());
  if (!elf || elf->type() == 1) return;  // another machine's; relocatable
  ++machine.files;
  std::uint64_t errors = 0;
  auto report = [&](const Error& error) {
    if (errors++ == 0) fmt::print("{}: {}\n", path.string(), error.text());
  };
  for (const auto& section : image::find_unwind_sections(*elf, report).sections)
    machine.section_bytes += section.bytes.size();
  const double start = cpu_seconds();
  const auto table = table::compile(*sources::make_source(*elf), report);
  machine.seconds += cpu_seconds() - start;
  machine.errors += errors;
  if (!table) {
    ++machine.failed;
    fmt::print("{}: no table: {}\n", path.string(), table.error().text());
    return;
  }
  const auto& stats = table->stats();
  if (stats.raw_rows == 0) return;
  ++machine.with_rows;
  machine.raw_rows += stats.raw_rows;
  machine.rows += stats.rows;
  machine.table_bytes += table->bytes();
  machine.rules += table->rules().size();
  machine.escapes += stats.escapes;
  machine.dropped_functions += stats.dropped_functions;
  machine.dropped_rows += stats.dropped_rows;
  machine.with_x_reg += table->x_reg() != WL_NO_XREG ? 1 : 0;
}

int whole_machine(const std::vector<std::string>& directories) {
  Machine machine;
  std::set<std::pair<std::uintmax_t, std::string>> seen;
  for (const auto& directory : directories) {
    const auto options = std::filesystem::directory_options::skip_permission_denied;
    std::error_code error;
    for (auto it = std::filesystem::recursive_directory_iterator(directory, options, error);
         it != std::filesystem::recursive_directory_iterator(); it.increment(error)) {
      if (error || it->is_symlink(error) || !it->is_regular_file(error)) continue;
      const auto real = std::filesystem::canonical(it->path(), error);
      if (error || !seen.emplace(0, real.string()).second) continue;
      add_file(it->path(), machine);
    }
  }
  fmt::print("{} ELF files, {} with rows, {} without a table, {} malformed records\n", machine.files, machine.with_rows,
             machine.failed, machine.errors);
  fmt::print(
      "{} raw rows of {} bytes; {} rows kept, {} rules, {} escapes; {} functions and {} rows dropped; "
      "{} files with an extra register\n",
      machine.raw_rows, machine.section_bytes, machine.rows, machine.rules, machine.escapes, machine.dropped_functions,
      machine.dropped_rows, machine.with_x_reg);
  fmt::print("{} bytes of tables: {:.3f} a raw row, {:.3f} a kept row; {:.2f} s, {:.1f} MB/s, {:.2f} Mrows/s\n",
             machine.table_bytes, static_cast<double>(machine.table_bytes) / static_cast<double>(machine.raw_rows),
             static_cast<double>(machine.table_bytes) / static_cast<double>(machine.rows), machine.seconds,
             static_cast<double>(machine.section_bytes) / 1e6 / machine.seconds,
             static_cast<double>(machine.raw_rows) / 1e6 / machine.seconds);
  return machine.failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = 5;
  bool peers = true;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg == "--whole-machine") {
      std::vector<std::string> directories(argv + i + 1, argv + argc);
      if (directories.empty()) directories = {"/usr", "/opt"};
      return whole_machine(directories);
    }
    if (arg == "--rounds" && i + 1 < argc)
      rounds = std::max(1, std::atoi(argv[++i]));
    else if (arg == "--no-peers")
      peers = false;
    else
      files.emplace_back(arg);
  }
  if (files.empty()) {
    for (const char* usual : {"/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1", "/usr/lib/chromium/chromium",
                              "/usr/bin/node", "/usr/lib/gcc/x86_64-linux-gnu/12/cc1plus"})
      if (std::filesystem::exists(usual)) files.emplace_back(usual);
  }
  print_header();
  int status = 0;
  for (const auto& file : files) status |= bench_file(file, rounds, peers);
  return status;
}
