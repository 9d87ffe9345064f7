#include "integration/call_site_check.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include <Zydis/Zydis.h>
#include <fmt/format.h>

#include "formats/image/elf.h"
#include "formats/image/unwind_sections.h"
#include "windlass_ends.h"

namespace windlass::test {
namespace {

struct Range {
  std::uint64_t begin = 0, end = 0;
};

enum class Reach : std::uint8_t { kYes, kNo, kCannotTell };

class File {
 public:
  static std::unique_ptr<File> open(const std::string& path) {
    auto mapped = MappedFile::open(path);
    if (!mapped) return nullptr;
    auto file = std::make_unique<File>();
    file->mapped_.emplace(std::move(*mapped));
    auto image = image::ElfImage::parse(file->mapped_->bytes());
    if (!image) return nullptr;
    file->image_.emplace(std::move(*image));
    file->read_functions();
    return file;
  }

  [[nodiscard]] std::optional<Range> function(std::uint64_t address) const {
    auto after = std::upper_bound(functions_.begin(), functions_.end(), address,
                                  [](std::uint64_t a, const Range& range) { return a < range.begin; });
    if (after == functions_.begin() || address >= std::prev(after)->end) return std::nullopt;
    return *std::prev(after);
  }

  // The target of the direct call that ends at `address`.
  [[nodiscard]] std::optional<std::uint64_t> call_target(std::uint64_t address) const {
    const auto code = image_->at_address(address - 5, 5);
    if (!code || code->u8()[0] != 0xe8) return std::nullopt;
    std::int32_t relative;
    std::memcpy(&relative, code->u8() + 1, 4);
    return address + static_cast<std::uint64_t>(std::int64_t{relative});
  }

  // Can a call of `target` be executing in `function` without another call, by jumping there?
  [[nodiscard]] Reach reaches(std::uint64_t target, const Range& function) const {
    constexpr std::size_t kMostFunctions = 64;
    bool indirect = false;
    std::set<std::uint64_t> seen;
    for (std::deque<std::uint64_t> open{target}; !open.empty(); open.pop_front()) {
      if (open.front() >= function.begin && open.front() < function.end) return Reach::kYes;
      const auto range = this->function(open.front());
      if (!range) {
        indirect = true;  // code without an FDE: it may do anything
        continue;
      }
      if (!seen.insert(range->begin).second) continue;
      if (seen.size() > kMostFunctions) return Reach::kCannotTell;
      indirect |= collect_jumps(*range, open);
    }
    return indirect ? Reach::kCannotTell : Reach::kNo;
  }

 private:
  void read_functions() {
    auto ignore = [](const Error&) {};
    const auto sections = image::find_unwind_sections(*image_, ignore);
    for (const auto& section : sections.sections) {
      dwarf::CfiReader reader(section, ignore);
      for (dwarf::Fde fde; reader.next_fde(fde);)
        if (fde.begin < fde.end) functions_.push_back({fde.begin, fde.end});
    }
    std::sort(functions_.begin(), functions_.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  }

  // Direct jumps out of a function; true if it has an indirect jump.
  bool collect_jumps(const Range& range, std::deque<std::uint64_t>& open) const {
    const auto code = image_->at_address(range.begin, range.end - range.begin);
    if (!code) return true;
    ZydisDecoder decoder;
    ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
    bool indirect = false;
    ZydisDecodedInstruction instruction;
    ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
    for (std::uint64_t at = 0; at < code->size(); at += instruction.length) {
      if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder, code->u8() + at, code->size() - at, &instruction, operands)))
        return true;
      const auto category = instruction.meta.category;
      if (category != ZYDIS_CATEGORY_UNCOND_BR && category != ZYDIS_CATEGORY_COND_BR) continue;
      if (operands[0].type != ZYDIS_OPERAND_TYPE_IMMEDIATE) {
        indirect = true;
        continue;
      }
      ZyanU64 to = 0;
      ZydisCalcAbsoluteAddress(&instruction, &operands[0], range.begin + at, &to);
      if (to < range.begin || to >= range.end) open.push_back(to);
    }
    return indirect;
  }

  std::optional<MappedFile> mapped_;
  std::optional<image::ElfImage> image_;
  std::vector<Range> functions_;
};

class Checker {
 public:
  explicit Checker(const profile::Profile& profile) : profile_(profile), files_(profile.modules.size()) {}

  CallSiteVerdict run() {
    for (std::size_t i = 0; i < profile_.modules.size(); ++i)
      if (!profile_.modules[i].is_kernel) files_[i] = File::open(profile_.modules[i].path);
    for (const auto& sample : profile_.samples)
      if (sample.end == WL_END_COMPLETE) check(sample);
    return std::move(verdict_);
  }

 private:
  void check(const profile::Sample& sample) {
    for (std::size_t i = 1; i < sample.locations.size(); ++i) {
      const auto& inner = profile_.locations[sample.locations[i - 1]];
      const auto& outer = profile_.locations[sample.locations[i]];
      if (outer.module == profile::kNone || profile_.modules[outer.module].is_kernel) continue;
      if (inner.module != profile::kNone && profile_.modules[inner.module].is_kernel) continue;
      switch (judge(inner, outer)) {
        case Reach::kYes: verdict_.agree += sample.count; break;
        case Reach::kCannotTell: verdict_.untellable += sample.count; break;
        case Reach::kNo:
          verdict_.contradicted += sample.count;
          if (verdict_.examples.size() < 10) verdict_.examples.push_back(describe(inner, outer));
          break;
      }
    }
  }

  Reach judge(const profile::Location& inner, const profile::Location& outer) {
    const File* file = files_[outer.module].get();
    if (file == nullptr || inner.module != outer.module) return Reach::kCannotTell;
    const auto target = file->call_target(outer.address + 1);
    const auto function = file->function(inner.address);
    if (!target || !function) return Reach::kCannotTell;
    const auto key = std::pair(*target, function->begin);
    auto& known = reach_[outer.module];
    if (const auto found = known.find(key); found != known.end()) return found->second;
    return known[key] = file->reaches(*target, *function);
  }

  std::string describe(const profile::Location& inner, const profile::Location& outer) const {
    return fmt::format("{}: the call before {:#x} does not reach {:#x}", profile_.modules[outer.module].path,
                       outer.address + 1, inner.address);
  }

  const profile::Profile& profile_;
  std::vector<std::unique_ptr<File>> files_;
  std::map<std::uint32_t, std::map<std::pair<std::uint64_t, std::uint64_t>, Reach>> reach_;
  CallSiteVerdict verdict_;
};

}  // namespace

CallSiteVerdict check_call_sites(const profile::Profile& profile) { return Checker(profile).run(); }

}  // namespace windlass::test
