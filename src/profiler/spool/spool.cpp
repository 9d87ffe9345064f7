#include "profiler/spool/spool.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "profiler/spool/spool_files.h"

namespace windlass::spool {
namespace {

constexpr unsigned kOpeningShift = 32;  // a sequence: openings of the folder, then batches of this opening
constexpr std::uint64_t kBlock = 4096;  // small files take as much

Failure refused(const char* what) { return fail(ErrorCode::kSystem, what, 0, static_cast<unsigned>(errno)); }

std::uint64_t room_of(std::uint64_t file_size) { return (file_size + kBlock - 1) / kBlock * kBlock; }

}  // namespace

Spool::Spool(os::Descriptor folder, os::Descriptor lock, std::uint64_t most_bytes)
    : folder_(std::move(folder)), lock_(std::move(lock)), state_(std::make_unique<State>()) {
  state_->counters.most_bytes = most_bytes;
}

Expected<Spool> Spool::open(const std::string& folder, std::uint64_t most_bytes) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return refused("the folder of the spool cannot be made. Way out: make the folder above");
  os::Descriptor directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory) return refused("the folder of the spool cannot be opened");
  os::Descriptor lock(::openat(directory.get(), "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!lock) return refused("the folder of the spool cannot be written. Way out: run as the user who owns the folder");
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0)
    return fail(ErrorCode::kSystem, "another agent uses this spool. Way out: name another folder", 0, EBUSY);
  Spool spool(std::move(directory), std::move(lock), most_bytes);
  if (const auto read = spool.read_folder(); !read) return Failure(read.error());
  return spool;
}

Expected<void> Spool::read_folder() {
  const auto listed = list_batches(folder_.get());
  if (!listed) return Failure(listed.error());
  for (const std::string& name : listed->unfinished) {
    ::unlinkat(folder_.get(), name.c_str(), 0);
    ++state_->counters.torn_batches;
  }
  std::uint64_t last = 0;
  for (const ListedBatch& batch : listed->batches) {
    state_->waiting.push_back({batch.sequence, room_of(batch.size)});
    state_->counters.bytes += room_of(batch.size);
    last = batch.sequence;
  }
  state_->counters.batches = state_->waiting.size();
  const auto opening = count_opening(folder_.get(), static_cast<std::uint32_t>(last >> kOpeningShift) + 1);
  if (!opening) return Failure(opening.error());
  state_->next = state_->first = std::uint64_t{*opening} << kOpeningShift;
  (void)make_room(0);  // the bound may be smaller than that of the run before
  return {};
}

// Without its file.
void Spool::forget(const std::deque<Entry>::iterator& entry) {
  state_->counters.bytes -= entry->bytes;
  if (state_->in_hand == entry->sequence) state_->in_hand.reset();
  state_->waiting.erase(entry);
  state_->counters.batches = state_->waiting.size();
}

void Spool::drop(const std::deque<Entry>::iterator& entry) {
  const auto header = read_header(folder_.get(), entry->sequence);
  if (header && *header) {
    ++state_->counters.dropped_batches;
    state_->counters.dropped_samples += (*header)->samples;
  } else {
    ++state_->counters.torn_batches;
  }
  delete_batch(folder_.get(), entry->sequence);
  forget(entry);
}

bool Spool::make_room(std::uint64_t bytes) {
  State& state = *state_;
  while (state.counters.bytes + bytes > state.counters.most_bytes) {
    const auto first =
        std::ranges::find_if(state.waiting, [&](const Entry& entry) { return state.in_hand != entry.sequence; });
    if (first == state.waiting.end()) return false;
    drop(first);
  }
  return true;
}

Expected<std::uint64_t> Spool::append(std::string_view bytes, std::uint64_t samples) {
  const std::scoped_lock lock(state_->mutex);
  const auto dropped = [&](const Error& error) {
    ++state_->counters.dropped_batches;
    state_->counters.dropped_samples += samples;
    return Failure(error);
  };
  const std::uint64_t room = room_of(bytes.size() + kHeaderBytes);
  if (room > state_->counters.most_bytes || !make_room(room))
    return dropped(
        {ErrorCode::kLimit, "a batch does not fit into the spool. Way out: more room for the spool", 0, bytes.size()});
  const std::uint64_t sequence = state_->next++;
  if (const auto written = write_batch(folder_.get(), sequence, bytes, samples); !written)
    return dropped(written.error());
  state_->waiting.push_back({sequence, room});
  state_->counters.bytes += room;
  state_->counters.batches = state_->waiting.size();
  return sequence;
}

Expected<std::optional<SpooledBatch>> Spool::oldest() {
  const std::scoped_lock lock(state_->mutex);
  while (!state_->waiting.empty()) {
    const auto first = state_->waiting.begin();
    auto read = read_batch(folder_.get(), first->sequence);
    if (!read && read.error().detail != ENOENT) return Failure(read.error());
    if (read && *read) {
      state_->in_hand = first->sequence;
      return std::optional<SpooledBatch>({first->sequence, (*read)->header.samples, std::move((*read)->bytes)});
    }
    ++state_->counters.torn_batches;
    delete_batch(folder_.get(), first->sequence);
    forget(first);
  }
  return std::optional<SpooledBatch>();
}

bool Spool::finish(std::uint64_t sequence, bool taken, std::uint64_t dropped) {
  const std::scoped_lock lock(state_->mutex);
  const auto entry = std::ranges::find(state_->waiting, sequence, &Entry::sequence);
  if (entry == state_->waiting.end()) return false;
  const auto header = read_header(folder_.get(), sequence);
  const std::uint64_t all = header && *header ? (*header)->samples : 0;
  if (!taken || (dropped != 0 && dropped >= all)) {
    drop(entry);
    return true;
  }
  const std::uint64_t samples = all - dropped;
  SpoolCounters& counters = state_->counters;
  counters.dropped_samples += dropped;
  counters.dropped_batches += dropped != 0 ? 1 : 0;
  counters.acknowledged_samples += samples;
  ++counters.acknowledged_batches;
  if (sequence < state_->first) {
    counters.earlier_samples += samples;
    ++counters.earlier_batches;
  }
  delete_batch(folder_.get(), sequence);
  forget(entry);
  return true;
}

std::uint64_t Spool::first() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->first;
}

void Spool::set_first(std::uint64_t sequence) {
  const std::scoped_lock lock(state_->mutex);
  state_->first = sequence;
}

SpoolCounters Spool::counters() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->counters;
}

}  // namespace windlass::spool
