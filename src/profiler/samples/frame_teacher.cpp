#include "profiler/samples/frame_teacher.h"

#include <cstring>

#include "profiler/samples/user_frame.h"

namespace windlass::profiler {
namespace {

CodeAddress at(std::uint64_t lookup, bool exact) {
  return exact ? CodeAddress::instruction(lookup) : CodeAddress::return_address(lookup + 1);
}

// Has each address of a block the same answer?
bool is_of_block(manager::PublishedCode& code, std::uint64_t block, bool exact, const wl_learned& lesson) {
  for (std::uint64_t address = block; address < block + WL_LEARNED_BLOCK_BYTES; ++address) {
    const auto other = code.lesson(at(address, exact));
    if (!other || std::memcmp(&*other, &lesson, sizeof lesson) != 0) return false;
  }
  return true;
}

}  // namespace

void FrameTeacher::teach(const wl_learned_key& key, manager::PublishedCode& code) {
  const bool exact = key.kind == WL_LEARNED_EXACT;
  const auto lesson = code.lesson(at(key.pc, exact));
  if (!lesson) return;
  const std::uint64_t block = key.pc / WL_LEARNED_BLOCK_BYTES * WL_LEARNED_BLOCK_BYTES;
  if (is_of_block(code, block, exact, *lesson))
    sink_({block, key.space, key.kind | WL_LEARNED_BLOCK}, *lesson);
  else
    sink_(key, *lesson);
}

void FrameTeacher::teach(std::uint32_t space, const MapSet& maps, std::span<const std::uint64_t> frames,
                         std::uint64_t now) {
  if (space == 0 || maps.published().empty()) return;
  if (asked_.size() >= kMaxKnown) asked_.clear();
  for (std::size_t i = 0; i + 1 < frames.size(); ++i) {
    const Mapping* mapping = maps.find(lookup_address(frames[i]));
    const auto* code = mapping != nullptr ? maps.published_of(*mapping) : nullptr;
    if (code == nullptr || !(*code)->teaches()) continue;
    const wl_learned_key key{lookup_address(frames[i]), space, is_exact(frames[i]) ? WL_LEARNED_EXACT : 0U};
    const auto [asked, is_new] = asked_.try_emplace(key, now);
    if (!is_new && now - asked->second < kAgainAfter) continue;
    asked->second = now;
    teach(key, **code);
  }
}

}  // namespace windlass::profiler
