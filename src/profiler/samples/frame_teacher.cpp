#include "profiler/samples/frame_teacher.h"

#include <cstring>
#include <optional>

#include "profiler/samples/mix.h"
#include "profiler/samples/user_frame.h"

namespace windlass::profiler {
namespace {

CodeAddress at(std::uint64_t lookup, bool exact) {
  return exact ? CodeAddress::instruction(lookup) : CodeAddress::return_address(lookup + 1);
}

bool equal(const wl_learned& a, const wl_learned& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

// Has each address of a block the same answer, for frames that were interrupted? Return addresses are few, and each is
// taught alone: to ask about its neighbours is to follow code that nobody stands in.
bool is_of_block(manager::PublishedCode& code, std::uint64_t block, const wl_learned& lesson) {
  for (std::uint64_t address = block; address < block + WL_LEARNED_BLOCK_BYTES; ++address) {
    const auto other = code.lesson(at(address, true));
    if (!other || !equal(*other, lesson)) return false;
  }
  return true;
}

wl_learned_key key_of(const FrameTeacher::Pupil& pupil, std::uint64_t frame) {
  return {lookup_address(frame), pupil.epoch, pupil.tgid, is_exact(frame) ? WL_LEARNED_EXACT : 0U};
}

manager::PublishedCode* teacher_of(const MapSet& maps, std::uint64_t address) {
  const Mapping* mapping = maps.find(address);
  const auto* code = mapping != nullptr ? maps.published_of(*mapping) : nullptr;
  return code != nullptr && (*code)->teaches() ? code->get() : nullptr;
}

}  // namespace

std::size_t FrameTeacher::KeyHash::operator()(const wl_learned_key& key) const {
  return mix(mix(key.pc, key.epoch), std::uint64_t{key.tgid} << 2 | key.kind);
}

bool FrameTeacher::KeyEqual::operator()(const wl_learned_key& a, const wl_learned_key& b) const {
  return a.pc == b.pc && a.epoch == b.epoch && a.tgid == b.tgid && a.kind == b.kind;
}

void FrameTeacher::teach(const wl_learned_key& key, Known& known, manager::PublishedCode& code) {
  const bool exact = key.kind == WL_LEARNED_EXACT;
  const auto lesson = code.lesson(at(key.pc, exact));
  if (known.is_one && (!lesson || !equal(*lesson, known.lesson))) ++changes_;
  known.is_one = lesson.has_value();
  if (!lesson) return;
  known.lesson = *lesson;
  const std::uint64_t block = key.pc / WL_LEARNED_BLOCK_BYTES * WL_LEARNED_BLOCK_BYTES;
  if (exact && is_of_block(code, block, *lesson))
    sink_({block, key.epoch, key.tgid, key.kind | WL_LEARNED_BLOCK}, *lesson);
  else
    sink_(key, *lesson);
}

void FrameTeacher::teach(const Pupil& pupil, std::span<const std::uint64_t> frames, std::uint64_t now) {
  if (pupil.maps.published().empty()) return;
  if (known_.size() >= kMaxKnown) known_.clear();
  const std::uint64_t changes = changes_;
  for (std::size_t i = 0; i + 1 < frames.size(); ++i) {
    const wl_learned_key key = key_of(pupil, frames[i]);
    manager::PublishedCode* code = teacher_of(pupil.maps, key.pc);
    if (code == nullptr) continue;
    const auto [found, is_new] = known_.try_emplace(key);
    Known& known = found->second;
    if (!is_new && now - known.asked < kAgainAfter) continue;
    known.asked = now;
    teach(key, known, *code);
  }
  if (changes_ != changes) known_.clear();  // what is known of the neighbours is that of the code before
}

const wl_learned* FrameTeacher::lesson(const Pupil& pupil, std::uint64_t frame) {
  const wl_learned_key key = key_of(pupil, frame);
  const auto known = known_.find(key);
  if (known != known_.end()) return known->second.is_one ? &known->second.lesson : nullptr;
  // Another address of its block was taught.
  manager::PublishedCode* code = teacher_of(pupil.maps, key.pc);
  const auto lesson = code != nullptr ? code->lesson(code_address(frame)) : std::nullopt;
  if (!lesson) return nullptr;
  if (known_.size() >= kMaxKnown) known_.clear();
  return &(known_[key] = {0, true, *lesson}).lesson;
}

}  // namespace windlass::profiler
