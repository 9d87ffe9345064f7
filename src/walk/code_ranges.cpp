#include "walk/code_ranges.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/static_storage.h"
#include "walk/range_source.h"

namespace windlass::walk {
namespace {

constinit StaticStorage<GracePeriod> grace_period;
constinit StaticStorage<CodeRanges> own;

}  // namespace

GracePeriod& code_grace_period() { return grace_period.value; }
[[gnu::hot]] CodeRanges& own_code_ranges() { return own.value; }

// What one change takes away, freed in one piece.
struct CodeRanges::Replaced {
  std::unique_ptr<const Index> index;
  std::unique_ptr<const Block> block;
  std::unique_ptr<const Module> module;
};

CodeRanges::~CodeRanges() {
  const std::unique_ptr<const Index> index(index_.load(std::memory_order_relaxed));
  if (index == nullptr) return;
  for (const Place& place : index->places) {
    for (const Entry& entry : *place.block) delete entry.module;
    delete place.block;
  }
}

// The last block that begins at or before the address, or the first.
std::size_t CodeRanges::place_of(const Index& index, std::uint64_t address) {
  const auto behind = std::ranges::upper_bound(index.places, address, {}, &Place::begin);
  return behind == index.places.begin() ? 0 : static_cast<std::size_t>(behind - index.places.begin()) - 1;
}

const Module* CodeRanges::search(const Index& index, std::uint64_t address) {
  const Block& block = *index.places[place_of(index, address)].block;
  const auto behind = std::ranges::upper_bound(block, address, {}, &Entry::begin);
  return behind != block.begin() && address < behind[-1].end ? behind[-1].module : nullptr;
}

Expected<void> CodeRanges::check_free(std::uint64_t begin, std::uint64_t end) const {
  const Index* index = index_.load(std::memory_order_relaxed);
  if (index == nullptr) return {};
  const auto taken = [](std::uint64_t by) {
    return fail(ErrorCode::kMalformed, "code range overlaps another one, which must be retired first", by);
  };
  if (const Module* last = search(*index, end - 1); last != nullptr) return taken(last->info().begin);
  // Else one that overlaps begins within, so the last one that begins before the end does.
  const std::size_t place = place_of(*index, end - 1);
  const Block& block = *index->places[place].block;
  const auto behind = std::ranges::upper_bound(block, end - 1, {}, &Entry::begin);
  if (behind != block.begin() && behind[-1].end > begin) return taken(behind[-1].begin);
  return {};
}

// Publishes an index with `block` in a place (in two, where it is too large; none, where it is empty). Takes what was
// there, and the module that is gone, away.
void CodeRanges::replace(std::size_t place, const Block& block, const Module* gone) {
  const Index* const old = index_.load(std::memory_order_relaxed);
  auto index = old != nullptr ? std::make_unique<Index>(*old) : std::make_unique<Index>();
  auto replaced = std::make_unique<Replaced>();
  replaced->index.reset(old);
  replaced->module.reset(gone);
  std::vector<Place>& places = index->places;
  if (old != nullptr) {
    replaced->block.reset(places[place].block);
    places.erase(places.begin() + static_cast<std::ptrdiff_t>(place));
  }
  const std::size_t half = block.size() > kBlock ? block.size() / 2 : block.size();
  for (std::size_t from = 0, to = half; from < to; from = to, to = block.size()) {
    const auto* part =
        new Block(block.begin() + static_cast<std::ptrdiff_t>(from), block.begin() + static_cast<std::ptrdiff_t>(to));
    places.insert(places.begin() + static_cast<std::ptrdiff_t>(place++), Place{part->front().begin, part});
  }
  index_.store(places.empty() ? nullptr : index.release(), std::memory_order_seq_cst);
  code_grace_period().retire(replaced.release());
}

Expected<CodeRangeId> CodeRanges::add(CodeRange range, Architecture architecture) {
  if (range.begin >= range.end) return fail(ErrorCode::kMalformed, "code range is empty", range.begin, range.end);
  ModuleInfo info{range.begin, range.end, range.bias, std::move(range.name), {}};
  auto source = make_range_source(std::move(range), architecture);
  if (!source) return Failure(source.error());
  auto module = std::make_unique<Module>(std::move(info), std::move(*source), nullptr);
  const std::uint64_t id = module->id();
  return insert(std::move(module), id);
}

Expected<CodeRangeId> CodeRanges::add_changing(ModuleInfo info, std::unique_ptr<sources::UnwindSource> source,
                                               std::shared_ptr<sources::NameSource> names) {
  auto module = std::make_unique<Module>(std::move(info), std::move(source), std::move(names));
  const std::uint64_t id = module->id();
  module->forget_id();
  module->keep_until_taken_away();
  return insert(std::move(module), id);
}

Expected<CodeRangeId> CodeRanges::insert(std::unique_ptr<const Module> module, std::uint64_t id) {
  const Entry entry{module->info().begin, module->info().end, module.get()};

  const std::lock_guard hold(lock_);
  if (const auto free = check_free(entry.begin, entry.end); !free) return Failure(free.error());
  if (begin_of_ == nullptr) begin_of_ = std::make_unique<std::unordered_map<std::uint64_t, std::uint64_t>>();
  begin_of_->emplace(id, entry.begin);
  const Index* index = index_.load(std::memory_order_relaxed);
  const std::size_t place = index != nullptr ? place_of(*index, entry.begin) : 0;
  Block block = index != nullptr ? *index->places[place].block : Block();
  block.insert(std::ranges::upper_bound(block, entry.begin, {}, &Entry::begin), entry);
  replace(place, block, nullptr);
  (void)module.release();
  return CodeRangeId{id};
}

Expected<void> CodeRanges::retire(CodeRangeId id) {
  const std::lock_guard hold(lock_);
  const auto number = static_cast<std::uint64_t>(id);
  const auto known = begin_of_ != nullptr ? begin_of_->find(number) : decltype(begin_of_->find(number)){};
  if (begin_of_ == nullptr || known == begin_of_->end())
    return fail(ErrorCode::kNotFound, "no code range has this id: it was retired before, or added elsewhere", number);
  const Index& index = *index_.load(std::memory_order_relaxed);
  const std::size_t place = place_of(index, known->second);
  Block block = *index.places[place].block;
  const auto entry = std::ranges::lower_bound(block, known->second, {}, &Entry::begin);
  const Module* const gone = entry->module;
  block.erase(entry);
  begin_of_->erase(known);
  replace(place, block, gone);
  return {};
}

CodeRangeId CodeRanges::at(std::uint64_t begin) const {
  const View view(*this);
  const Module* found = view.find(begin);
  return found != nullptr && found->info().begin == begin ? CodeRangeId{found->id()} : CodeRangeId::kNone;
}

}  // namespace windlass::walk
