// What a PDB file costs: opening, and names of addresses.  bench_pdb FILE RVA...
#include <chrono>
#include <cstdint>
#include <cstdlib>

#include <fmt/format.h>

#include "base/mapped_file.h"
#include "formats/pdb/pdb.h"

int main(int count, char** arguments) {
  using namespace windlass;
  using Clock = std::chrono::steady_clock;
  if (count < 3) {
    fmt::print(stderr, "usage: bench_pdb FILE RVA...\n");
    return 2;
  }
  auto begin = Clock::now();
  const auto lap = [&] {
    const auto now = Clock::now();
    const double milliseconds = std::chrono::duration<double, std::milli>(now - begin).count();
    begin = now;
    return milliseconds;
  };
  const auto file = MappedFile::open(arguments[1]);
  auto pdb = file ? pdb::PdbFile::parse(file->bytes()) : Failure(file.error());
  if (!pdb) {
    fmt::print(stderr, "bench_pdb: {}: {}\n", arguments[1], pdb.error().text());
    return 1;
  }
  fmt::print("opened {:.2f} ms\n", lap());
  for (int i = 2; i < count; ++i) {
    const auto rva = static_cast<std::uint32_t>(std::strtoul(arguments[i], nullptr, 0));
    const auto procedure = pdb->procedure_at(rva, true);
    const auto symbol = procedure ? std::nullopt : pdb->public_before(rva, false);
    const double milliseconds = lap();
    fmt::print("{:#x} {:.2f} ms {}\n", rva, milliseconds,
               procedure ? procedure->frames.back().function
               : symbol  ? symbol->name
                         : "?");
  }
}
