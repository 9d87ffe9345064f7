#include "windlass/symbols.h"

#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>

#include "symbols/debug_lines.h"
#include "symbols/frame_arguments.h"
#include "symbols/known_modules.h"
#include "symbols/parallel.h"
#include "symbols/subject.h"
#include "symbols/symbolize.h"
#include "walk/inside.h"
#include "windlass/backtrace.h"
#include "windlass/function_ref.h"

namespace windlass {

namespace {

symbols::SymbolizeOptions how(const SymbolizerOptions& options) {
  symbols::SymbolizeOptions to;
  to.threads = options.threads;
  to.lines = options.lines;
  to.debug_directory = options.debug_directory;
  to.pdb_files = options.pdb_files;
  to.symbol_path = options.symbol_path;
  return to;
}

// The addresses of a call that lie in one module.
struct Job {
  struct Wanted {
    std::uint64_t number;  // as the module numbers it
    std::size_t result;    // which of the call's
  };
  symbols::KnownModule* module = nullptr;
  std::vector<Wanted> wanted;
  std::string note;
};

void run(Job& job, std::span<NamedAddress> results) {
  std::ranges::sort(job.wanted, {}, &Job::Wanted::number);
  std::vector<std::uint64_t> numbers;
  for (const auto& wanted : job.wanted) numbers.push_back(wanted.number);
  const std::lock_guard hold(job.module->lock);
  symbols::FunctionTable& functions = job.module->functions;
  symbols::ModuleNames names(numbers.size(), functions);
  job.module->symbols.name(numbers, names);
  job.note = names.note;
  for (std::size_t i = 0; i < job.wanted.size(); ++i) {
    NamedAddress& to = results[job.wanted[i].result];
    // Symbols and offsets may be numbered differently, by a constant.
    if (names.begins[i] != 0) to.function_begin = names.begins[i] + (to.offset - numbers[i]);
    std::vector<SourceFrame> native;
    for (const profile::Line& line : names.lines()[i]) {
      const profile::Function& function = functions[line.function];
      native.push_back({function.name, function.system_name, function.file, line.line, true});
    }
    if (native.empty()) continue;
    native.back().inlined = false;
    // The evaluator calls the interpreted functions, and they call the functions inlined in the evaluator.
    to.frames.insert(to.frames.begin(), native.begin(), native.end() - 1);
    to.frames.push_back(native.back());
  }
}

}  // namespace

class Symbolizer::Implementation {
 public:
  explicit Implementation(const SymbolizerOptions& options) : options_(how(options)), modules_(options_) {
    elf_version(EV_CURRENT);
  }

  [[nodiscard]] symbols::KnownModules& modules() { return modules_; }
  void set_subject(std::unique_ptr<symbols::Subject> subject) { subject_ = std::move(subject); }

  std::vector<NamedAddress> name(std::span<const CodeAddress> pcs, std::span<const std::uint64_t> functions) {
    std::vector<NamedAddress> results(pcs.size());
    std::vector<std::size_t> order(pcs.size());
    for (std::size_t i = 0; i < pcs.size(); ++i) {
      results[i].lookup = pcs[i].lookup();
      order[i] = i;
    }
    const auto function = [&](std::size_t i) { return i < functions.size() ? functions[i] : 0; };
    std::ranges::sort(order, {}, [&](std::size_t i) { return std::pair(results[i].lookup, function(i)); });
    const auto is_repeated = [&](std::size_t i) {
      return i > 0 && results[order[i]].lookup == results[order[i - 1]].lookup &&
             function(order[i]) == function(order[i - 1]);
    };
    std::vector<Job> jobs = locate(order, results, function, is_repeated);
    // Names of a few modules are there before another thread is. Line tables take longer.
    constexpr std::size_t kFewModules = 3;
    const unsigned threads = !options_.lines && jobs.size() <= kFewModules ? 1 : options_.threads;
    symbols::for_each_in_parallel(jobs.size(), threads, [&](std::size_t i) {
      try {
        run(jobs[i], results);
      } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): no memory; what has no name yet stays without
      }
    });
    for (std::size_t i = 1; i < order.size(); ++i)
      if (is_repeated(i)) results[order[i]] = results[order[i - 1]];
    keep_notes(jobs);
    return results;
  }

  std::vector<std::vector<FunctionArguments>> arguments(std::span<const StackPlace> stack) {
    std::vector<std::vector<FunctionArguments>> results;
    std::vector<symbols::KnownModule*> modules;
    std::vector<symbols::ArgumentFrame> frames;
    const AddressSpace* space = locate(stack, modules, frames);
    symbols::EntryBudget budget(kMostArgumentEntries + stack.size() * kArgumentEntriesOfFrame);
    for (std::size_t i = 0; i < stack.size(); ++i) {
      std::vector<FunctionArguments>& to = results.emplace_back(stack[i].names->frames.size());
      if (modules[i] == nullptr || to.empty()) continue;
      const std::lock_guard hold(modules[i]->lock);
      for (std::size_t caller = i; caller < stack.size() && modules[caller] == modules[i]; ++caller) {
        if (frames[caller].debug != nullptr) break;
        frames[caller].debug = modules[i]->symbols.debug_lines();
        if (frames[caller].debug == nullptr) break;
        frames[caller].bias += frames[caller].debug->bias();
      }
      if (frames[i].debug == nullptr) continue;
      try {
        give_arguments(symbols::frame_arguments(*space, frames, i, budget), *stack[i].names, to);
      } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): no memory; the frame stays without
      }
    }
    return results;
  }

  std::vector<std::string> notes() {
    const std::lock_guard hold(lock_);
    std::vector<std::string> notes = subject_->notes();
    notes.insert(notes.end(), notes_.begin(), notes_.end());
    return notes;
  }

 private:
  static constexpr std::size_t kMostArgumentEntries = 1'000'000, kArgumentEntriesOfFrame = 1000;

  // Null: the addresses lie in no memory.
  const AddressSpace* locate(std::span<const StackPlace> stack, std::vector<symbols::KnownModule*>& modules,
                             std::vector<symbols::ArgumentFrame>& frames) {
    const std::lock_guard hold(lock_);
    subject_->begin_call();
    const AddressSpace* space = subject_->space();
    for (const StackPlace& at : stack) {
      symbols::Place place;
      const std::uint64_t address = at.registers->pc().lookup();
      if (space != nullptr) place = subject_->find(address, 0);
      modules.push_back(place.name.empty() ? place.module : nullptr);
      frames.push_back({.registers = at.registers,
                        .debug = nullptr,
                        .bias = address - place.number,
                        .vector_registers = at.vector_registers});
    }
    return space;
  }

  // `found`: innermost first, without interpreted functions. If other sources name other inlined calls, only the last
  // is the same.
  static void give_arguments(std::vector<FunctionArguments> found, const NamedAddress& names,
                             std::vector<FunctionArguments>& to) {
    const auto interpreted =
        static_cast<std::size_t>(std::ranges::count(names.frames, true, &SourceFrame::interpreted));
    const std::size_t count =
        found.size() + interpreted == to.size() ? found.size() : std::min<std::size_t>(found.size(), 1);
    for (std::size_t i = 1; i <= count; ++i) to[to.size() - i] = std::move(found[found.size() - i]);
  }

  // Fills in where each distinct address lies; the jobs are what remains to be done, the long ones first.
  std::vector<Job> locate(std::span<const std::size_t> order, std::span<NamedAddress> results,
                          FunctionRef<std::uint64_t(std::size_t)> function,
                          FunctionRef<bool(std::size_t)> is_repeated) {
    const std::lock_guard hold(lock_);
    subject_->begin_call();
    std::vector<Job> jobs;
    std::unordered_map<const symbols::KnownModule*, std::size_t> job_of;
    for (std::size_t i = 0; i < order.size(); ++i) {
      NamedAddress& to = results[order[i]];
      if (is_repeated(i)) continue;
      const symbols::Place place = subject_->find(to.lookup, function(order[i]));
      to.module = place.path;
      to.offset = place.offset;
      if (!place.name.empty()) {
        to.function_begin = place.function_begin;
        for (const symbols::Place& inlined : place.inlined) to.frames.push_back(frame_of(inlined, true));
        to.frames.push_back(frame_of(place, false));
        continue;
      }
      for (const symbols::Place& interpreted : place.inlined) {
        to.frames.push_back(frame_of(interpreted, true));
        to.frames.back().interpreted = true;
      }
      if (place.module == nullptr) continue;
      const auto [job, is_new] = job_of.try_emplace(place.module, jobs.size());
      if (is_new) jobs.push_back({.module = place.module, .wanted = {}, .note = {}});
      jobs[job->second].wanted.push_back({place.number, order[i]});
    }
    std::ranges::stable_sort(jobs, std::greater(), [](const Job& job) { return job.wanted.size(); });
    return jobs;
  }

  [[nodiscard]] SourceFrame frame_of(const symbols::Place& place, bool inlined) {
    const std::string_view readable = modules_.keep(symbols::demangle(std::string(place.name).c_str()));
    return {readable, place.name, place.file, place.line, inlined};
  }

  void keep_notes(std::span<const Job> jobs) {
    const std::lock_guard hold(lock_);
    for (const Job& job : jobs)
      if (!job.note.empty()) notes_.insert(job.note);
  }

  symbols::SymbolizeOptions options_;
  std::mutex lock_;  // of what follows; modules have locks of their own
  symbols::KnownModules modules_;
  std::unique_ptr<symbols::Subject> subject_;
  std::set<std::string> notes_;
};

Expected<Symbolizer> Symbolizer::of_file(const std::string& path, const SymbolizerOptions& options) {
  auto made = std::make_unique<Implementation>(options);
  auto subject = symbols::FileSubject::open(path, made->modules());
  if (!subject) return Failure(subject.error());
  made->set_subject(std::move(*subject));
  return Symbolizer(std::move(made));
}

Expected<Symbolizer> Symbolizer::of_process(std::uint64_t pid, const SymbolizerOptions& options) {
  auto made = std::make_unique<Implementation>(options);
  auto subject = symbols::ProcessSubject::open(pid, made->modules());
  if (!subject) return Failure(subject.error());
  made->set_subject(std::move(*subject));
  return Symbolizer(std::move(made));
}

Symbolizer Symbolizer::of_self(const SymbolizerOptions& options) {
  auto made = std::make_unique<Implementation>(options);
  const symbols::SpaceOrigin origin{.process = static_cast<std::uint64_t>(::getpid()), .live = true};
  made->set_subject(std::make_unique<symbols::SpaceSubject>(own_process(), origin, made->modules()));
  return Symbolizer(std::move(made));
}

Symbolizer Symbolizer::of_target(const Target& target, const SymbolizerOptions& options) {
  std::vector<CodeAddress> all;
  if (target.kind == TargetKind::kProcess)
    for (const ModuleInfo* module : target.space.modules()) all.push_back(CodeAddress::instruction(module->begin));
  return of_target(target, options, all);
}

Symbolizer Symbolizer::of_target(const Target& target, const SymbolizerOptions& options,
                                 std::span<const CodeAddress> pcs) {
  auto made = std::make_unique<Implementation>(options);
  const symbols::SpaceOrigin origin{.process = target.process,
                                    .live = target.kind == TargetKind::kProcess,
                                    .interpreted = walk::Inside::interpreted(target)};
  auto subject = std::make_unique<symbols::SpaceSubject>(target.space, origin, made->modules());
  if (origin.live) subject->open_those_of(pcs);
  made->set_subject(std::move(subject));
  return Symbolizer(std::move(made));
}

Symbolizer Symbolizer::of_space(const AddressSpace& space, const SymbolizerOptions& options) {
  auto made = std::make_unique<Implementation>(options);
  const symbols::SpaceOrigin origin{.process = options.process, .live = false};
  made->set_subject(std::make_unique<symbols::SpaceSubject>(space, origin, made->modules()));
  return Symbolizer(std::move(made));
}

Symbolizer::Symbolizer(std::unique_ptr<Implementation> implementation) : implementation_(std::move(implementation)) {}
Symbolizer::Symbolizer(Symbolizer&&) noexcept = default;
Symbolizer& Symbolizer::operator=(Symbolizer&&) noexcept = default;
Symbolizer::~Symbolizer() = default;

NamedAddress Symbolizer::name(const Frame& frame) const {
  const CodeAddress pc = frame.pc();
  return std::move(name(std::span(&pc, 1), std::span(&frame.function, 1)).front());
}
NamedAddress Symbolizer::name(CodeAddress pc) const { return std::move(name(std::span(&pc, 1)).front()); }

std::vector<NamedAddress> Symbolizer::name(std::span<const CodeAddress> pcs,
                                           std::span<const std::uint64_t> functions) const {
  return implementation_->name(pcs, functions);
}

std::vector<std::vector<FunctionArguments>> Symbolizer::arguments(std::span<const StackPlace> stack) const {
  return implementation_->arguments(stack);
}

std::vector<std::string> Symbolizer::notes() const { return implementation_->notes(); }

}  // namespace windlass
