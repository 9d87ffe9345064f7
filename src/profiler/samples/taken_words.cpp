#include "profiler/samples/taken_words.h"

#include <bit>
#include <cstring>

#include "profiler/samples/mix.h"
#include "profiler/samples/user_frame.h"
#include "windlass_learned_layout.h"

namespace windlass::profiler {
namespace {

// A frame of which some words are known. Its registers have values of which only the distances count.
class TakenFrame final : public Memory {
 public:
  TakenFrame(std::span<const wl_taken> taken, std::span<const std::uint64_t> words, CodeAddress pc)
      : taken_(taken), words_(words), registers_(Architecture::kX86_64) {
    registers_.set_pc(pc);
    registers_.set_sp(base_of(Registers::sp_number(Architecture::kX86_64)));
    for (std::size_t i = 0; i < taken.size(); ++i) {
      const bool itself = (taken[i].flags & WL_TAKEN_REGISTER) != 0;
      registers_.set(taken[i].reg, itself ? words[i] : base_of(taken[i].reg));
    }
  }

  [[nodiscard]] const Registers& registers() const { return registers_; }
  bool read(std::uint64_t address, void* to, std::size_t size) const override {
    for (std::size_t i = 0; i < taken_.size(); ++i) {
      if ((taken_[i].flags & WL_TAKEN_REGISTER) != 0 || address != base_of(taken_[i].reg) + offset_of(taken_[i]))
        continue;
      if (size > sizeof words_[i]) return false;
      std::memcpy(to, &words_[i], size);
      return true;
    }
    return false;
  }

 private:
  static std::uint64_t offset_of(const wl_taken& taken) {
    return static_cast<std::uint64_t>(std::int64_t{taken.offset});
  }
  // Far apart, sp below all others.
  static std::uint64_t base_of(RegisterNumber reg) {
    constexpr std::uint64_t kApart = std::uint64_t{1} << 32;
    return reg == Registers::sp_number(Architecture::kX86_64) ? kApart : kApart * (2 + std::uint64_t{reg});
  }

  std::span<const wl_taken> taken_;
  std::span<const std::uint64_t> words_;
  Registers registers_;
};

}  // namespace

std::uint64_t TakenWords::function_of(std::uint64_t time, std::uint64_t frame, std::span<const std::uint64_t> words,
                                      const FrameTeacher::Pupil& process, FrameTeacher& teacher) {
  const wl_learned* lesson = teacher.lesson(process, frame);
  if (lesson == nullptr || lesson->taken_count != words.size()) return 0;
  std::uint64_t key = mix(mix(process.epoch, process.tgid), frame);
  for (std::size_t i = 0; i < words.size(); ++i)
    if ((lesson->taken[i].flags & WL_TAKEN_SILENT) == 0) key = mix(key, words[i]);
  auto& answers = known_.at(time);
  if (const auto known = answers.find(key); known != answers.end()) return known->second;
  const std::uint64_t address = lookup_address(frame);
  const Mapping* mapping = process.maps.find(address);
  const auto* code = mapping != nullptr ? process.maps.published_of(*mapping) : nullptr;
  if (code == nullptr) return 0;
  const TakenFrame taken({lesson->taken, words.size()}, words, code_address(frame));
  const std::uint64_t function = (*code)->frame_function(address, taken.registers(), taken);
  if (function != 0) answers.emplace(key, function);
  return function;
}

std::vector<std::uint64_t> TakenWords::functions(const Stack& stack, const FrameTeacher::Pupil& process,
                                                 FrameTeacher& teacher) {
  std::vector<std::uint64_t> functions;
  for (std::span<const std::uint64_t> words = stack.words; !words.empty();) {
    const auto head = std::bit_cast<wl_taken_head>(words.front());
    words = words.subspan(1);
    if (head.frame >= stack.frames.size() || head.count > words.size()) break;
    const std::uint64_t function =
        function_of(stack.time, stack.frames[head.frame], words.first(head.count), process, teacher);
    if (function != 0) {
      functions.resize(stack.frames.size());
      functions[head.frame] = function;
    }
    words = words.subspan(head.count);
  }
  return functions;
}

}  // namespace windlass::profiler
