#include "integration/truth_check.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "image/elf.h"
#include "image/mapped_file.h"
#include "image/pe_names.h"
#include "windlass_layout.h"

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
    if (auto file = image::MappedFile::open(program)) {
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
    for (std::uint64_t at = 0; at + 24 <= table->size(); at += 24) {
      const auto name = table->at<std::uint32_t>(at);
      const auto value = table->at<std::uint64_t>(at + 8);
      const auto text = strings->string_at(*name);
      if (text && (*table->at<std::uint8_t>(at + 4) & 0xf) == 2) entries_[std::string(*text)] = *value;
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

  void check(const profile::Sample& sample) {
    const auto frames = frames_of(sample);
    bool ours = false;
    for (const Frame& frame : frames) ours = ours || frame.in_program;
    if (!ours) return;
    verdict_.samples += sample.count;
    if (sample.end != WL_END_COMPLETE) {
      note(verdict_.truncated, frames, fmt::format("end {}", sample.end));
      return;
    }
    verdict_.complete += sample.count;
    if (const std::string why = impossible(frames, sample.count); !why.empty()) {
      const auto raises = [](const Frame& frame) {
        return frame.function == "_Unwind_RaiseException" || frame.function == "_Unwind_Resume";
      };
      const bool helps = frames.size() > 1 && !frames[0].in_program && raises(frames[1]);
      const bool installs = raises(frames[0]) || helps;
      (installs ? verdict_.installing : verdict_.wrong) += sample.count;
      if (!installs) note(verdict_.examples, frames, why);
    }
  }

  static void note(std::vector<std::string>& list, const std::vector<Frame>& frames, const std::string& why) {
    if (list.size() >= 10) return;
    std::string text = why + ":";
    for (const Frame& frame : frames)
      text += fmt::format("\n  {:#x} {}{}", frame.address, frame.function, frame.in_program ? "" : "  (elsewhere)");
    list.push_back(text);
  }

  // Empty if the stack can be; otherwise what cannot.
  std::string impossible(const std::vector<Frame>& frames, std::uint64_t count) {
    if (!contains(rules_.outermost, frames.back().function)) return "the outermost frame is not the entry point";
    int expected = 0;
    std::size_t first_level = 0;
    bool left = false;
    for (std::size_t i = frames.size(); i-- > 0;) {
      const auto level = level_of(frames[i].function);
      if (!level) {
        left = left || (expected > 0 && contains(rules_.leaves, frames[i].function));
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
    return call_sites_wrong(frames, count);
  }

  // What may stand below level 0.
  std::string entered_wrongly(const std::vector<Frame>& frames, std::size_t level0) const {
    if (level0 + 1 >= frames.size()) return "level 0 has no caller";
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

  // Every return address in the program that follows a direct call must follow a call of the frame above.
  std::string call_sites_wrong(const std::vector<Frame>& frames, std::uint64_t count) {
    if (!image_ && !pe_) return "the program cannot be read";
    for (std::size_t i = 1; i < frames.size(); ++i) {
      if (!frames[i].in_program || !frames[i - 1].in_program) continue;
      const std::uint64_t after_call = frames[i].address + 1;
      const auto target = call_target(after_call);
      const auto entry = entries_.find(std::string(frames[i - 1].function));
      if (!target || entry == entries_.end()) continue;
      if (entry->second != *target)
        return fmt::format("the call before {:#x} does not call '{}'", after_call, frames[i - 1].function);
      verdict_.call_sites += count;
    }
    return "";
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
  std::optional<image::MappedFile> file_;
  std::optional<image::ElfImage> image_;
  std::optional<image::PeImage> pe_;
  std::map<std::string, std::uint64_t> entries_;
  TruthVerdict verdict_;
};

}  // namespace

TruthRules linux_truth() {
  return {.outermost = {"_start"},
          .root = "main",
          .below_root = {},
          .paths = {"_Z13in_plain_pathv", "_Z17in_exception_pathv"},
          .callbacks = {{"_Z7handleri", "_Z14in_signal_pathv"}, {"_Z7comparePKvS0_", "_Z16in_callback_pathv"}},
          .leaves = {}};
}

TruthRules windows_truth() {
  return {.outermost = {"RtlUserThreadStart", "LdrInitializeThunk", "_start", "clone3"},
          .root = "_Z9all_pathsv",
          .below_root = {{"worker", "BaseThreadInitThunk", "RtlUserThreadStart"},
                         {"worker", "main", "__tmainCRTStartup", "mainCRTStartup", "BaseThreadInitThunk",
                          "RtlUserThreadStart"}},
          .paths = {"_Z13in_plain_pathv"},
          .callbacks = {{"_Z4backy", "_Z15in_library_pathv"}, {"_Z7comparePKvS0_", "_Z16in_callback_pathv"}},
          .leaves = {"_Z4leafy", "___chkstk_ms"}};
}

TruthVerdict check_truth(const Profile& profile, const std::string& program, const TruthRules& rules) {
  return Checker(profile, program, rules).run();
}

}  // namespace windlass::test
