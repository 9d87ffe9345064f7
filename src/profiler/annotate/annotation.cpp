#include "profiler/annotate/annotation.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "profiler/annotate/function_code.h"
#include "profiler/export/frames.h"
#include "profiler/export/shorten_name.h"

namespace windlass::annotate {

namespace {

using profile::kNone;

// Adds a sample's weight once to each of the sums that it meets. The sums stay where they are.
class OnceASample {
 public:
  void next() { ++sample_; }
  void add(std::uint64_t& sum, std::uint64_t weight) {
    if (std::exchange(last_[&sum], sample_) != sample_) sum += weight;
  }

 private:
  std::uint64_t sample_ = 0;
  std::unordered_map<const std::uint64_t*, std::uint64_t> last_;
};

// Where the function stands among the lines of a location.
struct Site {
  std::uint32_t level = kNone;  // 0: innermost; kNone: nowhere
  [[nodiscard]] bool here() const { return level != kNone; }
};

// Finds the locations of one function of a profile: by its name, or as exporter::unnamed_frame() names it.
class Wanted {
 public:
  Wanted(const profile::Profile& profile, const std::string& name)
      : profile_(profile), name_(name), functions_(profile.functions.size()) {
    for (std::size_t i = 0; i < functions_.size(); ++i) functions_[i] = profile.functions[i].name == name;
  }
  [[nodiscard]] Site site_of(const profile::Location& location) const {
    bool has_name = false;
    for (std::uint32_t level = 0; level < location.lines.size(); ++level) {
      const std::uint32_t function = location.lines[level].function;
      if (function >= functions_.size()) continue;
      has_name = true;
      if (functions_[function]) return {level};
    }
    if (has_name || exporter::unnamed_frame(profile_, location) != name_) return {};
    return {0};
  }

 private:
  const profile::Profile& profile_;
  const std::string& name_;
  std::vector<bool> functions_;
};

// Null: the location has no name there.
const profile::Line* line_at(const profile::Profile& profile, const profile::Location& location, std::uint32_t level) {
  const bool is_known = level < location.lines.size() && location.lines[level].function < profile.functions.size();
  return is_known ? &location.lines[level] : nullptr;
}

class Annotator {
 public:
  Annotator(const profile::Profile& profile, profile::ValueType type, const std::string& function,
            const AnnotateOptions& options)
      : profile_(profile), type_(type), options_(options) {
    result_.function = function;
    const Wanted wanted(profile, function);
    for (const profile::Location& location : profile.locations) sites_.push_back(wanted.site_of(location));
    at_.resize(profile.locations.size());
  }

  Annotation run() {
    find_code();
    for (const profile::Sample& sample : profile_.samples) add(sample);
    for (auto& [path, lines] : files_) add_file(path, lines);
    std::ranges::stable_sort(result_.files, std::ranges::greater(), [](const SourceFile& file) {
      std::uint64_t sum = 0;
      for (const SourceLine& line : file.lines) sum += line.weight.total;
      return sum;
    });
    add_code();
    return std::move(result_);
  }

 private:
  struct Line {
    Weight weight;
    std::map<std::string, std::uint64_t> inlined;
  };

  void add(const profile::Sample& sample) {
    const std::uint64_t weight = weight_of(profile_, sample, type_);
    if (weight == 0) return;
    result_.all += weight;
    once_.next();
    for (std::size_t i = 0; i < sample.locations.size(); ++i) {
      const std::uint32_t at = sample.locations[i];
      if (!sites_[at].here()) continue;
      const bool ends_here = i == 0;
      once_.add(result_.weight.total, weight);
      if (ends_here && sites_[at].level == 0) result_.weight.self += weight;
      if (ends_here) at_[at].self += weight;
      once_.add(at_[at].total, weight);
      if (ends_here) code_[at]->self += weight;
      once_.add(code_[at]->total, weight);
      add_line(profile_.locations[at], sites_[at].level, ends_here, weight);
    }
  }

  void add_line(const profile::Location& location, std::uint32_t level, bool ends_here, std::uint64_t weight) {
    const profile::Line* const of = line_at(profile_, location, level);
    if (of == nullptr) return;
    Line& line = files_[profile_.functions[of->function].file][of->line];
    if (ends_here && level == 0) line.weight.self += weight;
    once_.add(line.weight.total, weight);
    if (level == 0) return;
    const std::uint32_t callee = location.lines[level - 1].function;
    if (callee < profile_.functions.size()) once_.add(line.inlined[profile_.functions[callee].name], weight);
  }

  void add_file(const std::string& path, const std::map<std::uint32_t, Line>& lines) {
    SourceFile file{.path = path, .lines = {}};
    for (const auto& [number, line] : lines) {
      SourceLine& to = file.lines.emplace_back(SourceLine{.line = number, .weight = line.weight});
      to.inlined.assign(line.inlined.begin(), line.inlined.end());
      std::ranges::stable_sort(to.inlined, std::ranges::greater(), &std::pair<std::string, std::uint64_t>::second);
    }
    result_.files.push_back(std::move(file));
  }

  // ---- machine code ----

  // What of the machine code at an address samples have met.
  struct Part {
    FunctionCode code;
    Weight weight;
    std::vector<std::uint32_t> locations;
  };

  // To which part each location that has the function belongs.
  void find_code() {
    code_.resize(sites_.size(), &result_.without_code);
    for (std::uint32_t i = 0; i < sites_.size(); ++i) {
      const profile::Location& location = profile_.locations[i];
      const auto code = !sites_[i].here() || location.interpreted ? std::nullopt : code_at(location);
      if (!code) continue;
      Part& part = parts_.try_emplace({location.module, code->begin}, Part{*code, {}, {}}).first->second;
      part.locations.push_back(i);
      code_[i] = &part.weight;
    }
  }

  void add_code() {
    std::vector<std::pair<std::uint32_t, const Part*>> order;
    for (auto& [key, part] : parts_) {
      if (part.weight.total == 0) continue;
      std::ranges::sort(part.locations, {}, [&](std::uint32_t at) { return profile_.locations[at].address; });
      order.emplace_back(key.first, &part);
    }
    std::ranges::stable_sort(order, std::ranges::greater(), [](const auto& part) { return part.second->weight.total; });
    for (const auto& [module, part] : order) {
      if (result_.parts.size() < options_.parts)
        add_part(module, *part);
      else
        ++result_.more_parts;
    }
  }

  std::optional<FunctionCode> code_at(const profile::Location& location) {
    if (location.module >= profile_.modules.size()) return std::nullopt;
    const profile::Module& module = profile_.modules[location.module];
    if (module.is_kernel || module.pid != 0) return std::nullopt;
    const auto [entry, is_new] = files_of_code_.try_emplace(location.module);
    if (is_new) entry->second = CodeFile::open(module);
    return entry->second ? entry->second->function_at(location.address) : std::nullopt;
  }

  void add_part(std::uint32_t module, const Part& part) {
    const std::vector<Instruction> instructions = disassemble(part.code.architecture, part.code.begin, part.code.bytes);
    profile::Profile named;
    named.modules.push_back(profile_.modules[module]);
    named.modules.front().open_path = files_of_code_[module]->path();  // a module without a build id has no other proof
    for (const Instruction& instruction : instructions)
      named.locations.push_back({.module = 0, .address = instruction.address});
    (void)symbols::symbolize(named, options_.symbols);
    const Wanted wanted(named, result_.function);
    CodePart to{.module = module,
                .function = name_of(profile_.locations[part.locations.front()]),
                .weight = part.weight,
                .architecture = part.code.architecture,
                .lines = {}};
    auto sampled = part.locations.begin();  // ascending by address
    for (std::size_t i = 0; i < instructions.size(); ++i) {
      const profile::Location& location = named.locations[i];
      CodeLine line{.instruction = instructions[i], .bytes = {}};
      const std::uint64_t end = instructions[i].address + instructions[i].size;
      for (; sampled != part.locations.end() && profile_.locations[*sampled].address < end; ++sampled) {
        line.weight.self += at_[*sampled].self;
        line.weight.total += at_[*sampled].total;
      }
      const Site site = wanted.site_of(location);
      if (!site.here() && line.weight.total == 0 && !is_all_of(location)) continue;
      if (site.here()) add_origin(named, location, site.level, line);
      const std::byte* const code = part.code.bytes.data() + (instructions[i].address - part.code.begin);
      for (std::uint32_t byte = 0; byte < instructions[i].size; ++byte)
        line.bytes += fmt::format("{:02x}", std::to_integer<unsigned>(code[byte]));
      to.lines.push_back(std::move(line));
    }
    result_.parts.push_back(std::move(to));
  }

  // Of the function whose code has the location, not of one that is inlined there.
  [[nodiscard]] std::string name_of(const profile::Location& location) const {
    const auto outermost = static_cast<std::uint32_t>(std::max<std::size_t>(1, location.lines.size()) - 1);
    const profile::Line* const line = line_at(profile_, location, outermost);
    return line != nullptr ? profile_.functions[line->function].name : exporter::unnamed_frame(profile_, location);
  }

  // Without names, all of the code is shown.
  static bool is_all_of(const profile::Location& location) { return location.lines.empty(); }

  static void add_origin(const profile::Profile& named, const profile::Location& location, std::uint32_t level,
                         CodeLine& to) {
    const profile::Line* const line = line_at(named, location, level);
    if (line == nullptr) return;
    to.file = named.functions[line->function].file;
    to.line = line->line;
    for (std::uint32_t i = level; i-- > 0;) to.inlined.push_back(named.functions[location.lines[i].function].name);
  }

  const profile::Profile& profile_;
  const profile::ValueType type_;
  const AnnotateOptions& options_;
  std::vector<Site> sites_;                                         // of each location
  std::vector<Weight> at_;                                          // of each location that has the function
  std::map<std::uint32_t, std::optional<CodeFile>> files_of_code_;  // by module; they have the bytes of `parts_`
  std::map<std::pair<std::uint32_t, std::uint64_t>, Part> parts_;   // by module and begin
  std::vector<Weight*> code_;                                       // of each location: its part's, or without_code
  std::map<std::string, std::map<std::uint32_t, Line>> files_;
  OnceASample once_;
  Annotation result_;
};

}  // namespace

std::vector<std::pair<std::string, Weight>> functions_named(const profile::Profile& profile, profile::ValueType type,
                                                            std::string_view text) {
  // By how well the name fits; equal names are one function.
  std::map<std::string, std::uint32_t> fitting[3];
  const auto fit = [&](std::string_view name) {
    if (name == text) return 0;
    if (name.substr(0, exporter::length_without_parameters(name)) == text) return 1;
    return name.find(text) != name.npos ? 2 : 3;
  };
  const exporter::Frames frames(profile);
  for (std::uint32_t i = 0; i < frames.size(); ++i)
    if (const int how = fit(frames[i].name); how < 3) fitting[how].try_emplace(frames[i].name, 0);
  for (auto& names : fitting) {
    if (names.empty()) continue;
    std::vector<std::pair<std::string, Weight>> found;
    for (auto& [name, index] : names) {
      index = static_cast<std::uint32_t>(found.size());
      found.emplace_back(name, Weight{});
    }
    std::vector<std::uint32_t> of_frame(frames.size(), kNone);
    for (std::uint32_t i = 0; i < of_frame.size(); ++i)
      if (const auto entry = names.find(frames[i].name); entry != names.end()) of_frame[i] = entry->second;
    OnceASample once;
    for (const profile::Sample& sample : profile.samples) {
      const std::uint64_t weight = weight_of(profile, sample, type);
      once.next();
      for (std::size_t i = 0; i < sample.locations.size(); ++i)
        for (std::size_t level = 0; const std::uint32_t frame : frames.of_location(sample.locations[i])) {
          const bool ends_here = i == 0 && level++ == 0;
          if (of_frame[frame] == kNone) continue;
          Weight& to = found[of_frame[frame]].second;
          if (ends_here) to.self += weight;
          once.add(to.total, weight);
        }
    }
    std::ranges::stable_sort(found, std::ranges::greater(), [](const auto& one) { return one.second.total; });
    std::erase_if(found, [](const auto& one) { return one.second.total == 0; });
    if (!found.empty()) return found;
  }
  return {};
}

Annotation annotate(const profile::Profile& profile, profile::ValueType type, const std::string& function,
                    const AnnotateOptions& options) {
  return Annotator(profile, type, function, options).run();
}

}  // namespace windlass::annotate
