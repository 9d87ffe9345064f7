// Teaches the kernel side how frames of runtimes' code are left, so that later samples need no raw stack
// (windlass_learned_layout.h). Every raw sample that was unwound is a lesson.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "profiler/processes/process_table.h"
#include "profiler/samples/raw_unwinder.h"
#include "windlass_learned_layout.h"

namespace windlass::profiler {

// One thread only.
class FrameTeacher {
 public:
  // What is taught for a key; it must outlive this.
  using Sink = std::function<void(const wl_learned_key& key, const wl_learned& lesson)>;
  explicit FrameTeacher(Sink sink) : sink_(std::move(sink)) {}

  // A process, in the state that its sample was taken in.
  struct Pupil {
    std::uint32_t tgid = 0;
    std::uint64_t epoch = 0;  // as events have it
    const MapSet& maps;       // of the sample's time
  };
  // The user frames of a sample, as wl_stack_event has them. Each frame but the last has been left. O(frames), and with
  // each frame that is new all rows of its function.
  void teach(const Pupil& pupil, std::span<const std::uint64_t> frames, std::uint64_t now);
  // Steps that the agent has checked in the sample. A place whose steps contradict each other is taught no more.
  void teach(const Pupil& pupil, std::span<const CheckedStep> steps, std::uint64_t now);
  // The lesson that frames like this were left by; null: there is none. Valid until the next call.
  [[nodiscard]] const wl_learned* lesson(const Pupil& pupil, std::uint64_t frame);
  // Grows when a lesson is another than before: other code is at the address.
  [[nodiscard]] std::uint64_t changes() const { return changes_; }

 private:
  // The kernel side may have dropped a lesson. A frame of it is then in a raw sample again.
  static constexpr std::uint64_t kAgainAfter = 1'000'000'000;  // ns
  static constexpr std::size_t kMaxKnown = std::size_t{1} << 17;
  static constexpr std::size_t kMaxBlocks = std::size_t{1} << 16;
  // How often a process is asked for functions that are new, and for how many at most.
  static constexpr std::uint64_t kAheadAfter = 100'000'000;  // ns
  static constexpr std::size_t kMostAhead = 100;
  static constexpr std::uint64_t kNear = 64 << 10;     // bytes of a function before and behind a frame's place
  static constexpr std::uint64_t kHeapNear = 4 << 20;  // bytes of a heap, the same

  struct KeyHash {
    std::size_t operator()(const wl_learned_key& key) const;
  };
  struct KeyEqual {
    bool operator()(const wl_learned_key& a, const wl_learned_key& b) const;
  };
  struct Known {
    std::uint64_t asked = 0;  // when it was taught last
    bool is_one = false;
    wl_learned lesson{};
  };

  // What was taught of a block, with its places.
  struct Block {
    std::uint64_t asked = 0;
    wl_learned lesson{};
  };
  using Blocks = std::unordered_map<wl_learned_key, Block, KeyHash, KeyEqual>;

  void teach(const wl_learned_key& key, Known& known, manager::PublishedCode& code);
  void teach_ahead(const wl_learned_key& key, manager::PublishedCode& code, std::uint64_t now);
  [[nodiscard]] bool teach_heap(const wl_learned_key& key, manager::PublishedCode& code, std::uint64_t now);
  void teach_around(const wl_learned_key& key, manager::PublishedCode& code, std::uint64_t now);
  template <typename ByBlock>
  void teach_large(const wl_learned_key& key, ByBlock& both, std::uint64_t now);
  template <typename ByBlock>
  void teach_blocks(const wl_learned_key& key, ByBlock& both, std::uint64_t now);
  void teach_block(const wl_learned_key& key, const wl_learned& lesson, std::uint64_t now);
  [[nodiscard]] bool is_in_block(const wl_learned_key& key, const wl_learned& lesson, std::uint64_t now) const;

  // What was taught of a place in code without rows.
  struct Place {
    std::uint64_t asked = 0;
    bool contradicted = false;
    wl_steady step{};
  };
  void teach_step(const wl_learned_key& key, std::uint64_t caller, Place& place, std::uint64_t now);
  // All rows of the function that has proved the step. False: there is no such function, or the row there is alone.
  bool teach_function(const wl_learned_key& key, const CheckedStep& checked, std::uint64_t now);
  // False: another step was taught of the place before. Now none is.
  bool teach(const Pupil& pupil, const CheckedStep& checked, std::uint64_t now);

  // What was taught of a place in a file, by addresses of the file. A process that runs the file, too, is taught the
  // same at its first sample: many programs end within milliseconds.
  struct OfFile {
    bool contradicted = false;
    std::vector<CheckedStep> steps;
  };
  static constexpr std::size_t kMostFiles = 64, kMostOfFile = 512, kMostCallersOfFile = 4;  // 20 MB in all
  static constexpr std::size_t kMostRows = std::size_t{32} << 10;  // of functions; other steps are taught alone
  [[nodiscard]] static CheckedStep moved(CheckedStep step, std::uint64_t by);
  [[nodiscard]] bool is_new_to(const Pupil& pupil, std::uint32_t module);
  void note(const Mapping& mapping, const CheckedStep& checked, bool fits);
  void teach_what_others_know(const Pupil& pupil, const Mapping& mapping, std::uint64_t now);

  Sink sink_;
  std::unordered_map<wl_learned_key, Place, KeyHash, KeyEqual> places_;
  std::unordered_map<std::uint32_t, std::unordered_map<std::uint64_t, OfFile>> of_files_;  // by module and frame
  std::size_t rows_of_files_ = 0;
  std::unordered_set<wl_learned_key, KeyHash, KeyEqual> given_;                     // modules in the place of the pc
  std::unordered_map<wl_learned_key, std::uint64_t, KeyHash, KeyEqual> functions_;  // by their begin, when taught last
  std::unordered_map<wl_learned_key, std::uint64_t, KeyHash, KeyEqual> calls_;      // when each was taught last
  std::unordered_map<wl_learned_key, Known, KeyHash, KeyEqual> known_;              // by address, not by block
  Blocks blocks_;
  std::unordered_map<std::uint32_t, std::uint64_t> ahead_;  // when a process was asked last, by tgid
  std::uint64_t changes_ = 0;
};

}  // namespace windlass::profiler
