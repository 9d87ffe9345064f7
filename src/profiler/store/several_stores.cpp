#include "profiler/store/several_stores.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "profiler/export/merge.h"
#include "profiler/store/batch_rows.h"

namespace windlass::store {

namespace {

Failure sums_too_large() { return fail(ErrorCode::kLimit, kTooLargeSums, 0); }

void add_or_most(std::uint64_t& to, std::uint64_t more) {
  if (__builtin_add_overflow(to, more, &to)) to = ~std::uint64_t{0};
}

bool is_same(const profile::Event& one, const profile::Event& other) {
  return std::tie(one.name, one.unit, one.counted, one.period) ==
         std::tie(other.name, other.unit, other.counted, other.period);
}

class SeveralStores final : public ProfileStore {
 public:
  explicit SeveralStores(std::vector<std::unique_ptr<ProfileStore>> stores) : stores_(std::move(stores)) {}

  Expected<bool> append(const Batch&) override {
    return fail(ErrorCode::kUnsupported, "several stores are open for reading only", 0);
  }

  Expected<std::optional<Extent>> extent() override {
    std::optional<Extent> all;
    for (const auto& store : stores_) {
      const auto one = store->extent();
      if (!one) return one;
      if (!*one) continue;
      all = all ? Extent{std::min(all->begin_ns, (*one)->begin_ns), std::max(all->end_ns, (*one)->end_ns),
                         std::max(all->interval_ns, (*one)->interval_ns)}
                : **one;
    }
    return all;
  }

  Expected<std::vector<std::string>> labels() override {
    return texts([](ProfileStore& store) { return store.labels(); });
  }
  Expected<std::vector<std::string>> values(std::string_view label) override {
    return texts([&](ProfileStore& store) { return store.values(label); });
  }

  Expected<std::vector<Series>> series(const Filter& filter, std::uint64_t from, std::uint64_t to,
                                       std::uint64_t step) override {
    std::vector<Series> all;
    for (const auto& store : stores_) {
      auto list = store->series(filter, from, to, step);
      if (!list) return list;
      for (Series& one : *list) {
        const auto known =
            std::ranges::find_if(all, [&](const Series& other) { return is_same(one.event, other.event); });
        if (known == all.end()) {
          all.push_back(std::move(one));
          continue;
        }
        for (std::size_t i = 0; i < one.steps.size(); ++i)
          if (!add_to(known->steps[i], one.steps[i])) return sums_too_large();
      }
    }
    return all;
  }

  Expected<std::vector<Total>> totals(std::string_view label, const Filter& filter, std::uint64_t from,
                                      std::uint64_t to) override {
    using Key = std::tuple<std::string, std::string, std::string, std::string, std::uint64_t>;
    std::map<Key, std::size_t> places;
    std::vector<Total> all;
    for (const auto& store : stores_) {
      auto list = store->totals(label, filter, from, to);
      if (!list) return list;
      for (Total& one : *list) {
        const profile::Event& event = one.event;
        const auto [place, is_new] =
            places.try_emplace(Key{one.value, event.name, event.unit, event.counted, event.period}, all.size());
        if (is_new)
          all.push_back(std::move(one));
        else if (!add_to(all[place->second].sums, one.sums))
          return sums_too_large();
      }
    }
    return all;
  }

  Expected<Stacks> stacks(const Filter& filter, std::uint64_t from, std::uint64_t to) override {
    Stacks all;
    for (std::size_t i = 0; i < stores_.size(); ++i) {
      auto one = stores_[i]->stacks(filter, from, to);
      if (!one) return one;
      if (const auto added = add(all, std::move(*one), i); !added) return Failure(added.error());
    }
    return all;
  }

  // A store's frames come as a profile that has a sample of each stack, and are merged as profiles are.
  Expected<std::optional<std::string>> symbols(std::string_view build_id) override {
    for (const auto& store : stores_)
      if (auto found = store->symbols(build_id); !found || *found) return found;
    return std::optional<std::string>();
  }
  Expected<Frames> frames(std::span<const std::uint64_t> stacks) override {
    std::vector<std::vector<std::uint64_t>> wanted(stores_.size());
    for (const std::uint64_t stack : stacks) wanted[stack % stores_.size()].push_back(stack / stores_.size());
    profile::Profile merged;
    std::vector<std::size_t> next(stores_.size());  // places of the stores' samples in `merged`
    for (std::size_t i = 0; i < stores_.size(); ++i) {
      auto part = stores_[i]->frames(wanted[i]);
      if (!part) return part;
      next[i] = merged.samples.size();
      exporter::merge_into(merged, profile_of(std::move(*part)));
    }
    Frames all{.modules = std::move(merged.modules),
               .functions = std::move(merged.functions),
               .locations = std::move(merged.locations),
               .stacks = {}};
    for (const std::uint64_t stack : stacks)
      all.stacks.push_back(std::move(merged.samples[next[stack % stores_.size()]++].locations));
    return all;
  }

 private:
  static profile::Profile profile_of(Frames&& frames) {
    profile::Profile profile;
    profile.modules = std::move(frames.modules);
    profile.functions = std::move(frames.functions);
    profile.locations = std::move(frames.locations);
    for (const auto& stack : frames.stacks) profile.samples.emplace_back().locations = stack;
    return profile;
  }

  // Sorted, each once.
  template <typename Ask>
  Expected<std::vector<std::string>> texts(Ask ask) {
    std::set<std::string> all;
    for (const auto& store : stores_) {
      const Expected<std::vector<std::string>> list = ask(*store);
      if (!list) return list;
      all.insert(list->begin(), list->end());
    }
    return std::vector<std::string>(all.begin(), all.end());
  }

  // `place`: of the store in stores_.
  Expected<void> add(Stacks& all, Stacks&& one, std::size_t place) const {
    std::vector<std::uint32_t> events;
    for (const profile::Event& event : one.events) {
      const auto known =
          std::ranges::find_if(all.events, [&](const profile::Event& other) { return is_same(event, other); });
      events.push_back(static_cast<std::uint32_t>(known - all.events.begin()));
      if (known == all.events.end()) all.events.push_back(event);
    }
    if (one.intervals != 0 && (all.intervals == 0 || one.begin_ns < all.begin_ns)) {
      all.begin_ns = one.begin_ns;
      all.shown_event = events[one.shown_event];
    }
    all.intervals += one.intervals;
    add_or_most(all.duration_ns, one.duration_ns);
    add_or_most(all.lost, one.lost);
    all.ends_known &= one.ends_known;
    for (std::string& comment : one.comments)
      if (std::ranges::find(all.comments, comment) == all.comments.end()) all.comments.push_back(std::move(comment));
    const auto label_sets = static_cast<std::uint32_t>(all.label_sets.size());
    std::ranges::move(one.label_sets, std::back_inserter(all.label_sets));
    for (StackSums& stack : one.stacks) {
      if (__builtin_mul_overflow(stack.stack, stores_.size(), &stack.stack) ||
          __builtin_add_overflow(stack.stack, place, &stack.stack))
        return fail(ErrorCode::kLimit, "a store has a stack whose number is too large", 0);
      stack.event = events[stack.event];
      stack.labels += label_sets;
      all.stacks.push_back(stack);
    }
    return {};
  }

  std::vector<std::unique_ptr<ProfileStore>> stores_;
};

}  // namespace

std::unique_ptr<ProfileStore> several_stores(std::vector<std::unique_ptr<ProfileStore>> stores) {
  if (stores.size() == 1) return std::move(stores.front());
  return std::make_unique<SeveralStores>(std::move(stores));
}

}  // namespace windlass::store
