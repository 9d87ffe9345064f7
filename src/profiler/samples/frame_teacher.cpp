#include "profiler/samples/frame_teacher.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <optional>
#include <vector>

#include "lookup/table/project.h"
#include "profiler/samples/mix.h"
#include "profiler/samples/user_frame.h"

namespace windlass::profiler {
namespace {

CodeAddress at(std::uint64_t lookup, bool exact) {
  return exact ? CodeAddress::instruction(lookup) : CodeAddress::return_address(lookup + 1);
}

bool equal(const wl_learned& a, const wl_learned& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

// But for the places.
bool is_same(wl_learned a, const wl_learned& b) {
  a.places = b.places;
  return equal(a, b);
}

// Lessons of one block of code by the places they hold for.
class BlockLessons {
 public:
  // For the places that no lesson was added for before.
  void add(std::uint64_t places, const std::optional<wl_learned>& lesson) {
    places &= ~taken_;
    taken_ |= places;
    if (!lesson || places == 0) return;
    const auto known = std::ranges::find_if(lessons_, [&](wl_learned& it) { return is_same(it, *lesson); });
    wl_learned& to = known != lessons_.end() ? *known : lessons_.emplace_back(*lesson);
    to.places |= places;
  }
  // Not for these places any more.
  void remove(std::uint64_t places, const wl_learned& lesson) {
    for (wl_learned& known : lessons_)
      if (is_same(known, lesson)) known.places &= ~places;
  }
  [[nodiscard]] const std::vector<wl_learned>& all() const { return lessons_; }
  // That of the most places; null: there is none.
  [[nodiscard]] const wl_learned* best() const {
    const auto found = std::ranges::max_element(lessons_, {}, [](auto& it) { return std::popcount(it.places); });
    return found != lessons_.end() && found->places != 0 ? &*found : nullptr;
  }

 private:
  std::uint64_t taken_ = 0;
  std::vector<wl_learned> lessons_;
};

constexpr std::uint64_t block_of(std::uint64_t address) { return address & ~std::uint64_t{WL_LEARNED_BLOCK_BYTES - 1}; }
constexpr std::uint64_t place_of(std::uint64_t address) { return std::uint64_t{1} << (address - block_of(address)); }

// The same of large blocks.
constexpr std::uint64_t kPiece = std::uint64_t{1} << WL_LEARNED_PIECE_SHIFT;  // bytes
constexpr std::uint64_t large_of(std::uint64_t address) { return address & ~std::uint64_t{WL_LEARNED_LARGE_BYTES - 1}; }
constexpr unsigned piece_of(std::uint64_t address) {
  return static_cast<unsigned>((address - large_of(address)) / kPiece);
}

// The pieces of its large block that a block has all the places of.
std::uint64_t pieces_of(std::uint64_t block, std::uint64_t places) {
  constexpr std::uint64_t kAll = (std::uint64_t{1} << kPiece) - 1;
  std::uint64_t pieces = 0;
  for (unsigned i = 0; i < WL_LEARNED_BLOCK_BYTES / kPiece; ++i)
    if ((places >> i * kPiece & kAll) == kAll) pieces |= std::uint64_t{1} << (piece_of(block) + i);
  return pieces;
}

// The other way.
std::uint64_t places_of(std::uint64_t block, std::uint64_t pieces) {
  constexpr std::uint64_t kAll = (std::uint64_t{1} << kPiece) - 1;
  std::uint64_t places = 0;
  for (unsigned i = 0; i < WL_LEARNED_BLOCK_BYTES / kPiece; ++i)
    if ((pieces >> (piece_of(block) + i) & 1) != 0) places |= kAll << i * kPiece;
  return places;
}

// Calls visit(block, places) for all blocks of a stretch of code.
template <typename Visit>
void for_each_block(const AddressRange& stretch, Visit&& visit) {
  for (std::uint64_t at = stretch.begin; at < stretch.end;) {
    const std::uint64_t block = block_of(at),
                        end = std::min<std::uint64_t>(stretch.end, block + WL_LEARNED_BLOCK_BYTES);
    visit(block, (place_of(end - 1) << 1) - place_of(at));
    at = end;
  }
}

// Was it so long ago, or never? Then it is now. `last`: when, in ns; 0: never.
bool is_due(std::uint64_t& last, std::uint64_t now, std::uint64_t after) {
  if (last != 0 && now - last < after) return false;
  last = now;
  return true;
}

// Of a block that has the key's address.
constexpr std::uint32_t kind_of(const wl_learned_key& key) { return key.kind | WL_LEARNED_BLOCK; }

wl_learned_key key_of(const FrameTeacher::Pupil& pupil, std::uint64_t frame) {
  return {lookup_address(frame), pupil.epoch, pupil.tgid, is_exact(frame) ? WL_LEARNED_EXACT : 0U};
}

manager::PublishedCode* teacher_of(const MapSet& maps, std::uint64_t address) {
  const Mapping* mapping = maps.find(address);
  const auto* code = mapping != nullptr ? maps.published_of(*mapping) : nullptr;
  return code != nullptr && (*code)->teaches() ? code->get() : nullptr;
}

// Of a step in a file's code: its mapping, if the caller is in the same file. Null of others, and of code that changes.
const Mapping* mapping_of(const MapSet& maps, const CheckedStep& step) {
  const Mapping* mapping = step.step.guard == 0 ? maps.find(lookup_address(step.frame)) : nullptr;
  if (mapping == nullptr || mapping->kind != MappingKind::kFile) return nullptr;
  const Mapping* caller = step.caller != 0 ? maps.find(step.caller - 1) : mapping;
  const bool same = caller != nullptr && caller->module == mapping->module && caller->bias == mapping->bias;
  return same ? mapping : nullptr;
}

}  // namespace

std::size_t FrameTeacher::KeyHash::operator()(const wl_learned_key& key) const {
  return mix(mix(key.pc, key.epoch), std::uint64_t{key.tgid} << 2 | key.kind);
}

bool FrameTeacher::KeyEqual::operator()(const wl_learned_key& a, const wl_learned_key& b) const {
  return a.pc == b.pc && a.epoch == b.epoch && a.tgid == b.tgid && a.kind == b.kind;
}

void FrameTeacher::teach(const wl_learned_key& key, Known& known, manager::PublishedCode& code) {
  const bool in_heap = teach_heap(key, code, known.asked);
  const auto lesson = code.lesson(at(key.pc, key.kind == WL_LEARNED_EXACT));
  if (known.is_one && (!lesson || !equal(*lesson, known.lesson))) ++changes_;
  known.is_one = lesson.has_value();
  if (!lesson) return;
  known.lesson = *lesson;
  // The kernel side leaves some interrupted instructions of a heap to the agent: those that may be in an epilogue.
  const bool is_read = in_heap && key.kind != WL_LEARNED_EXACT;
  if (!is_read && !is_in_block(key, *lesson, known.asked)) teach_around(key, code, known.asked);
  if (!is_in_block(key, *lesson, known.asked)) sink_(key, *lesson);
  if (!in_heap) teach_ahead(key, code, known.asked);
}

// Where one function is new, others are.
void FrameTeacher::teach_ahead(const wl_learned_key& key, manager::PublishedCode& code, std::uint64_t now) {
  if (ahead_.size() >= kMaxKnown) ahead_.clear();
  if (!is_due(ahead_[key.tgid], now, kAheadAfter)) return;
  for (const std::uint64_t begin : code.new_functions(kMostAhead))
    teach_around({begin, key.epoch, key.tgid, WL_LEARNED_EXACT}, code, now);
}

// Of a heap that the kernel side reads by itself. False: there is none.
bool FrameTeacher::teach_heap(const wl_learned_key& key, manager::PublishedCode& code, std::uint64_t now) {
  const auto part = [&](std::uint64_t address) -> wl_learned_key {
    return {address & ~std::uint64_t{WL_LEARNED_HEAP_BYTES - 1}, key.epoch, key.tgid, WL_LEARNED_HEAP};
  };
  if (const auto known = blocks_.find(part(key.pc));
      known != blocks_.end() && now - known->second.asked < kAgainAfter) {
    const auto heap = std::bit_cast<wl_code_heap>(known->second.lesson);
    if (key.pc >= heap.begin && key.pc < heap.end) return true;
  }
  const auto heap = code.heap_of(key.pc);
  if (!heap || key.pc < heap->begin || key.pc >= heap->end) return false;
  const std::uint64_t pc = key.pc, first = pc - std::min(pc, kHeapNear), last = pc + std::min(~pc, kHeapNear);
  const std::uint64_t begin = std::max<std::uint64_t>(heap->begin, first),
                      end = std::min<std::uint64_t>(heap->end, last);
  const auto lesson = std::bit_cast<wl_learned>(*heap);
  for (std::uint64_t at = part(begin).pc; at < end; at += WL_LEARNED_HEAP_BYTES) {
    if (blocks_.size() >= kMaxBlocks) blocks_.clear();
    blocks_[part(at)] = {now, lesson};
    sink_(part(at), lesson);
  }
  return true;
}

// Was the lesson taught lately with all the block that the address is in?
bool FrameTeacher::is_in_block(const wl_learned_key& key, const wl_learned& lesson, std::uint64_t now) const {
  const std::uint32_t of_steps = key.kind & WL_LEARNED_STEP;
  const auto has = [&](std::uint32_t kind) {
    const auto found = blocks_.find({block_of(key.pc), key.epoch, key.tgid, of_steps | kind | WL_LEARNED_BLOCK});
    if (found == blocks_.end() || now - found->second.asked >= kAgainAfter) return false;
    const wl_learned& known = found->second.lesson;
    return (known.places & place_of(key.pc)) != 0 && is_same(known, lesson);
  };
  const auto has_large = [&] {
    const auto found =
        blocks_.find({large_of(key.pc), key.epoch, key.tgid, of_steps | WL_LEARNED_BLOCK | WL_LEARNED_LARGE});
    if (found == blocks_.end() || now - found->second.asked >= kAgainAfter) return false;
    return (found->second.lesson.places >> piece_of(key.pc) & 1) != 0 && is_same(found->second.lesson, lesson);
  };
  return has(0) || has_large() || (key.kind == WL_LEARNED_EXACT && has(WL_LEARNED_EXACT));
}

// A lesson that holds for most of a large block is taught once for all of its whole pieces there. Two functions cannot
// both have most of a block.
template <typename ByBlock>
void FrameTeacher::teach_large(const wl_learned_key& key, ByBlock& both, std::uint64_t now) {
  constexpr int kMost = 64 / 2 + 1;
  for (auto from = both.begin(); from != both.end();) {
    const std::uint64_t large = large_of(from->first);
    const auto to = both.lower_bound(large + WL_LEARNED_LARGE_BYTES);
    BlockLessons pieces;
    for (auto it = from; it != to; ++it)
      for (const wl_learned& lesson : it->second.all()) {
        wl_learned alone = lesson;
        alone.places = 0;
        pieces.add(pieces_of(it->first, lesson.places), alone);
      }
    if (const wl_learned* best = pieces.best(); best != nullptr && std::popcount(best->places) >= kMost) {
      teach_block({large, key.epoch, key.tgid, kind_of(key) | WL_LEARNED_LARGE}, *best, now);
      for (auto it = from; it != to; ++it) it->second.remove(places_of(it->first, best->places), *best);
    }
    from = to;
  }
}

template <typename ByBlock>
void FrameTeacher::teach_blocks(const wl_learned_key& key, ByBlock& blocks, std::uint64_t now) {
  for (const auto& [block, lessons] : blocks)
    if (const wl_learned* best = lessons.best()) teach_block({block, key.epoch, key.tgid, kind_of(key)}, *best, now);
}

// What the kernel side needs for one frame of a function is most of what it needs for the others.
void FrameTeacher::teach_around(const wl_learned_key& key, manager::PublishedCode& code, std::uint64_t now) {
  const bool exact = key.kind == WL_LEARNED_EXACT;
  const std::uint64_t pc = key.pc, first = pc - std::min(pc, kNear), last = pc + std::min(~pc, kNear);
  std::map<std::uint64_t, BlockLessons> both, interrupted;
  for (const auto& lessons : code.lessons_around(at(key.pc, exact))) {
    const bool same = lessons.interrupted && lessons.called && equal(*lessons.interrupted, *lessons.called);
    const AddressRange& stretch = lessons.stretch;
    const AddressRange near{std::max(stretch.begin, first), std::min(stretch.end, last)};
    for_each_block(near, [&](std::uint64_t block, std::uint64_t places) {
      both[block].add(places, same ? lessons.called : std::nullopt);
      if (!same) interrupted[block].add(places, lessons.interrupted);
    });
  }
  const wl_learned_key any{key.pc, key.epoch, key.tgid, 0};
  teach_large(any, both, now);
  teach_blocks(any, both, now);
  teach_blocks({key.pc, key.epoch, key.tgid, WL_LEARNED_EXACT}, interrupted, now);
}

// A block may have the end of one function and the begin of the next.
void FrameTeacher::teach_block(const wl_learned_key& key, const wl_learned& lesson, std::uint64_t now) {
  if (blocks_.size() >= kMaxBlocks) blocks_.clear();
  Block& block = blocks_[key];
  wl_learned wanted = lesson;
  if (is_same(block.lesson, lesson))
    wanted.places |= block.lesson.places;
  else if (lesson.guard_address == 0 && block.lesson.guard_address == 0 &&
           std::popcount(block.lesson.places) > std::popcount(lesson.places))
    return;
  if (equal(wanted, block.lesson) && now - block.asked < kAgainAfter) return;
  block = {now, wanted};
  sink_(key, wanted);
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
  if (changes_ == changes) return;
  known_.clear();  // what is known of the neighbours is that of the code before
  blocks_.clear();
}

namespace {

// What holds for both steps: the frame is laid out as either asks. Nothing: they contradict each other.
std::optional<wl_steady> both(const wl_steady& known, const wl_steady& other) {
  const auto agree = [](std::int32_t a, std::int32_t b) { return a == b || a == 0 || b == 0; };
  if (std::memcmp(&known.rule, &other.rule, sizeof known.rule) != 0 || known.certainty != other.certainty ||
      !agree(known.from_sp, other.from_sp) || !agree(known.from_fp, other.from_fp))
    return std::nullopt;
  wl_steady made = known;
  if (other.word != WL_WORD_ANY) made.word = other.word, made.word_at = other.word_at;
  made.from_sp |= other.from_sp;
  made.from_fp |= other.from_fp;
  return made;
}

}  // namespace

void FrameTeacher::teach_step(const wl_learned_key& key, std::uint64_t caller, Place& place, std::uint64_t now) {
  auto& callers = place.step.callers;
  const auto free = std::ranges::find_if(callers, [&](auto it) { return it == caller || it == 0; });
  const bool has_room = caller == 0 || free != std::end(callers);
  const bool is_new = has_room && caller != 0 && *free == 0;
  if (is_new) *free = caller;
  if (is_new || now - place.asked >= kAgainAfter) {
    place.asked = now;
    sink_(key, std::bit_cast<wl_learned>(place.step));
  }
  if (has_room) return;
  const wl_learned_key call{key.pc, caller, key.tgid, key.kind ^ WL_LEARNED_STEP ^ WL_LEARNED_CALL};
  if (calls_.size() >= kMaxKnown) calls_.clear();
  if (!is_due(calls_[call], now, kAgainAfter)) return;
  wl_steady lesson{};
  lesson.guard = key.epoch;
  sink_(call, std::bit_cast<wl_learned>(lesson));
}

void FrameTeacher::teach(const Pupil& pupil, std::span<const CheckedStep> steps, std::uint64_t now) {
  if (places_.size() >= kMaxKnown) places_.clear();
  for (const CheckedStep& checked : steps) {
    const Mapping* mapping = mapping_of(pupil.maps, checked);
    if (mapping != nullptr && is_new_to(pupil, mapping->module)) teach_what_others_know(pupil, *mapping, now);
    const bool fits = teach(pupil, checked, now);
    if (mapping != nullptr) note(*mapping, checked, fits);
  }
}

bool FrameTeacher::teach(const Pupil& pupil, const CheckedStep& checked, std::uint64_t now) {
  wl_learned_key key = key_of(pupil, checked.frame);
  key.kind |= WL_LEARNED_STEP;
  const auto [found, is_new] = places_.try_emplace(key);
  Place& place = found->second;
  if (is_new || place.step.guard != checked.step.guard) place = {.step = checked.step};  // there is other code now
  if (place.contradicted) return false;
  const bool is_other = place.step.word != WL_WORD_ANY && checked.step.word != WL_WORD_ANY &&
                        (place.step.word != checked.step.word || place.step.word_at != checked.step.word_at);
  if (is_other) return true;  // the word changes, and one of its kinds is taught
  if (const auto step = both(place.step, checked.step)) {
    if (step->word != place.step.word || step->from_sp != place.step.from_sp || step->from_fp != place.step.from_fp)
      place.asked = 0;
    place.step = *step;
    const bool any = step->callers[0] == WL_ANY_CALLER;
    if (!teach_function(key, checked, now)) teach_step(key, any ? 0 : checked.caller, place, now);
    return true;
  }
  place.contradicted = true;
  sink_(key, wl_learned{});
  return false;
}

namespace {

// A rule of the step's function for a block of its code. Nothing: the code may change, and not all of the block is the
// function's.
std::optional<wl_learned> lesson_for(const CheckedStep& checked, const wl_rule& rule, std::uint64_t block) {
  wl_learned lesson{};
  lesson.rule = rule;
  const std::vector<std::byte>& code = checked.function->code;
  if (code.empty()) return lesson;
  const std::uint64_t begin = checked.function->range.begin + checked.function_bias;
  __u64 words[WL_LEARNED_BLOCK_BYTES / 8];
  if (block - begin >= code.size() || code.size() - (block - begin) < sizeof words) return std::nullopt;
  std::memcpy(words, code.data(), WL_GUARD_WORDS * sizeof words[0]);
  const std::uint64_t first = wl_sum_of_words(0, words, WL_GUARD_WORDS);
  std::memcpy(words, code.data() + (block - begin), sizeof words);
  lesson.guard_address = begin;
  lesson.guard_value = wl_block_guard(first, words);
  return lesson;
}

}  // namespace

bool FrameTeacher::teach_function(const wl_learned_key& key, const CheckedStep& checked, std::uint64_t now) {
  if (checked.function == nullptr) return false;
  const wl_learned_key all{key.pc, key.epoch, key.tgid, WL_LEARNED_STEP};  // interrupted there or not
  const flow::WholeFunction& function = *checked.function;
  if (functions_.size() >= kMaxKnown) functions_.clear();
  const wl_learned_key begin{function.range.begin + checked.function_bias, key.epoch, key.tgid, WL_LEARNED_STEP};
  if (is_due(functions_[begin], now, kAgainAfter)) {
    std::map<std::uint64_t, BlockLessons> blocks;
    for (const FrameRow& row : function.rows) {
      const wl_rule rule = table::without_end(table::project(row, Architecture::kX86_64, WL_NO_XREG));
      for_each_block({row.begin + checked.function_bias, row.end + checked.function_bias},
                     [&](std::uint64_t block, std::uint64_t places) {
                       blocks[block].add(places, lesson_for(checked, rule, block));
                     });
    }
    teach_large(all, blocks, now);
    teach_blocks(all, blocks, now);
  }
  const auto lesson = lesson_for(checked, checked.step.rule, block_of(key.pc));
  return lesson && is_in_block(all, *lesson, now);
}

bool FrameTeacher::is_new_to(const Pupil& pupil, std::uint32_t module) {
  if (given_.size() >= kMaxKnown) given_.clear();
  return given_.insert({module, pupil.epoch, pupil.tgid, 0}).second;
}

// The addresses of a step in a mapping's file, or the other way round by the difference of the two biases.
CheckedStep FrameTeacher::moved(CheckedStep step, std::uint64_t by) {
  step.frame = is_exact(step.frame) ? ((step.frame & ~WL_FRAME_EXACT) + by) | WL_FRAME_EXACT : step.frame + by;
  if (step.caller != 0) step.caller += by;
  step.function_bias += by;
  return step;
}

void FrameTeacher::note(const Mapping& mapping, const CheckedStep& checked, bool fits) {
  if (of_files_.size() >= kMostFiles && !of_files_.contains(mapping.module)) {
    of_files_.clear();
    rows_of_files_ = 0;
  }
  auto& known = of_files_[mapping.module];
  CheckedStep step = moved(checked, 0 - mapping.bias);
  if (step.function != nullptr && rows_of_files_ + step.function->rows.size() > kMostRows) step.function = nullptr;
  // A function is one place: any of its steps tells them all.
  const std::uint64_t at = step.function != nullptr ? step.function->range.begin : step.frame;
  if (known.size() >= kMostOfFile && !known.contains(at)) return;
  OfFile& place = known[at];
  if (!fits) place = {.contradicted = true, .steps = {}};
  const auto same = std::ranges::find(place.steps, step.caller, &CheckedStep::caller);
  const std::size_t most = step.function != nullptr ? 1 : kMostCallersOfFile;
  if (place.contradicted || same != place.steps.end() || place.steps.size() >= most) return;
  if (step.function != nullptr) rows_of_files_ += step.function->rows.size();
  place.steps.push_back(step);
}

void FrameTeacher::teach_what_others_know(const Pupil& pupil, const Mapping& mapping, std::uint64_t now) {
  const auto known = of_files_.find(mapping.module);
  if (known == of_files_.end()) return;
  for (const auto& [frame, place] : known->second)
    for (const CheckedStep& step : place.steps) (void)teach(pupil, moved(step, mapping.bias), now);
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
