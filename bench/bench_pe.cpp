// What a frame of Windows code costs, and what the rows of a whole image.
//
//   bench_pe [--rounds N] [--few | --calls | --rows] [--windlass COMMAND] FILE...
//
// In process: nanoseconds of one call, over few functions and over all of them in random order, for addresses in
// prologues, bodies and epilogues, as they are met again and again and (`anew`) without what is kept of them; and the
// rows of the whole file. Then whole processes on the same file, `windlass` beside llvm-readobj and objdump, in turns.
// CPU time of one thread; of N rounds the fastest counts.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "bench/peers.h"
#include "formats/winarm64/lower.h"
#include "formats/winx64/exec.h"
#include "formats/winx64/lower.h"

namespace {

using namespace windlass;

// Every address is readable: what stands there is part of a small buffer.
struct Stack {
  static constexpr std::size_t kWords = 1 << 12;
  std::array<std::uint64_t, kWords + 64> words{};
  bool read(std::uint64_t address, void* to, std::size_t size) const {
    if (size > 64 * 8) return false;
    std::memcpy(to, words.data() + (address / 8 & (kWords - 1)), size);
    return true;
  }
};

struct Address {
  std::size_t function = 0;  // position in the stored table
  std::uint32_t rva = 0;
};
enum Place : std::size_t { kPrologue, kBody, kEpilogue, kPlaces };
constexpr const char* kPlaceNames[kPlaces] = {"prologue", "body", "epilogue"};

// Both formats by the same names.
class X64 {
 public:
  explicit X64(const image::PeImage& image) : functions_(image), evaluator_(functions_) {
    for (unsigned i = 0; i < 16; ++i) frame_.set(i, 0x10000 + 0x1000 * i);
  }
  [[nodiscard]] std::size_t size() const { return functions_.size(); }
  template <typename Callback>
  void rows(std::size_t index, Callback&& callback) {
    evaluator_.for_each_row(functions_.stored(index), callback, [](const Error&) {});
  }
  [[nodiscard]] Place place(std::uint32_t rva) {
    (void)exec(rva);
    return unwound_.position == winx64::Position::kPrologue   ? kPrologue
           : unwound_.position == winx64::Position::kEpilogue ? kEpilogue
                                                              : kBody;
  }
  bool exec(std::uint32_t rva) {
    frame_.set_pc(CodeAddress::instruction(rva));
    return winx64::virtual_unwind(functions_, 0, stack_, frame_, unwound_, &saved_).has_value();
  }
  // As exec() of what is met for the first time: nothing is kept.
  bool exec_anew(std::uint32_t rva) {
    frame_.set_pc(CodeAddress::instruction(rva));
    return winx64::unwind_by_codes(functions_, 0, stack_, frame_, unwound_, &saved_).has_value();
  }
  bool row_at(const Address& at) {
    return winx64::row_at(functions_, functions_.stored(at.function), at.rva, row_).has_value();
  }

 private:
  winx64::Functions functions_;
  winx64::RowEvaluator evaluator_;
  Stack stack_;
  Registers frame_{Architecture::kX86_64};
  winx64::Unwound unwound_;
  winx64::SavedAddresses saved_;
  FrameRow row_;
};

class Arm64 {
 public:
  explicit Arm64(const image::PeImage& image) : functions_(image), evaluator_(functions_) {
    evaluator_.keep_rows();
    for (unsigned i = 0; i < 32; ++i) frame_.set(i, 0x10000 + 0x1000 * i);
    for (unsigned i = 72; i < 80; ++i) frame_.set(i, i);
  }
  [[nodiscard]] std::size_t size() const { return functions_.size(); }
  template <typename Callback>
  void rows(std::size_t index, Callback&& callback) {
    (void)evaluator_.for_each_row(functions_.stored(index), callback, [](const Error&) {});
  }
  [[nodiscard]] Place place(std::uint32_t rva) {
    (void)exec(rva);
    return place_ == winarm64::Place::kPrologue ? kPrologue : place_ == winarm64::Place::kEpilogue ? kEpilogue : kBody;
  }
  bool exec(std::uint32_t rva) {
    frame_.set_pc(CodeAddress::instruction(rva));
    const auto unwound = winarm64::virtual_unwind(functions_, {}, stack_, frame_, caller_, &saved_);
    if (unwound) place_ = unwound->place;
    return unwound.has_value();
  }
  bool exec_anew(std::uint32_t rva) { return exec(rva); }
  bool row_at(const Address& at) { return evaluator_.row_at(functions_.stored(at.function), at.rva, row_).has_value(); }

 private:
  winarm64::Functions functions_;
  winarm64::RowEvaluator evaluator_;
  Stack stack_;
  Registers frame_{Architecture::kAArch64}, caller_{Architecture::kAArch64};
  SavedLocations saved_;
  winarm64::Place place_ = winarm64::Place::kLeaf;
  FrameRow row_;
};

struct Options {
  int rounds = 5;
  bool calls = true;
  bool rows = true;
  bool few = false;      // calls over few functions only
  std::string windlass;  // empty: no processes
};

template <typename Run>
double fastest(int rounds, Run&& run) {
  double best = 1e9;
  for (int i = 0; i < rounds; ++i) {
    const double start = bench::cpu_seconds();
    run();
    best = std::min(best, bench::cpu_seconds() - start);
  }
  return best;
}

// `functions` of them, evenly spread; each contributes the beginnings of its rows.
template <typename Format>
std::array<std::vector<Address>, kPlaces> addresses(Format& format, std::size_t functions) {
  std::array<std::vector<Address>, kPlaces> found;
  for (std::size_t i = 0; i < functions; ++i) {
    const std::size_t function = i * (format.size() / functions);
    format.rows(function, [&](const FrameRow& row) {
      const auto rva = static_cast<std::uint32_t>(row.begin);
      found[format.place(rva)].push_back({function, rva});
    });
  }
  for (auto& list : found) std::shuffle(list.begin(), list.end(), std::minstd_rand(1));
  return found;
}

template <typename Format>
void bench_calls(Format& format, std::size_t functions, int rounds) {
  const auto lists = addresses(format, functions);
  for (std::size_t place = 0; place < kPlaces; ++place) {
    const auto& list = lists[place];
    if (list.empty()) continue;
    const std::size_t repeats = std::max<std::size_t>(1, 200'000 / list.size());
    std::size_t failed = 0;
    const auto per_call = [&](auto&& call) {
      return 1e9 / static_cast<double>(repeats * list.size()) * fastest(rounds, [&] {
               for (std::size_t i = 0; i < repeats; ++i)
                 for (const Address& at : list) failed += call(at) ? 0 : 1;
             });
    };
    const double exec = per_call([&](const Address& at) { return format.exec(at.rva); });
    const double anew = per_call([&](const Address& at) { return format.exec_anew(at.rva); });
    const double row = per_call([&](const Address& at) { return format.row_at(at); });
    fmt::print("{:>6} functions, {:<9} {:>7} addresses   exec {:>7.1f} ns, anew {:>7.1f} ns   row_at {:>7.1f} ns{}\n",
               functions, kPlaceNames[place], list.size(), exec, anew, row, failed != 0 ? "   (some fail)" : "");
  }
}

template <typename Format>
void bench_format(const image::PeImage& image, const Options& options) {
  Format format(image);
  const int rounds = options.rounds;
  if (options.calls) {
    bench_calls(format, std::min<std::size_t>(64, format.size()), rounds);
    if (!options.few) bench_calls(format, format.size(), rounds);
  }
  if (!options.rows) return;
  std::uint64_t rows = 0;
  const double seconds = fastest(rounds, [&] {
    rows = 0;
    for (std::size_t i = 0; i < format.size(); ++i) format.rows(i, [&](const FrameRow&) { ++rows; });
  });
  fmt::print("rows of all {} functions: {} rows in {:.2f} ms, {:.1f} ns a function, {:.1f} ns a row\n", format.size(),
             rows, seconds * 1e3, seconds * 1e9 / static_cast<double>(format.size()),
             seconds * 1e9 / static_cast<double>(rows));
}

void bench_processes(const std::string& windlass, const std::string& file, int rounds) {
  const std::vector<std::vector<const char*>> commands = {
      {"llvm-readobj-22", "--unwind", file.c_str()}, {"objdump", "-p", file.c_str()},
      {windlass.c_str(), "dump", file.c_str()},      {windlass.c_str(), "dump", "--json", file.c_str()},
      {windlass.c_str(), "rows", file.c_str()},      {windlass.c_str(), "rows", "--json", file.c_str()},
  };
  std::vector<bench::CommandTime> best(commands.size(), {1e9, 1e9});
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < commands.size(); ++i) {
      const bench::CommandTime time = bench::time_command(commands[i]);
      best[i].user = std::min(best[i].user, time.user);
      best[i].system = std::min(best[i].system, time.system);
    }
  }
  for (std::size_t i = 0; i < commands.size(); ++i) {
    std::string line = std::filesystem::path(commands[i][0]).filename();
    for (std::size_t n = 1; n + 1 < commands[i].size(); ++n) line += std::string(" ") + commands[i][n];
    if (best[i].user < 0) {
      fmt::print("{:<28} not here\n", line);
      continue;
    }
    fmt::print("{:<28} user {:>7.1f} ms, system {:>6.1f} ms", line, best[i].user * 1e3, best[i].system * 1e3);
    if (i != 0 && best[0].user > 0) fmt::print("   {:.2f} of llvm-readobj's user time", best[i].user / best[0].user);
    fmt::print("\n");
  }
}

int bench_file(const std::string& path, const Options& options) {
  const auto file = MappedFile::open(path);
  if (!file) return fmt::print(stderr, "{}: {}\n", path, file.error().text()), 1;
  const auto image = image::PeImage::parse(file->bytes());
  if (!image) return fmt::print(stderr, "{}: {}\n", path, image.error().text()), 1;
  fmt::print("{} ({}, {} bytes)\n", std::filesystem::path(path).filename().string(),
             image::machine_name(image->machine()), file->bytes().size());
  if (image->is_x64_format())
    bench_format<X64>(*image, options);
  else
    bench_format<Arm64>(*image, options);
  if (!options.windlass.empty()) bench_processes(options.windlass, path, options.rounds);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  int status = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg == "--rounds" && i + 1 < argc)
      options.rounds = std::max(1, std::atoi(argv[++i]));
    else if (arg == "--windlass" && i + 1 < argc)
      options.windlass = argv[++i];
    else if (arg == "--calls")
      options.rows = false;
    else if (arg == "--few")
      options.few = true, options.rows = false;
    else if (arg == "--rows")
      options.calls = false;
    else
      status |= bench_file(std::string(arg), options);
  }
  return status;
}
