#include "symbols/symbolize.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_set>

#include "symbols/names_ahead.h"
#include "symbols/parallel.h"
#include "symbols/symbol_result.h"

namespace windlass::symbols {

namespace {

// The distinct addresses of one module, and the locations that have each.
struct Job {
  std::uint32_t module = profile::kNone;
  std::vector<std::uint64_t> addresses;        // ascending
  std::vector<std::uint32_t> locations;        // ascending by address
  std::unique_ptr<LiveNames::KnownFile> file;  // what is known of the module
  std::optional<ModuleNames> names;            // made where the job stays
  std::size_t ahead = 0;                       // addresses that were known before
};

constexpr std::uint64_t kKernelHalf = std::uint64_t{1} << 63;

// The identity in a CodeView record; build ids of ELF files are in lower case.
bool is_windows(const profile::Module& module) {
  constexpr std::size_t kGuid = 32;
  return module.build_id.size() > kGuid && module.build_id.find_first_not_of("0123456789ABCDEF") >= kGuid;
}

bool has_line(std::span<const profile::Line> lines) {
  return std::ranges::any_of(lines, [](const profile::Line& line) { return line.line != 0; });
}

// Modules that are asked for.
std::vector<bool> wanted_modules(const profile::Profile& profile, const SymbolizeOptions& options) {
  std::vector<bool> wanted;
  for (const profile::Module& module : profile.modules) {
    const bool late = !module.is_kernel && module.pid == 0 && !module.build_id.empty() &&
                      options.symbol_files != nullptr && options.symbol_files->has(module.build_id);
    wanted.push_back((!options.only_windows || is_windows(module)) && (!options.late || late));
  }
  return wanted;
}

std::vector<Job> jobs_of(const profile::Profile& profile, const SymbolizeOptions& options) {
  const std::vector<bool> wanted = wanted_modules(profile, options);
  std::map<std::uint32_t, Job> by_module;
  for (std::uint32_t i = 0; i < profile.locations.size(); ++i) {
    const auto& location = profile.locations[i];
    const bool has_module = location.module < wanted.size();
    if (has_module ? !wanted[location.module] : options.only_windows || options.late) continue;
    const bool is_nowhere = !has_module && location.address < kKernelHalf;
    const bool unnamed = location.lines.empty() || (options.late && !has_line(location.lines));
    if ((unnamed || location.interpreted) && !is_nowhere) by_module[location.module].locations.push_back(i);
  }
  std::vector<Job> jobs;
  for (auto& [module, job] : by_module) {
    job.module = module;
    std::sort(job.locations.begin(), job.locations.end(), [&](std::uint32_t a, std::uint32_t b) {
      return profile.locations[a].address < profile.locations[b].address;
    });
    for (const auto location : job.locations) {
      const auto address = profile.locations[location].address;
      if (job.addresses.empty() || job.addresses.back() != address) job.addresses.push_back(address);
    }
    jobs.push_back(std::move(job));
  }
  // The long ones first, so that none is left to run alone at the end.
  std::stable_sort(jobs.begin(), jobs.end(),
                   [](const Job& a, const Job& b) { return a.addresses.size() > b.addresses.size(); });
  return jobs;
}

void run(const profile::Profile& profile, const SymbolizeOptions& options, Job& job) {
  LiveNames::KnownFile& file = *job.file;
  job.names.emplace(job.addresses.size(), file.functions);
  try {
    const bool is_kernel = job.module >= profile.modules.size();
    const std::vector<std::uint64_t> unknown = file.unknown(job.addresses);
    job.ahead = job.addresses.size() - unknown.size();
    file.learn(is_kernel ? profile::Module{.path = "[kernel]", .is_kernel = true} : profile.modules[job.module],
               unknown, options);
    file.symbols.reset();
    for (std::size_t i = 0; i < job.addresses.size(); ++i) {
      LiveNames::KnownFile::Named& named = file.addresses.at(job.addresses[i]);
      job.names->lines()[i] = std::move(named.lines);
      job.names->begins[i] = named.begin;
    }
    job.names->opened = file.opened;
    job.names->note = file.note;
  } catch (const std::exception& problem) {
    job.names.emplace(job.addresses.size(), file.functions);
  }
}

// Functions of different modules may be the same (inline functions of headers): one entry in the Profile.
class FunctionMerger {
 public:
  explicit FunctionMerger(profile::Profile& profile) : profile_(profile) {
    for (std::uint32_t i = 0; i < profile.functions.size(); ++i) numbers_.insert(i);
  }
  std::uint32_t add(profile::Function& function) {
    const auto number = static_cast<std::uint32_t>(profile_.functions.size());
    profile_.functions.push_back(std::move(function));
    const auto [known, is_new] = numbers_.insert(number);
    if (!is_new) profile_.functions.pop_back();
    return *known;
  }

 private:
  struct Hash {
    const profile::Profile& profile;
    std::size_t operator()(std::uint32_t number) const {
      const profile::Function& function = profile.functions[number];
      const std::hash<std::string_view> hash;
      return (hash(function.system_name) * 31 + hash(function.file)) * 31 + function.start_line;
    }
  };
  struct Same {
    const profile::Profile& profile;
    bool operator()(std::uint32_t a, std::uint32_t b) const {
      const profile::Function &one = profile.functions[a], &other = profile.functions[b];
      return one.start_line == other.start_line && one.system_name == other.system_name && one.file == other.file &&
             one.name == other.name;
    }
  };
  profile::Profile& profile_;
  std::unordered_set<std::uint32_t, Hash, Same> numbers_{64, Hash{profile_}, Same{profile_}};
};

// False: the location keeps the names that it has.
bool are_better(const profile::Profile& profile, const profile::Location& location,
                std::span<const profile::Line> lines) {
  if (lines.empty() || location.lines.empty()) return true;
  if (!location.interpreted) return has_line(lines);
  const auto name = [&](const profile::Line& line) -> const std::string& {
    static const std::string kUnknown;
    return line.function < profile.functions.size() ? profile.functions[line.function].system_name : kUnknown;
  };
  return name(location.lines.back()) != name(lines.back());  // else the evaluator has its name already
}

void merge(profile::Profile& profile, Job& job, bool late, FunctionMerger& functions, SymbolizeStats& stats) {
  std::vector<std::uint32_t> global;
  for (auto& function : job.file->functions.all()) global.push_back(functions.add(function));
  for (auto& lines : job.names->lines()) {
    for (auto& line : lines) line.function = global[line.function];
    stats.named += !lines.empty();
    stats.with_lines +=
        std::any_of(lines.begin(), lines.end(), [](const profile::Line& line) { return line.line != 0; });
  }
  std::size_t index = 0;
  for (const auto location : job.locations) {
    while (job.addresses[index] != profile.locations[location].address) ++index;
    profile::Location& at = profile.locations[location];
    const auto& lines = job.names->lines()[index];
    if (late && !are_better(profile, at, lines)) continue;
    if (late && !lines.empty() && !at.interpreted) at.lines.clear();
    add_native_lines(at, lines);
    if (job.names->begins[index] != 0) profile.locations[location].function_begin = job.names->begins[index];
  }
  stats.addresses += job.addresses.size();
  stats.ahead += job.ahead;
  stats.opened += job.names->opened;
  if (!job.names->note.empty()) stats.notes.push_back(job.names->note);
}

}  // namespace

SymbolizeStats symbolize(profile::Profile& profile, const SymbolizeOptions& options) noexcept {
  SymbolizeStats stats;
  const auto start = std::chrono::steady_clock::now();
  try {
    elf_version(EV_CURRENT);
    demangle_generated(profile);
    auto jobs = jobs_of(profile, options);
    stats.modules = jobs.size();
    for (Job& job : jobs) {
      if (options.ahead != nullptr && job.module < profile.modules.size())
        job.file = options.ahead->take(profile.modules[job.module]);
      if (job.file == nullptr) job.file = std::make_unique<LiveNames::KnownFile>();
    }
    for_each_in_parallel(jobs.size(), options.threads, [&](std::size_t i) { run(profile, options, jobs[i]); });
    FunctionMerger functions(profile);
    for (auto& job : jobs) merge(profile, job, options.late, functions, stats);
  } catch (const std::exception&) {
    stats.notes.clear();  // out of memory: what is named stays named
  }
  stats.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return stats;
}

}  // namespace windlass::symbols
