// Sampled stacks -> Profile: equal stacks are one sample, equal code addresses one location.
//
// Bounds: of frames of distinct stacks, of which stacks share those of their callers (up to 256 MB), of distinct
// samples, code addresses and command names. A stack that no longer fits ends as WL_END_NO_ROOM, with its innermost
// frame alone. When there is no room for that either, the sample has no frame and no process. So no sample is lost. All
// bounds begin anew with forget().
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "profiler/processes/process_table.h"
#include "profiler/profile/profile.h"
#include "profiler/samples/code_names.h"
#include "profiler/samples/number_table.h"
#include "profiler/samples/process_label_sets.h"
#include "profiler/samples/stack_tree.h"
#include "windlass_ends.h"
#include "windlass_event_layout.h"

namespace windlass::profiler {

// One stack as sampled, innermost frame first. The spans are only read during the call.
struct StackRecord {
  std::uint32_t tgid = 0, tid = 0;
  std::string_view comm;
  std::uint16_t event = 0;   // which of the recording's
  std::uint16_t reason = 0;  // wl_wait_reason
  std::uint32_t labels = 0;  // of ProcessLabelSets
  std::uint8_t end = WL_END_COMPLETE;
  std::uint8_t certainty = WL_DESCRIBED;
  std::span<const std::uint64_t> kernel;
  std::span<const std::uint32_t> names;  // of CodeNames, of each user frame; empty: none has one
  std::span<const std::uint64_t> user;   // WL_FRAME_EXACT set: an instruction's address; else a return address
};

class Aggregator {
 public:
  struct Bounds {
    std::size_t frames = std::size_t{16} << 20;
    std::size_t samples = std::size_t{4} << 20;
    // Of all samples together, each with its own copy, as a changed profile may have them.
    std::size_t sample_frames = std::size_t{64} << 20;
    std::size_t locations = std::size_t{8} << 20;
    std::size_t alone = std::size_t{64} << 10;  // samples more that keep their innermost frame alone
    std::size_t strings = 65535;                // at most
    std::size_t anonymous_modules = 16384;      // one a process; later processes share one
  };
  Aggregator() = default;
  explicit Aggregator(const Bounds& bounds) : bounds_(bounds) {}

  // Adds `count` samples with this stack. `maps`: the process's as of the sample; null = unknown. Returns the sample's
  // number. Amortised O(frames * log mappings).
  std::size_t add(const StackRecord& stack, const MapSet* maps, std::uint64_t count);
  // Takes `count` of a sample's number back.
  void take_back(std::size_t sample, std::uint64_t count) { samples_[sample].count -= count; }
  // A sample's number counts `now` in place of `before`, which was added by this function; nothing at first. Wraps: the
  // sums of several are right.
  void change(std::size_t sample, const wl_count& before, const wl_count& now);
  // The same as add(), for a stack whose repeats the kernel side counts under `key`. A key that is known is this
  // sample's from now on.
  std::size_t add_counted(const wl_stack_key& key, const StackRecord& stack, const MapSet* maps, std::uint64_t count);

  // The wait of one key is counted under another from now on, with its waker. Their stacks may come later.
  void add_waker(const wl_waker_event& event);
  // Joins the stacks of waits with those of their wakers, as far as these are known: for settle() and build().
  void join_wakers();

  // The kernel side's counts as of now; `unknown` receives those of stacks whose event never arrived.
  using Counts = std::function<void(const std::function<void(const wl_stack_key&, const wl_count&)>&)>;
  using Keys = std::function<void(const std::function<void(const wl_stack_key&)>&)>;
  // Books the counts; for when the kernel side starts counting anew. It still counts under the keys of `kept`, which is
  // called behind `counts`.
  void settle(const Counts& counts, std::uint64_t& unknown, const Keys& kept = {});
  [[nodiscard]] std::size_t counted_stacks() const { return counted_.size() + wakers_.size(); }
  // Forgets all samples, locations and modules, right behind settle(). What the kernel side still counts under the keys
  // that were kept has no samples yet. `told`: of build_since(); what it says of waits that go on stays.
  // `labels` and `names` give the old numbers of a label set and of a name their new ones.
  using Renumber = std::function<std::uint32_t(std::uint32_t number)>;
  void forget(std::vector<wl_count>& told, const Renumber& labels, const Renumber& names);
  struct Use {
    const char* name;
    std::size_t used, most;
  };
  // How much of each of the bounds is used.
  [[nodiscard]] std::vector<Use> uses() const;
  [[nodiscard]] bool is_half_full() const;  // one of the bounds
  // Has a stack ended as WL_END_NO_ROOM, since the last forget()?
  [[nodiscard]] bool has_cut() const { return has_cut_; }
  // The number of the sample that the key means now.
  [[nodiscard]] std::optional<std::uint32_t> sample_of(const wl_stack_key& key) const {
    const auto known = number_of(key);
    return known ? std::optional(counted_[*known].sample) : std::nullopt;
  }
  // Is a frame in that module of ModuleRegistry's?
  [[nodiscard]] bool has_module(std::uint32_t number) const {
    return use_numbers_.contains(use_key(ModuleUse::Kind::kRegistry, number));
  }

  // Everything so far, with `counts` on top. `fill_module(number, module)` describes module numbers of Mapping.
  // The Profile's modules are only those that some location is in, the kernel first. `names` gave the stacks' names,
  // and `labels` are what StackRecord::labels counts. `numbers` gets the number of each of the Profile's samples.
  using ModuleFiller = std::function<void(std::uint32_t number, profile::Module& module)>;
  [[nodiscard]] profile::Profile build(const Counts& counts, std::uint64_t& unknown, const ModuleFiller& fill_module,
                                       const CodeNames& names = {}, std::span<const ProcessLabelSets::Set> labels = {},
                                       std::vector<std::uint32_t>* numbers = nullptr) const;
  // The same of what has come since `told` was last given, or since the start if it is empty. The Profile's locations
  // are only those of its samples. The modules have the same numbers each time, until forget().
  // A wait that goes on is a sample each time. All but the first count nothing, and have the time since the last.
  [[nodiscard]] profile::Profile build_since(std::vector<wl_count>& told, const Counts& counts, std::uint64_t& unknown,
                                             const ModuleFiller& fill_module, const CodeNames& names = {},
                                             std::span<const ProcessLabelSets::Set> labels = {}) const;

  // Calls take(number of ModuleRegistry's, address) for the addresses in files behind the first `from` addresses.
  // Returns how many addresses there are: `from` of the next call, until forget().
  [[nodiscard]] std::size_t for_code_since(
      std::size_t from, const std::function<void(std::uint32_t module, std::uint64_t address)>& take) const;

  // What the outermost known frame of a truncated stack is in. kNothing: it has no frame.
  enum class TruncatedIn : std::uint8_t { kFile, kKernel, kGenerated, kUnmapped, kWaker, kNothing };
  struct Truncation {
    std::uint8_t end;
    TruncatedIn in;
    std::uint32_t module;  // of kFile: ModuleRegistry's number
    std::uint64_t count;
  };
  // Where the truncated stacks end, most frequent first.
  [[nodiscard]] std::vector<Truncation> truncations(const Counts& counts) const;

 private:
  class FunctionNumbers;
  void add_modules(profile::Profile& profile, const ModuleFiller& fill_module, const CodeNames& names) const;
  void add_location(profile::Profile& profile, std::uint32_t number, const CodeNames& names,
                    FunctionNumbers& functions) const;
  [[nodiscard]] profile::Sample sample(std::size_t number, const wl_count& count) const;
  struct Place {  // module in the upper numbering below, the address in it, and what it was called then
    std::uint32_t module;
    std::uint32_t name;
    std::uint64_t address;
    bool operator==(const Place&) const = default;
    [[nodiscard]] std::uint64_t hash() const { return mix(mix(address, module), name) >> 16; }
  };
  // Whose samples: a thread under one name, in one event.
  struct Origin {
    std::uint32_t tgid, tid;
    std::uint16_t comm;  // in strings_; kNoComm
    std::uint16_t event, reason;
    std::uint32_t labels;
    bool operator==(const Origin&) const = default;
    [[nodiscard]] std::uint64_t hash() const;
  };
  // What tells samples apart.
  struct SampleKey {
    std::uint32_t stack;   // in stacks_
    std::uint32_t origin;  // in origins_
    std::uint8_t end, certainty;
    bool operator==(const SampleKey&) const = default;
    [[nodiscard]] std::uint64_t hash() const;
  };
  static constexpr std::uint16_t kNoComm = 0xffff;
  struct Stored {
    std::uint64_t count;
    SampleKey key;
  };
  struct Counted {
    wl_stack_key key;
    std::uint32_t sample;
  };
  struct Woken {
    wl_stack_key wait, waker;  // waker.hash 0: there is no stack of it
    std::uint16_t comm;        // of the waker
  };
  struct HashOfKey {
    std::size_t operator()(const wl_stack_key& key) const { return hash_of(key); }
  };
  struct SameKey {
    bool operator()(const wl_stack_key& a, const wl_stack_key& b) const {
      return a.hash == b.hash && a.tgid == b.tgid && a.tid == b.tid;
    }
  };
  // What a location's module number means: the kernel, a registry module, or the run-time code of one process. Or the
  // frame between a wait and its waker, whose address is the waker's name in strings_ and kTruncatedWaker.
  static constexpr std::uint64_t kTruncatedWaker = 1 << 16;
  struct ModuleUse {
    enum class Kind : std::uint8_t { kKernel, kRegistry, kAnonymous, kUnknown, kWaker } kind;
    std::uint32_t number;  // registry number, or tgid
  };

  static TruncatedIn truncated_in(ModuleUse::Kind kind);
  static std::uint64_t use_key(ModuleUse::Kind kind, std::uint32_t number) {
    return std::uint64_t{static_cast<std::uint8_t>(kind)} << 32 | number;
  }
  std::uint32_t location(std::uint32_t use, std::uint64_t address, std::uint32_t name = CodeNames::kUnknown);
  std::uint32_t use_of(ModuleUse::Kind kind, std::uint32_t number);
  std::uint32_t user_location(std::uint64_t frame, std::uint32_t tgid, const MapSet* maps, std::uint32_t name);
  std::uint16_t comm(std::string_view text);
  std::size_t find_or_store(const StackRecord& stack, std::span<const std::uint32_t> frames);
  std::size_t store_alone(const StackRecord& stack, std::span<const std::uint32_t> frames);
  // In counted_.
  [[nodiscard]] std::optional<std::uint32_t> number_of(const wl_stack_key& key) const;
  static std::uint64_t hash_of(const wl_stack_key& key) { return mix(key.hash, key.tid) >> 16; }
  std::uint32_t origin(const Origin& origin);
  std::uint32_t origin_of(const StackRecord& stack);
  void remember(const wl_stack_key& key, std::uint32_t sample);
  struct Renumbering {
    const Renumber &labels, &names;
  };
  [[nodiscard]] std::uint32_t copy_location(const Aggregator& from, std::uint32_t number, const Renumbering& anew);
  [[nodiscard]] std::optional<std::uint32_t> copy_sample(const Aggregator& from, std::uint32_t number,
                                                         const Renumbering& anew);
  [[nodiscard]] std::optional<std::uint32_t> store(const SampleKey& key, std::size_t frames, const Bounds& bounds);
  [[nodiscard]] std::optional<std::uint32_t> join(const Woken& woken);
  [[nodiscard]] std::string waker_text(std::uint64_t address) const;
  [[nodiscard]] std::vector<wl_count> totals(const Counts& counts, std::uint64_t& unknown) const;

  Bounds bounds_;
  StackTree stacks_;  // of location numbers
  std::deque<Origin> origins_;
  NumberTable origin_numbers_;
  std::deque<Stored> samples_;
  std::deque<std::uint64_t> values_;  // of the first samples; the others have none
  std::uint64_t sample_frames_ = 0;
  NumberTable sample_numbers_;
  std::deque<Counted> counted_;
  NumberTable counted_numbers_;
  std::unordered_map<wl_stack_key, Woken, HashOfKey, SameKey> wakers_;  // by the key that counts
  std::deque<Place> locations_;
  NumberTable location_numbers_;
  std::vector<ModuleUse> uses_;
  std::unordered_map<std::uint64_t, std::uint32_t> use_numbers_;
  std::size_t anonymous_uses_ = 0;
  std::vector<std::string> strings_;
  std::unordered_map<std::string, std::uint16_t> string_numbers_;
  std::vector<std::uint32_t> scratch_;
  bool has_cut_ = false;
};

}  // namespace windlass::profiler
