#include "jit/table/table.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <mutex>
#include <optional>
#include <utility>

#include "base/monotonic.h"
#include "runtimes/manager/read.h"
#include "windlass/backtrace.h"

namespace windlass {
namespace {

using namespace manager;

template <typename T>
void publish(T& to, T value) {
  __atomic_store_n(&to, value, __ATOMIC_RELEASE);
}

// Stores both halves of a block at once, so that readers see the block as it was at one moment.
void publish(wl_code_block& to, wl_code_block value) {
  __atomic_store_n(reinterpret_cast<std::uint64_t*>(&to), std::bit_cast<std::uint64_t>(value), __ATOMIC_RELEASE);
}

// Runs that grow leave holes that others do not fit into.
constexpr std::uint32_t kRecordsOfAFunction = 3;
constexpr std::uint32_t kMaxFunctions = (0xffff'ffffu - WL_CODE_MAX_RUN - 2) / kRecordsOfAFunction;
// The longest run there can be, with a crowded block's first record: room for one is kept free.
std::uint32_t spare_records(std::uint32_t functions) { return std::min(functions, WL_CODE_MAX_RUN) + 1; }

std::uint64_t aligned(std::uint64_t size) { return (size + 63) & ~std::uint64_t{63}; }

wl_code_header make_header(std::uint64_t begin, std::uint64_t end, const CodeManagerOptions& options) {
  wl_code_header header{};
  header.version = WL_CODE_VERSION;
  header.machine = kOwnArchitecture == Architecture::kX86_64 ? WL_MACHINE_X86_64 : WL_MACHINE_AARCH64;
  header.begin = begin;
  header.end = end;
  header.block_count = wl_code_block_of(static_cast<std::uint32_t>(end - begin - 1)) + 1;
  header.record_count = 1 + kRecordsOfAFunction * options.functions + spare_records(options.functions);
  header.shape_bytes = options.shape_bytes & ~3u;
  header.name_bytes = options.name_bytes & ~3u;
  header.records_used = 1;
  header.blocks = aligned(sizeof header);
  header.records = header.blocks + aligned(header.block_count * std::uint64_t{sizeof(wl_code_block)});
  header.name_of = header.records + aligned(header.record_count * std::uint64_t{sizeof(wl_code_record)});
  header.shapes = header.name_of + aligned(header.record_count * std::uint64_t{sizeof(std::uint32_t)});
  header.names = header.shapes + aligned(header.shape_bytes);
  header.past_count = std::max(options.past, 1u);
  header.past = header.names + aligned(header.name_bytes);
  header.size = header.past + aligned(header.past_count * std::uint64_t{sizeof(wl_code_past)});
  return header;
}

Failure refused(const char* what) { return fail(ErrorCode::kSystem, what, 0, static_cast<std::uint64_t>(errno)); }

// With vm.memfd_noexec = 2 there is no other; kernels before 6.3 do not know the flag.
os::Descriptor make_memfd() {
  constexpr unsigned kNoExecSeal = 8, kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  os::Descriptor file(::memfd_create(WL_CODE_NAME, kFlags | kNoExecSeal));
  return file || errno != EINVAL ? std::move(file) : os::Descriptor(::memfd_create(WL_CODE_NAME, kFlags));
}

bool lacks_room(const std::optional<std::uint32_t>& place) { return !place; }
bool lacks_room(const Expected<std::uint32_t>& place) { return !place && place.error().code == ErrorCode::kLimit; }

// ---- runs ---------------------------------------------------------------------------------------------------------

// A run that is empty between changes: removing needs no other room.
constexpr std::uint32_t kSpare = 1;
// How many runs may be left before readers are told and the places used again. Each time is a reason for them to read
// once more, so that it is not done for a single one.
constexpr std::size_t kMostLeft = 256;

// How many different rows of a call are looked at once only, if they are the same in memory.
constexpr std::size_t kMostKnown = 4096;

std::uint32_t last_block(const wl_code_record& function) {
  return wl_code_block_of(function.begin + (function.size - 1));
}

// A block's map word with another function that begins in it.
std::uint32_t with_one_more(std::uint32_t map, std::uint32_t begin) {
  constexpr std::uint32_t kMostInBucket = 14;
  if (map == WL_CODE_CROWDED || wl_code_begin_in_bucket(map, begin) == kMostInBucket) return WL_CODE_CROWDED;
  return map + (1u << wl_code_nibble_shift(begin));
}

// Of functions to be added, in their order.
std::uint32_t begin_of(std::uint64_t ordered) { return static_cast<std::uint32_t>(ordered >> 32); }
std::uint32_t index_of(std::uint64_t ordered) { return static_cast<std::uint32_t>(ordered); }

}  // namespace

// ---- making one ---------------------------------------------------------------------------------------------------

Expected<std::shared_ptr<CodeManager::Table>> CodeManager::Table::create(std::uint64_t begin, std::uint64_t end,
                                                                         const CodeManagerOptions& options) {
  if (begin >= end || end - begin > 1ull << 32)
    return fail(ErrorCode::kOutOfRange, "code manager is for more than nothing and at most 4 GiB of code", begin, end);
  constexpr std::uint32_t kLeast = 64;
  if (options.functions == 0 || options.functions > kMaxFunctions || options.shape_bytes < kLeast ||
      options.name_bytes < kLeast)
    return fail(ErrorCode::kLimit, "code manager has room for 1 to 1,431,655,423 functions, and 64 bytes of each kind",
                begin, options.functions);
  wl_code_header header = make_header(begin, end, options);
  os::Descriptor file = make_memfd();
  if (!file) return refused("no memfd for a code manager");
  if (::ftruncate(file.get(), static_cast<off_t>(header.size)) != 0 ||
      ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    return refused("no memory for a code manager");
  void* mapped = ::mmap(nullptr, header.size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.get(), 0);
  if (mapped == MAP_FAILED) return refused("code manager's table cannot be mapped");
  // The writer trusts the table's contents, so no other process may write (Linux 5.1). On older kernels, processes that
  // can open the file are trusted.
  (void)::fcntl(file.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
  auto* bytes = static_cast<std::byte*>(mapped);
  store(bytes, &header, sizeof header);
  publish(reinterpret_cast<wl_code_header*>(bytes)->magic, static_cast<decltype(header.magic)>(WL_CODE_MAGIC));
  const auto reader = CodeManagerReader::open(std::span<const std::byte>(bytes, header.size));
  if (!reader) {
    ::munmap(mapped, header.size);
    return Failure(reader.error());
  }
  return std::shared_ptr<Table>(new Table(std::move(file), bytes, header, *reader, options));
}

CodeManager::Table::Table(os::Descriptor file, std::byte* bytes, const wl_code_header& header,
                          const CodeManagerReader& reader, const CodeManagerOptions& options)
    : file_(std::move(file)),
      bytes_(bytes),
      blocks_(reinterpret_cast<wl_code_block*>(bytes + header.blocks)),
      records_(reinterpret_cast<wl_code_record*>(bytes + header.records)),
      name_of_(reinterpret_cast<std::uint32_t*>(bytes + header.name_of)),
      past_(reinterpret_cast<wl_code_past*>(bytes + header.past)),
      reader_(reader),
      owner_(::getpid()),
      shapes_(bytes + header.shapes, header.shape_bytes, kOwnArchitecture),
      names_(sizeof(std::uint32_t), header.name_bytes),
      free_records_(1 + spare_records(options.functions), header.record_count),
      capacity_(options.functions),
      keeps_past_(options.past != 0),
      core_{{bytes + header.records, header.record_count * std::uint64_t{sizeof(wl_code_record)}},
            {bytes + header.name_of, header.record_count * std::uint64_t{sizeof(std::uint32_t)}},
            {bytes + header.shapes, header.shape_bytes},
            {bytes + header.names, header.name_bytes},
            {bytes + header.past, header.past_count * std::uint64_t{sizeof(wl_code_past)}}} {
  // Blocks are read at any address of the code. Where the system knows nothing of this core files have all.
  if (::madvise(bytes, header.size, MADV_DONTDUMP) == 0) manager::CorePart(bytes, header.records).reach(header.records);
  show_in_core_files();
}

CodeManager::Table::~Table() { ::munmap(bytes_, header().size); }

// ---- what is there ------------------------------------------------------------------------------------------------

// The number of the record of the function that contains the offset; 0: none.
std::uint32_t CodeManager::Table::find(std::uint32_t offset) const {
  RecordWords words;
  std::uint32_t number = 0;
  const Looked looked = look_up_offset(mapped(), CodeTableAccess::table(reader_), offset, words, number);
  return looked == Looked::kFound ? number : 0;
}

Run CodeManager::Table::run(std::uint32_t number) const {
  Run run;
  (void)run_of(mapped(), CodeTableAccess::table(reader_), BlockWord{std::bit_cast<std::uint64_t>(block(number))}, run);
  return run;
}

// As what a block leads to, when no function begins in it.
std::uint32_t CodeManager::Table::reaching_into(std::uint32_t number) const {
  const Run before = run(number - 1);
  const std::uint32_t last = before.count != 0 ? before.first + before.count - 1 : before.first;
  return last != 0 && last_block(record(last)) >= number ? last : 0;
}

// The number of a record whose function overlaps another one; 0: none.
std::uint32_t CodeManager::Table::overlapped(const wl_code_record& function) const {
  if (const std::uint32_t number = find(function.begin); number != 0) return number;
  // Else it begins within.
  const std::uint32_t last = function.begin + (function.size - 1);
  for (std::uint32_t number = wl_code_block_of(function.begin); number <= wl_code_block_of(last); ++number) {
    if (block(number).map == 0) continue;
    const Run there = run(number);
    for (std::uint32_t at = there.first; at < there.first + there.count; ++at)
      if (record(at).begin >= function.begin && record(at).begin <= last) return at;
  }
  return 0;
}

void CodeManager::Table::copy_run(std::uint32_t number, std::vector<Entry>& to) const {
  const Run there = run(number);
  to.clear();
  for (std::uint32_t at = there.first; at < there.first + there.count; ++at) to.push_back({record(at), name_of_[at]});
}

// ---- changes ------------------------------------------------------------------------------------------------------

// Drops past functions, ever more at a time, until `take` has enough room or no past is left.
template <typename Take>
auto CodeManager::Table::make_room(Take&& take) {
  auto taken = take();
  for (std::uint64_t some = 1; lacks_room(taken) && header().past_first != header().past_end; some *= 2) {
    for (std::uint64_t i = 0; i < some && header().past_first != header().past_end; ++i) forget_oldest();
    taken = take();
  }
  return taken;
}

Expected<std::uint32_t> CodeManager::Table::add_name(std::string_view name) {
  if (name.empty()) return 0;
  if (name.size() > WL_CODE_MAX_NAME)
    return fail(ErrorCode::kLimit, "name of a managed function is longer than 65,535 bytes", 0, name.size());
  const auto length = static_cast<std::uint32_t>(name.size());
  const auto place = make_room([&] { return names_.take(sizeof length + ((length + 3) & ~3u)); });
  if (!place) return fail(ErrorCode::kLimit, "code manager has no room for more names", 0, length);
  std::byte* to = bytes_ + header().names + *place;
  store(to, &length, sizeof length);
  const std::size_t whole = name.size() & ~std::size_t{3};
  store(to + sizeof length, name.data(), whole);
  if (whole != name.size()) {
    std::byte rest[4] = {};
    std::copy_n(reinterpret_cast<const std::byte*>(name.data()) + whole, name.size() - whole, rest);
    store(to + sizeof length + whole, rest, sizeof rest);
  }
  return *place;
}

namespace {

Expected<std::vector<FrameRow>> rows_described_by(const GeneratedFunction& function) {
  if (!function.rows.empty())
    return fail(ErrorCode::kMalformed, "a function is described by a prologue or by rows", function.address);
  if (function.prologue->architecture != kOwnArchitecture)
    return fail(ErrorCode::kUnsupported, "a prologue of another architecture than the process's", function.address);
  if (function.prologue->code_size != function.size)
    return fail(ErrorCode::kMalformed, "code is not of the size the prologue says", function.address, function.size);
  return prologue::rows_of(*function.prologue);
}

}  // namespace

Expected<std::uint32_t> CodeManager::Table::shape_of(const GeneratedFunction& function) {
  std::span<const FrameRow> rows = function.rows;
  if (rows.empty() && function.prologue == nullptr) return 0;
  const void* description = rows.empty() ? static_cast<const void*>(function.prologue) : rows.data();
  const auto hash = reinterpret_cast<std::uintptr_t>(description) * 0x9e37'79b9'7f4a'7c15;
  Known& known = known_[hash >> 32 & (known_.size() - 1)];
  if (known.update == update_ && known.description == description && known.count == rows.size() &&
      known.size == function.size) {
    shapes_.take_again(known.shape);
    return known.shape;
  }
  std::vector<FrameRow> described;
  if (function.prologue != nullptr) {
    auto made = rows_described_by(function);
    if (!made) return Failure(made.error());
    described = std::move(*made);
    rows = described;
  }
  const auto shape = make_room([&] { return shapes_.take(rows, static_cast<std::uint32_t>(function.size)); });
  if (shape) known = {description, function.rows.size(), function.size, update_, *shape};
  return shape;
}

std::uint32_t CodeManager::Table::map_of(std::span<const Entry> run) {
  std::uint32_t map = 0;
  for (const Entry& entry : run) map = with_one_more(map, entry.record.begin);
  return map;
}

// A place for a run; 0 for none. What is left of others is used when there is no more.
std::optional<std::uint32_t> CodeManager::Table::take_records(std::uint32_t count) {
  if (count == 0) return 0;
  if (const auto place = free_records_.take(count); place || left_.empty()) return place;
  recycle();
  return free_records_.take(count);
}

// What a block leads to becomes a copy of `run`, in a place that was taken for it.
void CodeManager::Table::set_run(std::uint32_t number, std::uint32_t first, std::span<const Entry> run) {
  const Run old = this->run(number);
  const std::uint32_t old_first = block(number).first;
  const std::uint32_t old_end = old.count != 0 ? last_block(record(old.first + old.count - 1)) : number;
  const std::uint32_t map = map_of(run);
  std::uint32_t at = first;
  const auto write = [&](const wl_code_record& what, std::uint32_t name) {
    store(reinterpret_cast<std::byte*>(&records_[at]), &what, sizeof what);
    if (name_of_[at] != name) publish(name_of_[at], name);
    ++at;
  };
  if (map == WL_CODE_CROWDED) write({0, static_cast<std::uint32_t>(run.size()), 0, 0}, 0);
  for (const Entry& entry : run) write(entry.record, entry.name);
  publish(block(number), run.empty() ? wl_code_block{0, reaching_into(number)} : wl_code_block{map, first});
  const std::uint32_t end = run.empty() ? number : last_block(run.back().record);
  for (std::uint32_t other = number + 1; other <= std::max(end, old_end) && block(other).map == 0; ++other)
    publish(block(other), {0, other <= end ? at - 1 : 0});
  if (old.count != 0 && old_first != kSpare) left_.push_back({number, old_first, old.first + old.count - old_first});
}

// Out of the run of its block; what it is made of is past.
void CodeManager::Table::take_out(std::uint32_t number, std::uint64_t time) {
  const std::uint32_t from = wl_code_block_of(record(number).begin);
  remember({record(number), name_of_[number]}, time);
  copy_run(from, run_);
  run_.erase(run_.begin() + (number - run(from).first));
  const auto records = static_cast<std::uint32_t>(run_.size()) + (map_of(run_) == WL_CODE_CROWDED ? 1 : 0);
  if (const auto place = take_records(records)) {
    set_run(from, *place, run_);
  } else {
    // There is room where it was.
    set_run(from, kSpare, run_);
    recycle();
    set_run(from, *take_records(records), run_);
    recycle();
  }
  if (left_.size() > kMostLeft) recycle();
}

void CodeManager::Table::give_back(std::uint32_t shape, std::uint32_t name) {
  if (shape != 0) shapes_.give(shape);
  if (name == 0) return;
  const std::uint32_t length = *reinterpret_cast<const std::uint32_t*>(bytes_ + header().names + name);
  names_.give(name, sizeof length + ((length + 3) & ~3u));
}

// What is about to be taken away.
void CodeManager::Table::remember(const Entry& function, std::uint64_t time) {
  if (header().past_end - header().past_first == header().past_count) forget_oldest();
  const wl_code_record& record = function.record;
  const wl_code_past entry{time, record.begin, record.size, record.shape, function.name, record.user, 0};
  store(reinterpret_cast<std::byte*>(&past(header().past_end)), &entry, sizeof entry);
  publish(header().past_end, header().past_end + 1);
}

void CodeManager::Table::forget_oldest() {
  const auto oldest = header().past_first;
  publish(header().past_first, oldest + 1);
  publish(header().recycled, header().recycled + 1);
  give_back(past(oldest).shape, past(oldest).name);
}

// Readers are told, and then the runs that no block leads to can be used again.
void CodeManager::Table::recycle() {
  publish(header().recycled, header().recycled + 1);
  for (const Room& room : left_) free_records_.give(room.first, room.records);
  left_.clear();
}

// What is used by now.
void CodeManager::Table::show_in_core_files() {
  core_.records.reach(std::uint64_t{free_records_.used()} * sizeof(wl_code_record));
  core_.name_of.reach(std::uint64_t{free_records_.used()} * sizeof(std::uint32_t));
  core_.shapes.reach(shapes_.used());
  core_.names.reach(names_.used());
  core_.past.reach(std::min<std::uint64_t>(header().past_end, header().past_count) * sizeof(wl_code_past));
}

Expected<void> CodeManager::Table::remove(std::span<const std::uint64_t> addresses) {
  const std::uint64_t now = addresses.empty() ? 0 : monotonic_ns();
  for (const std::uint64_t address : addresses) {
    const bool inside = address >= header().begin && address < header().end;
    const auto offset = static_cast<std::uint32_t>(address - header().begin);
    const std::uint32_t number = inside ? find(offset) : 0;
    if (number == 0 || record(number).begin != offset)
      return fail(ErrorCode::kNotFound, "no managed function begins here", address);
    take_out(number, now);
    publish(header().functions, header().functions - 1);
  }
  return {};
}

// Their begins and sizes, and their order.
Expected<void> CodeManager::Table::check(std::span<const GeneratedFunction> functions) {
  added_.clear();
  order_.clear();
  for (const GeneratedFunction& function : functions) {
    if (function.size == 0 || function.size > WL_CODE_MAX_SIZE || function.address < header().begin ||
        function.address >= header().end || function.size > header().end - function.address)
      return fail(ErrorCode::kOutOfRange, "function is empty, of 2 GiB or more, or not within its manager's code",
                  function.address, function.size);
    if (added_.size() >= capacity_ - header().functions)
      return fail(ErrorCode::kLimit, "code manager has no room for more functions", function.address, capacity_);
    const auto begin = static_cast<std::uint32_t>(function.address - header().begin);
    order_.push_back(std::uint64_t{begin} << 32 | added_.size());
    added_.push_back({{begin, static_cast<std::uint32_t>(function.size), 0, function.user}, 0});
  }
  if (!std::is_sorted(order_.begin(), order_.end())) std::sort(order_.begin(), order_.end());
  const auto refuse = [&](std::uint64_t which, std::uint32_t other) {
    return fail(ErrorCode::kMalformed, "function overlaps another one, which must be removed first",
                functions[which].address, header().begin + other);
  };
  for (std::size_t i = 0; i < order_.size(); ++i) {
    const std::uint32_t which = index_of(order_[i]);
    if (i != 0)
      if (const std::uint32_t before = index_of(order_[i - 1]);
          added_[which].record.begin - added_[before].record.begin < added_[before].record.size)
        return refuse(std::max(which, before), added_[std::min(which, before)].record.begin);
    if (const std::uint32_t other = overlapped(added_[which].record); other != 0)
      return refuse(which, record(other).begin);
  }
  return {};
}

// Their rows and names. Those that are done stay, if it fails.
Expected<void> CodeManager::Table::fill(std::span<const GeneratedFunction> functions) {
  known_.resize(std::max(known_.size(), std::bit_ceil(std::min(functions.size(), kMostKnown))));
  for (std::size_t i = 0; i < functions.size(); ++i) {
    const auto failed = [&](Error error) {
      error.where = functions[i].address;
      return Failure(error);
    };
    const auto shape = shape_of(functions[i]);
    if (!shape) return failed(shape.error());
    added_[i].record.shape = *shape;
    const auto name = add_name(functions[i].name);
    if (!name) return failed(name.error());
    added_[i].name = *name;
  }
  return {};
}

// For the runs of all blocks that they begin in. Those that are taken stay, if it fails.
Expected<void> CodeManager::Table::take_rooms() {
  rooms_.clear();
  for (std::size_t i = 0; i < order_.size();) {
    const std::uint32_t number = wl_code_block_of(begin_of(order_[i]));
    const std::uint32_t begin = begin_of(order_[i]);
    std::uint32_t map = block(number).map, records = run(number).count;
    for (; i < order_.size() && wl_code_block_of(begin_of(order_[i])) == number; ++i, ++records)
      map = with_one_more(map, begin_of(order_[i]));
    records += map == WL_CODE_CROWDED ? 1 : 0;
    const auto first = take_records(records);
    if (!first)
      return fail(ErrorCode::kLimit, "code manager has no room for more functions", header().begin + begin, records);
    rooms_.push_back({number, *first, records});
  }
  return {};
}

// Nothing is seen of them before there is room for all.
Expected<void> CodeManager::Table::add(std::span<const GeneratedFunction> functions) {
  if (const auto done = check(functions); !done) return done;
  auto done = fill(functions);
  if (done) done = take_rooms();
  if (!done) {
    for (const Entry& entry : added_) give_back(entry.record.shape, entry.name);
    for (const Room& room : rooms_) free_records_.give(room.first, room.records);
    rooms_.clear();
    return done;
  }
  auto next = order_.begin();
  for (const Room& room : rooms_) {
    copy_run(room.block, run_);
    const auto old = static_cast<std::ptrdiff_t>(run_.size());
    for (; next != order_.end() && wl_code_block_of(begin_of(*next)) == room.block; ++next)
      run_.push_back(added_[index_of(*next)]);
    std::inplace_merge(run_.begin(), run_.begin() + old, run_.end(),
                       [](const Entry& a, const Entry& b) { return a.record.begin < b.record.begin; });
    set_run(room.block, room.first, run_);
  }
  publish(header().functions, static_cast<std::uint32_t>(header().functions + added_.size()));
  publish(header().records_used, free_records_.used());
  if (left_.size() > kMostLeft) recycle();
  return done;
}

Expected<void> CodeManager::Table::update(std::span<const std::uint64_t> removed,
                                          std::span<const GeneratedFunction> added) {
  // Before the lock, which another thread may have held when this process was forked.
  if (::getpid() != owner_)
    return fail(ErrorCode::kUnsupported, "code manager is the parent process's; a forked child makes its own", 0);
  const std::lock_guard hold(lock_);
  ++update_;
  const std::uint32_t functions = header().functions;
  auto done = remove(removed);
  while (!keeps_past_ && header().past_first != header().past_end) forget_oldest();
  if (header().functions != functions) recycle();
  if (done) done = add(added);
  show_in_core_files();
  publish(header().changes, header().changes + 1);
  return done;
}

// ---- the public side ----------------------------------------------------------------------------------------------

Expected<CodeManager> CodeManager::create(std::uint64_t begin, std::uint64_t end, const CodeManagerOptions& options) {
  auto table = Table::create(begin, end, options);
  if (!table) return Failure(table.error());
  return CodeManager(std::move(*table));
}

CodeManager::CodeManager(CodeManager&&) noexcept = default;
CodeManager& CodeManager::operator=(CodeManager&&) noexcept = default;
CodeManager::~CodeManager() = default;

Expected<void> CodeManager::update(std::span<const std::uint64_t> removed, std::span<const GeneratedFunction> added) {
  return table_->update(removed, added);
}
std::size_t CodeManager::functions() const { return table_->functions(); }
const CodeManagerReader& CodeManager::reader() const { return table_->reader(); }
int CodeManager::fd() const { return table_->fd(); }

}  // namespace windlass
