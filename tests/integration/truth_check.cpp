#include "integration/truth_check.h"

#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "image/elf.h"
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
  Checker(const Profile& profile, const std::string& program) : profile_(profile), program_(program) {
    if (auto file = image::MappedFile::open(program)) {
      file_.emplace(std::move(*file));
      if (auto image = image::ElfImage::parse(file_->bytes())) image_.emplace(std::move(*image));
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
      const std::string_view innermost = frames.front().function;
      const bool installs = innermost == "_Unwind_RaiseException" || innermost == "_Unwind_Resume";
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
    if (frames.back().function != "_start") return "the outermost frame is not the entry point";
    int expected = 0;
    std::size_t first_level = 0;
    for (std::size_t i = frames.size(); i-- > 0;) {
      const auto level = level_of(frames[i].function);
      if (!level) {
        if (expected > 0) return fmt::format("'{}' above level {}", frames[i].function, expected - 1);
        continue;
      }
      if (expected == 0) first_level = i;
      if (*level != expected) return fmt::format("level {} where {} belongs", *level, expected);
      ++expected;
    }
    if (expected > 0) {
      verdict_.in_levels += count;
      if (std::string why = entered_wrongly(frames, first_level); !why.empty()) return why;
    }
    return call_sites_wrong(frames, count);
  }

  // What may stand below level 0.
  static std::string entered_wrongly(const std::vector<Frame>& frames, std::size_t level0) {
    static constexpr std::array<std::array<std::string_view, 2>, 2> kThroughLibc{
        {{"_Z7handleri", "_Z14in_signal_pathv"}, {"_Z7comparePKvS0_", "_Z16in_callback_pathv"}}};
    if (level0 + 1 >= frames.size()) return "level 0 has no caller";
    const std::string_view caller = frames[level0 + 1].function;
    std::size_t main_at = 0;
    for (std::size_t i = level0 + 1; i < frames.size(); ++i)
      if (frames[i].function == "main") main_at = i;
    if (main_at == 0) return "main is missing";
    if (caller == "_Z13in_plain_pathv" || caller == "_Z17in_exception_pathv")
      return main_at == level0 + 2 ? "" : "frames between the path and main";
    for (const auto& [callee, path] : kThroughLibc)
      if (caller == callee) return frames[main_at - 1].function == path ? "" : "libc's caller is missing";
    return fmt::format("level 0 called by '{}'", caller);
  }

  // Every return address in the program that follows a direct call must follow a call of the frame above.
  std::string call_sites_wrong(const std::vector<Frame>& frames, std::uint64_t count) {
    if (!image_) return "the program cannot be read";
    for (std::size_t i = 1; i < frames.size(); ++i) {
      if (!frames[i].in_program || !frames[i - 1].in_program) continue;
      const std::uint64_t after_call = frames[i].address + 1;
      const auto code = image_->at_address(after_call - 5, 5);
      if (!code || code->u8()[0] != 0xe8) continue;
      std::int32_t relative;
      std::memcpy(&relative, code->u8() + 1, 4);
      const std::uint64_t target = after_call + static_cast<std::uint64_t>(static_cast<std::int64_t>(relative));
      const auto entry = entries_.find(std::string(frames[i - 1].function));
      if (entry == entries_.end()) continue;
      if (entry->second != target)
        return fmt::format("the call before {:#x} does not call '{}'", after_call, frames[i - 1].function);
      verdict_.call_sites += count;
    }
    return "";
  }

  const Profile& profile_;
  std::string program_;
  std::optional<image::MappedFile> file_;
  std::optional<image::ElfImage> image_;
  std::map<std::string, std::uint64_t> entries_;
  TruthVerdict verdict_;
};

}  // namespace

TruthVerdict check_truth(const Profile& profile, const std::string& program) {
  return Checker(profile, program).run();
}

}  // namespace windlass::test
