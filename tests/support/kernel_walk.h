// The kernel side's walk (bpf/windlass_walk.h) as user code, over raw samples: the tables of a process's files in an
// arena, its mappings, and the memory of the sample.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "base/pointer_authentication.h"
#include "lookup/table/arena.h"
#include "lookup/table/compile.h"
#include "profiler/processes/module_registry.h"
#include "profiler/processes/process_table.h"
#include "profiler/samples/raw_event.h"
#include "windlass_user_env.h"

#include "windlass_walk.h"

namespace windlass::test {

class KernelWalk {
 public:
  using Read = std::function<bool(std::uint64_t address, void* to, std::size_t size)>;

  // Code that is in no file, and files without a table, are what they are for the kernel side. False: a table cannot be
  // made or loaded.
  static std::unique_ptr<KernelWalk> make(const profiler::MapSet& maps, profiler::ModuleRegistry& registry, Read read) {
    std::unique_ptr<KernelWalk> made(new KernelWalk(std::move(read)));
    std::vector<wl_mapping> mappings;
    for (const profiler::Mapping& mapping : maps.mappings()) {
      if (mapping.begin >> 63 != 0) continue;  // [vsyscall], which the kernel side is not told of
      profiler::CodeFile* file = mapping.generated() ? nullptr : registry.find(mapping.module);
      wl_mapping to{mapping.begin, mapping.end, mapping.bias, 0, WL_MAPPING_GENERATED};
      if (file != nullptr) {
        to.kind = WL_MAPPING_FILE;
        if (!made->module_of(mapping.module, registry.source(*file), to.module)) return nullptr;
      }
      if (const auto* code = maps.published_of(mapping); code != nullptr && (*code)->teaches())
        to.kind = WL_MAPPING_LEARNED;
      mappings.push_back(to);
    }
    if (!made->publish(mappings)) return nullptr;
    return made;
  }

  // wl_end, as the kernel side has it; the frames as its events have them.
  std::uint8_t walk(const Registers& registers, std::uint32_t frame_limit, std::vector<std::uint64_t>& frames) {
    wl_unwind& unwind = scratch_->unwind;
    unwind.cursor = {};
    for (unsigned reg = 0; reg < WL_PC; ++reg) {
      if (!registers.has(static_cast<RegisterNumber>(reg))) continue;
      unwind.cursor.regs[reg] = registers.get(static_cast<RegisterNumber>(reg));
      unwind.cursor.valid |= 1U << reg;
    }
    unwind.cursor.regs[WL_PC] = registers.pc().value();
    unwind.cursor.valid |= WL_VALID_BASE;
    unwind.cursor.exact = 1;
    wl_settle(&unwind);
    unwind.frames = unwind.first = 0;
    unwind.frame_limit = frame_limit;
    unwind.certainty = WL_DESCRIBED;
    unwind.taken_count = unwind.tgid = 0;
    unwind.epoch = 0;
    scratch_->taken_words = 0;
    unwind.next_stack = 0;
    unwind.other_stack.there = unwind.held.there = 0;
    unwind.sum = {0, 1};
    wl_walk(scratch_.get(), memo_.get(), trail_.get());
    wl_take_followed(scratch_.get(), trail_.get());
    frames.assign(scratch_->frames, scratch_->frames + unwind.frames);
    return static_cast<std::uint8_t>(unwind.end);
  }
  // What the agent teaches of process 0 in epoch 0.
  void teach(const wl_learned_key& key, const wl_learned& lesson) {
    wl_learned& kept = learned_[{key.pc, key.epoch, key.kind}] = lesson;
    kept.check = wl_learned_check(&lesson, key);
  }
  // Of the last walk, as its event has them.
  [[nodiscard]] std::span<const std::uint64_t> taken_words() const {
    return {reinterpret_cast<const std::uint64_t*>(scratch_->taken), static_cast<std::size_t>(scratch_->taken_words)};
  }

  // wl_certainty of the last walk's least certain frame.
  [[nodiscard]] std::uint8_t certainty() const { return static_cast<std::uint8_t>(scratch_->unwind.certainty); }

 private:
  static constexpr std::uint32_t kMostModules = 256, kMostChunks = 4096;

  explicit KernelWalk(Read read) : read_(std::move(read)), modules_(kMostModules) {
    wl_env& env = scratch_->unwind.env;
    scratch_->unwind.space = 1;
    env.arena = reinterpret_cast<const unsigned char*>(arena_->base());
    env.modules = modules_.data();
    env.module_count = kMostModules;
    env.address_mask = user_code_mask();
    env.context = this;
    env.learned = [](void* context, const wl_learned_key* key) -> const wl_learned* {
      const auto& learned = static_cast<KernelWalk*>(context)->learned_;
      const auto found = learned.find({key->pc, key->epoch, key->kind});
      return found != learned.end() ? &found->second : nullptr;
    };
    env.read = [](void* context, void* to, __u32 size, __u64 address) {
      return static_cast<KernelWalk*>(context)->read_(address, to, size) ? 0 : 1;
    };
  }

  bool module_of(std::uint32_t number, const sources::UnwindSource& source, std::uint32_t& id) {
    const auto [known, is_new] = ids_.try_emplace(number, static_cast<std::uint32_t>(ids_.size()));
    id = known->second;
    if (!is_new) return true;
    if (id >= kMostModules) return false;
    const auto table = table::compile(source, [](const Error&) {});
    modules_[id].state = WL_MODULE_NO_TABLE;
    if (!table || table->empty()) return true;
    const auto loaded = table::load_table(*table, *arena_);
    if (loaded) modules_[id] = loaded->module;
    return loaded.has_value();
  }
  bool publish(const std::vector<wl_mapping>& mappings) {
    const auto ref = arena_->allocate(sizeof(wl_maps_head) + mappings.size() * sizeof(wl_mapping));
    if (!ref) return false;
    std::memcpy(arena_->at(*ref) + sizeof(wl_maps_head), mappings.data(), mappings.size() * sizeof(wl_mapping));
    scratch_->unwind.maps = *ref + (sizeof(wl_maps_head) >> WL_REF_SHIFT);
    scratch_->unwind.map_count = static_cast<std::uint32_t>(mappings.size());
    return true;
  }

  Read read_;
  std::unique_ptr<table::Arena> arena_ = std::move(*table::Arena::create({}, kMostChunks));
  std::vector<wl_module> modules_;
  std::map<std::uint32_t, std::uint32_t> ids_;                                             // by the registry's number
  std::map<std::tuple<std::uint64_t, std::uint64_t, std::uint32_t>, wl_learned> learned_;  // by pc, epoch and kind
  std::unique_ptr<wl_scratch> scratch_ = std::make_unique<wl_scratch>();
  std::unique_ptr<wl_memo> memo_ = std::make_unique<wl_memo>();
  std::unique_ptr<wl_trail> trail_ = std::make_unique<wl_trail>();
};

}  // namespace windlass::test
