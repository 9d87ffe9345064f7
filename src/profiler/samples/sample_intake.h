// The samples of a source become stacks of the profile: those unwound in the kernel as they are, raw ones unwound here.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "profiler/processes/process_table.h"
#include "profiler/samples/aggregator.h"
#include "profiler/samples/code_names.h"
#include "profiler/samples/frame_teacher.h"
#include "profiler/samples/interpreted_names.h"
#include "profiler/samples/late_samples.h"
#include "profiler/samples/postponed_samples.h"
#include "profiler/samples/process_label_sets.h"
#include "profiler/samples/raw_unwinder.h"
#include "profiler/samples/taken_words.h"
#include "profiler/samples/thread_labels.h"
#include "profiler/samples/time_line.h"
#include "profiler/samples/unjudged_samples.h"
#include "profiler/samples/window_cache.h"
#include "windlass_ends.h"
#include "windlass_event_layout.h"
#include "windlass_types.h"

namespace windlass::profiler {

// Events come in time order with those of processes, so that the table's mappings are those of the sample's time. One
// thread only.
class SampleIntake {
 public:
  // `rescan`: reads what a process has mapped once more, for mappings that no event reported (mremap, a lost record).
  // `on_generated`: that code made at run time was met which nobody is known to publish. `teach`: tells the kernel side
  // how frames of runtimes are left. All must outlive it.
  using OfProcess = std::function<void(std::uint32_t tgid)>;
  SampleIntake(const ProcessTable& table, RawUnwinder& unwinder, CodeNames& names, Aggregator& aggregator,
               OfProcess rescan, OfProcess on_generated, FrameTeacher::Sink teach)
      : table_(table),
        unwinder_(unwinder),
        names_(names),
        aggregator_(aggregator),
        rescan_(std::move(rescan)),
        on_generated_(std::move(on_generated)),
        teacher_(std::move(teach)) {}

  // What it takes to unwind a sample counts there; it must outlive this.
  void set_budget(WorkBudget& budget) {
    budget_ = &budget;
    unwinder_.set_budget(budget);
  }

  // The processes' and the threads' labels are the samples'; both must outlive this.
  void set_labels(ProcessLabelSets& labels, ThreadLabels& of_threads) {
    labels_ = &labels;
    thread_labels_ = &of_threads;
  }

  // A sample that they were writing in has its innermost frame alone. Samples of the kernel wait for them: settle()
  // does not, all that need every sample do.
  void set_writers(std::shared_future<os::RegisterWriters> writers) { unjudged_.set_writers(std::move(writers)); }
  // Samples of the kernel go to the profile.
  void judge();

  // The times of samples go there; it must outlive this. `tick_ns`: between two ticks of the clock at the full rate.
  void set_times(TimeLine& times, std::uint64_t tick_ns) {
    times_ = &times;
    tick_ns_ = tick_ns;
  }

  // Stacks of the event `allocated` have a second sample, of the event `in_use`, under a key of its own.
  void set_in_use(std::uint16_t allocated, std::uint16_t in_use) {
    allocated_ = allocated;
    in_use_ = in_use;
  }
  // The keys of these samples.
  [[nodiscard]] const std::vector<wl_stack_key>& in_use_keys() const { return in_use_keys_; }

  // A WL_EVENT_STACK, WL_EVENT_RAW, WL_EVENT_LABELS or WL_EVENT_WAKER; false for other events.
  bool take(const wl_event_head& event, std::size_t size);

  // A WL_EVENT_STACK or WL_EVENT_RAW that is taken at work_off(), as of now. False if it cannot wait: what runs
  // generated code, and what is not known, has to be read in the process at once; and there may be too many.
  bool postpone(const wl_event_head& event, std::size_t size);
  // Takes these until goes_on(), which is asked behind each, says no. False then: the rest waits.
  bool work_off(const std::function<bool()>& goes_on);
  [[nodiscard]] bool has_postponed() const { return !postponed_.empty(); }
  [[nodiscard]] const PostponedSamples& postponed() const { return postponed_; }

  // The stack of a WL_EVENT_STACK that somebody else counts; `use` is not called for a malformed one.
  using StackUse = std::function<void(StackRecord& stack, const MapSet* maps)>;
  void read_stack(const wl_event_head& head, std::size_t size, const StackUse& use);

  // Samples whose names may still come (LateSamples) are held back, and UnjudgedSamples. Those that need wait no longer
  // go to the profile now; or all, with what is known.
  void settle();
  void settle_all();
  // They are in the aggregator while `use` is called, with what is known: for a profile in between.
  void with_waiting(const std::function<void()>& use);

  // The mappings of the samples that are held back.
  void for_each_waiting(const std::function<void(const MapSet& maps)>& use) const;

  // The numbers of CodeNames mean other functions from now on.
  void forget_names() { named_ = {}; }
  // Drops what is kept of processes that the table no longer knows: modules, runtimes' structures, maps of names.
  void forget_gone();

  // Of the last raw sample whose process was asked what it says of its code at the moment; 0: there was none.
  [[nodiscard]] std::uint64_t last_asked() const { return last_asked_; }

  // How many raw samples ended in this way (wl_end) once they were unwound, in the ticks that they stand for.
  [[nodiscard]] std::uint64_t raw_ends(unsigned end) const { return raw_ends_[end]; }
  // Samples whose bytes contradict their head; none is expected from a kernel.
  [[nodiscard]] std::uint64_t malformed() const { return malformed_; }

 private:
  void on_stack(const wl_event_head& head, std::size_t size);
  void on_raw(const wl_event_head& head, std::size_t size);
  void on_waker(const wl_event_head& head, std::size_t size);
  void unwind_and_add(const wl_event_head& head, RawEvent& event);
  void add_raw(const wl_event_head& head, RawEvent& event, UnwoundStack stack);
  bool meet_generated(std::uint32_t tgid, std::span<const std::uint64_t> frames);
  // Of a sample: what its frames are named by.
  struct Named {
    std::span<const std::uint64_t> frames, functions;
    std::span<const wl_interpreted_frame> interpreted;  // if it is whole
    std::uint64_t epoch = 0;                            // of a stack of the kernel side's
  };
  [[nodiscard]] std::span<const std::uint32_t> name(const wl_event_head& head, const MapSet* maps, const Named& by,
                                                    bool late);
  [[nodiscard]] std::uint32_t name_late(const wl_event_head& head, std::uint64_t epoch, std::uint64_t frame,
                                        const CodePlace& place, std::uint64_t now);
  [[nodiscard]] StackRecord record_of(const wl_event_head& head, std::uint8_t end, std::uint8_t certainty);
  [[nodiscard]] StackRecord named_record(const WalkedSample& sample, bool late);
  // To the profile: now, or once it can be judged.
  void add(const wl_event_head& head, const StackRecord& stack, const std::shared_ptr<const MapSet>& maps,
           std::optional<wl_stack_key> key);
  void add(const WalkedSample& sample, bool late);
  // Returns the sample's number in the aggregator.
  std::size_t add_judged(const wl_event_head& head, StackRecord stack, const MapSet* maps,
                         std::optional<wl_stack_key> key);
  std::size_t add_counted(const wl_stack_key& key, StackRecord stack, const MapSet* maps, std::uint64_t count);
  void keep_time(const wl_event_head& head, std::size_t sample);
  [[nodiscard]] std::uint64_t ended(std::uint32_t tgid) const;
  [[nodiscard]] std::shared_ptr<const MapSet> shared_maps_of(std::uint32_t tgid) const;
  [[nodiscard]] std::uint8_t proven_end(std::uint32_t tgid, std::uint8_t end, std::span<const std::uint64_t> frames);
  [[nodiscard]] std::uint8_t mapped_end(std::uint32_t tgid, std::uint8_t end, std::span<const std::uint64_t> frames);
  // One that leaves a runtime's code by a frame that calls nothing but the runtime's code has skipped some.
  void judge_exits(const MapSet& maps, StackRecord& stack) const;
  [[nodiscard]] std::uint8_t silent_end(std::uint32_t tgid, std::uint8_t end,
                                        std::span<const std::uint64_t> frames) const;
  [[nodiscard]] std::uint32_t labels_of(const wl_event_head& head) const;
  [[nodiscard]] const MapSet* maps_of(std::uint32_t tgid) const;
  void rescan(std::uint32_t tgid);

  const ProcessTable& table_;
  RawUnwinder& unwinder_;
  WorkBudget* budget_ = nullptr;
  ProcessLabelSets* labels_ = nullptr;
  TimeLine* times_ = nullptr;
  std::uint64_t tick_ns_ = 0;
  std::uint16_t allocated_ = 0, in_use_ = 0;  // 0: none
  std::vector<wl_stack_key> in_use_keys_;
  ThreadLabels* thread_labels_ = nullptr;
  CodeNames& names_;
  InterpretedNames interpreted_names_;
  Aggregator& aggregator_;
  OfProcess rescan_, on_generated_;
  FrameTeacher teacher_;
  TakenWords taken_words_;
  WindowCache<std::uint32_t> named_;  // what name_late() found
  LateSamples late_;
  UnjudgedSamples unjudged_;
  PostponedSamples postponed_;
  SampleMoment* moment_ = nullptr;          // of the postponed sample at hand
  std::vector<std::uint32_t> frame_names_;  // of the sample at hand
  std::uint64_t raw_ends_[WL_END_COUNT] = {};
  std::uint64_t malformed_ = 0;
  std::uint64_t last_asked_ = 0;
};

}  // namespace windlass::profiler
