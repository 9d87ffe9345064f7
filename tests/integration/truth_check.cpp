#include "integration/truth_check.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "base/mapped_file.h"
#include "formats/image/elf.h"
#include "formats/image/elf_structures.h"
#include "formats/image/pe_names.h"
#include "windlass_ends.h"

namespace windlass::test {
namespace {

using profile::Profile;

// A physical frame: inlined functions folded into the one whose machine code it is.
struct Frame {
  std::string_view function;  // mangled
  std::uint64_t address = 0;  // of the call, or the sampled instruction
  bool in_program = false;
  bool in_kernel = false;
};

constexpr std::string_view kLevel = "_Z5levelILi";

// level<D, V> -> D
std::optional<int> level_of(std::string_view name) {
  if (!name.starts_with(kLevel)) return std::nullopt;
  return std::atoi(std::string(name.substr(kLevel.size())).c_str());
}

class Checker {
 public:
  Checker(const Profile& profile, const std::string& program, const TruthRules& rules)
      : profile_(profile), program_(program), rules_(rules) {
    if (auto file = MappedFile::open(program)) {
      file_.emplace(std::move(*file));
      if (auto image = image::ElfImage::parse(file_->bytes())) image_.emplace(std::move(*image));
      if (auto image = image::PeImage::parse(file_->bytes())) pe_.emplace(std::move(*image));
    }
    learn_entries();
  }

  TruthVerdict run() {
    for (const auto& sample : profile_.samples) check(sample);
    return std::move(verdict_);
  }

 private:
  // Where each function of the program starts, from its symbol table.
  void learn_entries() {
    if (pe_)
      image::each_coff_symbol(*pe_, [&](std::string_view name, std::uint32_t rva, bool is_function) {
        if (is_function) entries_[std::string(name)] = rva;
      });
    if (!image_) return;
    const image::Section* symbols = image_->section(".symtab");
    const image::Section* names = image_->section(".strtab");
    if (symbols == nullptr || names == nullptr) return;
    const auto table = image_->stored_bytes(*symbols);
    const auto strings = image_->stored_bytes(*names);
    if (!table || !strings) return;
    const image::ElfClass elf_class = image_->elf_class();
    for (std::uint64_t at = 0;; at += image::stored_size<Elf64_Sym>(elf_class)) {
      const auto symbol = image::read_stored<Elf64_Sym>(*table, elf_class, at);
      if (!symbol) break;
      const auto text = strings->string_at(symbol->st_name);
      if (text && ELF64_ST_TYPE(symbol->st_info) == STT_FUNC) entries_[std::string(*text)] = symbol->st_value;
    }
  }

  std::vector<Frame> frames_of(const profile::Sample& sample) const {
    std::vector<Frame> frames;
    for (const std::uint32_t index : sample.locations) {
      const auto& location = profile_.locations[index];
      Frame frame;
      frame.address = location.address;
      if (location.module != profile::kNone) {
        const auto& module = profile_.modules[location.module];
        frame.in_kernel = module.is_kernel;
        frame.in_program = module.path == program_;
      }
      if (!location.lines.empty()) frame.function = profile_.functions[location.lines.back().function].system_name;
      if (!frame.in_kernel) frames.push_back(frame);
    }
    return frames;
  }

  // The kernel was calling a signal handler, or returning from one: there is nothing to walk by, and nothing to judge.
  bool is_half_written(const profile::Sample& sample) const {
    if (sample.end != WL_END_REGISTER_LOST || sample.locations.empty()) return false;
    const auto module = profile_.locations[sample.locations.front()].module;
    return module != profile::kNone && profile_.modules[module].is_kernel;
  }

  void check(const profile::Sample& sample) {
    const auto frames = frames_of(sample);
    bool ours = false;
    for (const Frame& frame : frames) ours = ours || frame.in_program;
    if (!ours) return;
    if (is_half_written(sample)) return;
    verdict_.samples += sample.count;
    if (sample.end != WL_END_COMPLETE) {
      note(verdict_.truncated, frames, fmt::format("end {}", sample.end));
      return;
    }
    verdict_.complete += sample.count;
    if (const std::string why = impossible(frames, sample.count); !why.empty() && !known_wrong(frames)) {
      verdict_.wrong += sample.count;
      note(verdict_.examples, frames, why);
    }
  }

  // libgcc on its way to a landing pad: on AArch64 as its unwind information has it.
  static bool known_wrong([[maybe_unused]] const std::vector<Frame>& frames) {
#ifdef __aarch64__
    const auto raises = [](const Frame& frame) {
      return frame.function == "_Unwind_RaiseException" || frame.function == "_Unwind_Resume";
    };
    return raises(frames[0]) || (frames.size() > 1 && !frames[0].in_program && raises(frames[1]));
#else
    return false;
#endif
  }

  static void note(std::vector<std::string>& list, const std::vector<Frame>& frames, const std::string& why) {
    if (list.size() >= 10) return;
    std::string text = why + ":";
    for (const Frame& frame : frames)
      text += fmt::format("\n  {:#x} {}{}", frame.address, frame.function, frame.in_program ? "" : "  (elsewhere)");
    list.push_back(text);
  }

  // start_thread and clone3, of a C library without symbols.
  static bool ends_nameless_thread(const std::vector<Frame>& frames) {
    const auto is_nameless = [](const Frame& frame) { return !frame.in_program && frame.function.empty(); };
    return frames.size() > 2 && is_nameless(frames.back()) && is_nameless(frames[frames.size() - 2]) &&
           frames[frames.size() - 3].function == "_Z11thread_rootPv";
  }

  // Empty if the stack can be; otherwise what cannot.
  std::string impossible(const std::vector<Frame>& frames, std::uint64_t count) {
    const bool ends_context = frames.size() > 1 && contains(rules_.nameless, frames[frames.size() - 2].function);
    if (!ends_context && !ends_nameless_thread(frames) && !contains(rules_.outermost, frames.back().function))
      return "the outermost frame is not the entry point";
    int expected = 0;
    std::size_t first_level = 0;
    bool left = false;
    for (std::size_t i = frames.size(); i-- > 0;) {
      const auto level = level_of(frames[i].function);
      if (!level) {
        left = left || (expected > 0 && may_be_left(frames[i]));
        if (!rules_.bottom.empty() && frames[i].function == rules_.bottom && expected != rules_.depth)
          return fmt::format("'{}' above level {}", rules_.bottom, expected - 1);
        if (expected > 0 && !left) return fmt::format("'{}' above level {}", frames[i].function, expected - 1);
        continue;
      }
      if (expected == 0) first_level = i;
      if (*level != expected || left) return fmt::format("level {} where {} belongs", *level, expected);
      ++expected;
    }
    if (expected > 0) {
      verdict_.in_levels += count;
      if (std::string why = entered_wrongly(frames, first_level); !why.empty()) return why;
    }
    if (std::string why = outside_of_paths(frames); !why.empty()) return why;
    return call_sites_wrong(frames, count);
  }

  // May a level have called this?
  [[nodiscard]] bool may_be_left(const Frame& frame) const {
    return contains(rules_.leaves, frame.function) ||
           (rules_.calls_elsewhere && (!frame.in_program || frame.function.ends_with("@plt")));
  }

  std::string outside_of_paths(const std::vector<Frame>& frames) const {
    const auto is_path = [&](const Frame& frame) { return contains(rules_.paths, frame.function); };
    const auto inside = std::ranges::find_if(
        frames, [&](const Frame& frame) { return contains(rules_.only_in_paths, frame.function); });
    if (inside == frames.end()) return "";
    const auto path = std::find_if(inside, frames.end(), is_path);
    if (path == frames.end()) return fmt::format("'{}' outside of a path", inside->function);
    return path + 1 != frames.end() && path[1].function == rules_.root ? "" : "a path not called by " + rules_.root;
  }

  // What may stand below level 0.
  std::string entered_wrongly(const std::vector<Frame>& frames, std::size_t level0) const {
    if (level0 + 1 >= frames.size()) return "level 0 has no caller";
    if (!rules_.chains.empty()) return chain_is_known(frames, level0) ? "" : "no such chain of calls";
    const std::string_view caller = frames[level0 + 1].function;
    std::size_t root_at = 0;
    for (std::size_t i = level0 + 1; i < frames.size(); ++i)
      if (frames[i].function == rules_.root) root_at = i;
    if (root_at == 0) return rules_.root + " is missing";
    std::vector<std::string> below;
    for (std::size_t i = root_at + 1; i < frames.size(); ++i) below.emplace_back(frames[i].function);
    if (!rules_.below_root.empty() && std::ranges::find(rules_.below_root, below) == rules_.below_root.end())
      return rules_.root + " called in an impossible way";
    if (contains(rules_.paths, caller)) return root_at == level0 + 2 ? "" : "frames between the path and its caller";
    for (const auto& [callee, path] : rules_.callbacks)
      if (caller == callee) return frames[root_at - 1].function == path ? "" : "the caller's caller is missing";
    return fmt::format("level 0 called by '{}'", caller);
  }

  [[nodiscard]] bool chain_is_known(const std::vector<Frame>& frames, std::size_t level0) const {
    std::vector<std::string> chain;
    for (std::size_t i = level0 + 1; i < frames.size(); ++i)
      if (frames[i].in_program && frames[i].function != rules_.entrance) chain.emplace_back(frames[i].function);
    return std::ranges::find(rules_.chains, chain) != rules_.chains.end();
  }

  // Every return address in the program that follows a direct call must follow a call of the frame above.
  std::string call_sites_wrong(const std::vector<Frame>& frames, std::uint64_t count) {
    if (!image_ && !pe_) return "the program cannot be read";
    for (std::size_t i = 1; i < frames.size(); ++i) {
      if (!frames[i].in_program || !frames[i - 1].in_program) continue;
      const std::uint64_t after_call = frames[i].address + 1;
      const auto target = call_target(after_call);
      const auto entry = entries_.find(std::string(frames[i - 1].function));
      if (!target || entry == entries_.end()) continue;
      if (entry->second != *target && !jumps_there(*target, frames[i - 1].function))
        return fmt::format("the call before {:#x} does not call '{}'", after_call, frames[i - 1].function);
      verdict_.call_sites += count;
    }
    return "";
  }

  [[nodiscard]] bool jumps_there(std::uint64_t target, std::string_view function) const {
    return std::ranges::any_of(rules_.tails, [&](const auto& tail) {
      const auto called = entries_.find(tail.second);
      return tail.first == function && called != entries_.end() && called->second == target;
    });
  }

  // Where the direct call that ends at `after` leads. x86-64: e8 and 32 bits, relative to its end. AArch64: bl and 26
  // bits, in words, relative to its beginning.
  std::optional<std::uint64_t> call_target(std::uint64_t after) const {
    const bool a64 = image_ && image_->machine() == image::Machine::kAArch64;
    const std::uint64_t size = a64 ? 4 : 5;
    const auto code = pe_ ? pe_->at_rva(static_cast<std::uint32_t>(after - size), static_cast<std::uint32_t>(size))
                          : image_->at_address(after - size, size);
    if (!code) return std::nullopt;
    const auto word = *code->at<std::int32_t>(size - 4);
    const bool is_call = a64 ? (word >> 26 & 0x3f) == 0x25 : code->u8()[0] == 0xe8;
    if (!is_call) return std::nullopt;
    const std::int64_t distance = a64 ? std::int64_t{word << 6 >> 4} - 4 : std::int64_t{word};
    return after + static_cast<std::uint64_t>(distance);
  }

  static bool contains(const std::vector<std::string>& names, std::string_view name) {
    return std::ranges::find(names, name) != names.end();
  }

  const Profile& profile_;
  std::string program_;
  const TruthRules& rules_;
  std::optional<MappedFile> file_;
  std::optional<image::ElfImage> image_;
  std::optional<image::PeImage> pe_;
  std::map<std::string, std::uint64_t> entries_;
  TruthVerdict verdict_;
};

}  // namespace

TruthRules linux_truth(char word) {
  TruthRules rules{.outermost = {"_start", "clone3", "__clone3", "clone", "__clone", "thread_start"},
                   .root = "main",
                   .below_root = {},
                   .paths = {},
                   .callbacks = {},
                   .leaves = {},
                   .chains = {{"_Z13in_plain_pathv", "_Z11thread_rootPv"}, {"_Z13in_plain_pathv", "_Z12context_rootv"}},
                   .entrance = "_Z12enter_levelsv",
                   .tails = {{std::string("_Z8tail_end") + word, std::string("_Z11tail_middle") + word}},
                   .nameless = {"_Z12context_rootv"}};
  std::vector<std::string> recursive(21, "_Z9recursivei");
  recursive.emplace_back("_Z17in_recursive_pathv");
  const std::vector<std::string> from_main[] = {
      {"_Z13in_plain_pathv"},
      {"_Z17in_exception_pathv"},
      {"_Z7handleri", "_Z14in_signal_pathv"},
      {"_Z7comparePKvS0_", "_Z16in_callback_pathv"},
      {"_Z10by_pointerv", "_Z15in_pointer_pathv"},
      {"_ZN7Derived4callEv", "_Z15in_virtual_pathv"},
      {"_Z9by_lambdav", "_ZNSt17_Function_handlerIFvvEZ16in_function_pathvEUlvE_E9_M_invokeERKSt9_Any_data",
       "_Z16in_function_pathv"},
      {std::string("_Z8tail_end") + word, "_Z12in_tail_pathv"},
      recursive,
      {"_Z8variadiciz", "_Z16in_variadic_pathv"},
      {"_Z10by_cleanupv", "_Z22throws_through_cleanupv", "_Z15in_cleanup_pathv"},
      {"_Z21by_described_assemblyv", "described_assembly", "_Z17in_described_pathv"},
      {"_Z16by_bare_assemblyv", "bare_assembly", "_Z12in_bare_pathv"},
      {"_Z10by_libraryv", "truth_called_back", "_Z15in_library_pathPKc"},
      {"_Z13plain_handleri", "_Z20in_plain_signal_pathv"}};
  for (std::vector<std::string> chain : from_main) {
    chain.insert(chain.end(), {"main", "_start"});
    rules.chains.push_back(std::move(chain));
  }
  return rules;
}

TruthRules throwing_truth(char word) {
  const std::string bottom = std::string("_Z5leave") + word;
  return {.outermost = {"_start", "clone3", "__clone3"},
          .root = "_Z9all_pathsi",
          .below_root = {},
          .paths = {"_Z13in_throw_pathv"},
          .callbacks = {},
          .leaves = {bottom, "_ZN5GuardD2Ev", "_ZN5GuardD1Ev", "_Z13caught_insidei"},
          .calls_elsewhere = true,
          .bottom = bottom,
          .depth = 12,
          .only_in_paths = {"_Unwind_RaiseException", "_Unwind_Resume", "_Unwind_ForcedUnwind",
                            "_Unwind_Resume_or_Rethrow", "__cxa_throw", "__cxa_rethrow", "__cxa_begin_catch"}};
}

TruthRules windows_truth() {
  return {.outermost = {"RtlUserThreadStart", "LdrInitializeThunk", "_start", "clone3"},
          .root = "_Z9all_pathsP6HWND__",
          .below_root = {{"worker", "BaseThreadInitThunk", "RtlUserThreadStart"},
                         {"worker", "main", "__tmainCRTStartup", "mainCRTStartup", "BaseThreadInitThunk",
                          "RtlUserThreadStart"}},
          .paths = {"_Z13in_plain_pathv"},
          .callbacks = {{"_Z4backy", "_Z15in_library_pathv"},
                        {"_Z7comparePKvS0_", "_Z16in_callback_pathv"},
                        {"by_message", "_Z14in_window_pathP6HWND__"}},
          .leaves = {"_Z4leafy", "___chkstk_ms"},
          .chains = {},
          .entrance = {},
          .tails = {{"__do_global_ctors", "__main"}},
          .nameless = {}};
}

TruthVerdict check_truth(const Profile& profile, const std::string& program, const TruthRules& rules) {
  return Checker(profile, program, rules).run();
}

}  // namespace windlass::test
