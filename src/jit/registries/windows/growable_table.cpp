// RtlAddGrowableFunctionTable(), of Windows 8 and later: a sorted table of a whole range, to whose end entries may be
// put. Nothing can be taken out of it or put between: what is removed stays as an entry of no code, in whose place
// later code may come.
#include <algorithm>
#include <iterator>

#include "jit/registries/windows/heap.h"

namespace windlass::registries {
namespace {

using Entry = RUNTIME_FUNCTION;

struct System {
  DWORD(NTAPI* add)(void** table, Entry* entries, DWORD count, DWORD most, ULONG_PTR begin, ULONG_PTR end);
  void(NTAPI* grow)(void* table, DWORD count);
  void(NTAPI* remove)(void* table);
};

// Others search it meanwhile. Between two entries of code there is code of nobody else's, so no thread's pc: entries of
// no code that stand there may be overwritten in any order, as long as what is in them lies there, too.
class Table {
 public:
  // Null: no memory.
  static std::unique_ptr<Table> make(std::span<const Entry> entries, std::size_t capacity) {
    auto table = std::make_unique<Table>();
    table->entries_ =
        static_cast<Entry*>(VirtualAlloc(nullptr, capacity * sizeof(Entry), MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE));
    if (table->entries_ == nullptr) return nullptr;
    std::ranges::copy(entries, table->entries_);
    table->count_ = entries.size();
    table->capacity_ = capacity;
    return table;
  }
  Table() = default;
  ~Table() { VirtualFree(entries_, 0, MEM_RELEASE); }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  [[nodiscard]] Entry* entries() const { return entries_; }
  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] std::size_t capacity() const { return capacity_; }

  // All in the places of entries of no code, or at the end; nothing where they do not all fit. The count may have
  // grown.
  bool put(std::span<const Entry> more) {
    std::size_t grown = count_;
    for (int pass = 0; pass < 2; ++pass)  // are there places for all? Then put
      for (std::size_t i = 0; i < more.size();) {
        const Gap gap = gap_at(more[i].BeginAddress);
        std::size_t last = i;
        while (last < more.size() && (gap.last == count_ || more[last].BeginAddress < entries_[gap.last].BeginAddress))
          ++last;
        const std::size_t room = (gap.last == count_ ? capacity_ : gap.last) - gap.first;
        if (last - i > room) return false;
        if (pass == 1) grown = std::max(grown, fill(gap, more.subspan(i, last - i)));
        i = last;
      }
    count_ = grown;
    return true;
  }
  // The entries of code in [begin, end) become entries of no code.
  void kill(std::uint32_t begin, std::uint32_t end) {
    for (std::size_t i = lower_bound(begin); i < count_ && entries_[i].BeginAddress < end; ++i) {
      if (is_dead(entries_[i])) continue;
      store(entries_[i].EndAddress, entries_[i].BeginAddress);
    }
  }
  // What is alive, in order.
  [[nodiscard]] std::vector<Entry> code() const {
    std::vector<Entry> code;
    std::ranges::copy_if(std::span(entries_, count_), std::back_inserter(code),
                         [](const Entry& e) { return !is_dead(e); });
    return code;
  }

 private:
  struct Gap {
    std::size_t first, last;  // the entries of no code between two of code
  };

  static bool is_dead(const Entry& entry) { return entry.BeginAddress == entry.EndAddress; }
  static void store(DWORD& to, DWORD value) { __atomic_store_n(&to, value, __ATOMIC_RELEASE); }
  [[nodiscard]] std::size_t lower_bound(std::uint32_t begin) const {
    const std::span all(entries_, count_);
    return static_cast<std::size_t>(std::ranges::lower_bound(all, begin, {}, &Entry::BeginAddress) - all.begin());
  }
  [[nodiscard]] Gap gap_at(std::uint32_t begin) const {
    Gap gap{lower_bound(begin), 0};
    gap.last = gap.first;
    while (gap.first > 0 && is_dead(entries_[gap.first - 1])) --gap.first;
    while (gap.last < count_ && is_dead(entries_[gap.last])) ++gap.last;
    return gap;
  }
  // What is left of the gap's entries is spread by the room between the code, so that more may come anywhere. Returns
  // the number of entries that the table then has.
  std::size_t fill(const Gap& gap, std::span<const Entry> more) {
    DWORD reached = gap.first != 0 ? entries_[gap.first - 1].EndAddress : 0;
    const std::uint64_t room =
        (gap.last != count_ ? entries_[gap.last].BeginAddress : more.back().EndAddress) - reached;
    std::size_t left = std::max(gap.last - gap.first, more.size()) - more.size();
    const std::uint64_t spread = left;
    std::size_t at = gap.first;
    const auto skip = [&](std::uint64_t entries) {
      for (; entries != 0 && left != 0; --entries, --left, ++at) put_one(at, {reached, reached, {0}});
    };
    for (const Entry& entry : more) {
      skip((spread * (entry.BeginAddress - reached) + room - 1) / room);
      put_one(at++, entry);
      reached = entry.EndAddress;
    }
    skip(left);
    return std::max(at, count_);
  }
  void put_one(std::size_t at, const Entry& entry) {
    store(entries_[at].UnwindData, entry.UnwindData);
    store(entries_[at].BeginAddress, entry.BeginAddress);
    store(entries_[at].EndAddress, entry.EndAddress);
  }

  Entry* entries_ = nullptr;
  std::size_t count_ = 0, capacity_ = 0;
};

// With entries of no code where more code may come: `density` times as many as there are of code, by the room that is
// left between them, and some everywhere.
std::vector<Entry> with_places(std::span<const Entry> code, std::uint64_t density) {
  constexpr DWORD kSmallest = 16;  // bytes, of code
  constexpr std::uint64_t kEverywhere = 3;
  std::uint64_t room = 1;
  DWORD reached = 0;
  for (const Entry& entry : code) {
    room += entry.BeginAddress - reached;
    reached = entry.EndAddress;
  }
  std::vector<Entry> all;
  reached = 0;
  for (const Entry& entry : code) {
    const DWORD gap = entry.BeginAddress - reached;
    const std::uint64_t places = kEverywhere + density * code.size() * gap / room;
    all.insert(all.end(), std::min<std::uint64_t>(places, gap / kSmallest),
               Entry{reached, reached, {entry.UnwindData}});
    all.push_back(entry);
    reached = entry.EndAddress;
  }
  return all;
}

class GrowableTable : public HeapRegistrar {
 public:
  explicit GrowableTable(const RegistrarOptions& options)
      : HeapRegistrar(options), first_capacity_(options.table_entries != 0 ? options.table_entries : 4096) {}
  ~GrowableTable() override {
    remove_all();
    if (handle_ != nullptr) system_.remove(handle_);
  }
  GrowableTable(const GrowableTable&) = delete;
  GrowableTable& operator=(const GrowableTable&) = delete;

  Expected<void> open() {
    system_.add = from_ntdll<decltype(system_.add)>("RtlAddGrowableFunctionTable");
    system_.grow = from_ntdll<decltype(system_.grow)>("RtlGrowFunctionTable");
    system_.remove = from_ntdll<decltype(system_.remove)>("RtlDeleteGrowableFunctionTable");
    if (system_.add == nullptr || system_.grow == nullptr || system_.remove == nullptr)
      return fail(ErrorCode::kUnsupported, "growable function tables need Windows 8", 0);
    return claim();
  }

 private:
  class Entries : public Published {
   public:
    Entries(GrowableTable& owner, TableEntries entries) : owner_(owner), entries_(std::move(entries)) {}
    ~Entries() override {
      if (put_)
        for (const Entry& entry : entries_.entries) owner_.table_->kill(entry.BeginAddress, entry.EndAddress);
      owner_.free(entries_);
    }
    Entries(const Entries&) = delete;
    Entries& operator=(const Entries&) = delete;

    Expected<void> put() {
      if (entries_.entries.empty()) return {};
      if (const auto ok = owner_.put(entries_.entries); !ok) return ok;
      put_ = true;
      return check_found(entries_, owner_.begin_);
    }

   private:
    GrowableTable& owner_;
    TableEntries entries_;
    bool put_ = false;
  };

  Expected<std::unique_ptr<Published>> publish(std::span<const Function> functions,
                                               std::span<const Run> runs) override {
    if (const auto ok = check_code(runs); !ok) return Failure(ok.error());
    auto written = write(functions, begin_);
    if (!written) return Failure(written.error());
    auto entries = std::make_unique<Entries>(*this, std::move(*written));
    if (const auto ok = entries->put(); !ok) return Failure(ok.error());
    return entries;
  }

  Expected<void> put(std::span<const Entry> more) {
    const std::size_t before = table_ != nullptr ? table_->count() : 0;
    if (table_ == nullptr || !table_->put(more)) return replace(more);
    if (table_->count() != before) system_.grow(handle_, static_cast<DWORD>(table_->count()));
    return {};
  }

  // The new table is known before the old one is forgotten: for a moment both
  // answer, with the same.
  Expected<void> replace(std::span<const Entry> more) {
    std::vector<Entry> code = table_ != nullptr ? table_->code() : std::vector<Entry>();
    const auto middle = code.insert(code.end(), more.begin(), more.end());
    std::inplace_merge(code.begin(), middle, code.end(),
                       [](const Entry& a, const Entry& b) { return a.BeginAddress < b.BeginAddress; });
    // As much code again should come before the next time.
    if (table_ != nullptr && code.size() < 2 * code_at_last_) density_ = std::min(2 * density_, kDensest);
    code_at_last_ = code.size();
    const std::vector<Entry> all = table_ != nullptr ? with_places(code, density_) : code;
    std::size_t capacity = std::max(first_capacity_, table_ != nullptr ? table_->capacity() : 0);
    while (capacity < all.size() + all.size() / 4) capacity *= 2;
    auto table = Table::make(all, capacity);
    if (table == nullptr) return fail(ErrorCode::kLimit, "no memory for a function table", begin_, capacity);
    void* handle = nullptr;
    const DWORD status = system_.add(&handle, table->entries(), static_cast<DWORD>(table->count()),
                                     static_cast<DWORD>(capacity), begin_, end_);
    if (status != 0) return fail(ErrorCode::kSystem, "the system refuses the growable function table", begin_, status);
    if (handle_ != nullptr) system_.remove(handle_);
    handle_ = handle;
    if (table_ != nullptr) replaced_.push_back(std::move(table_));
    table_ = std::move(table);
    return {};
  }

  static constexpr std::uint64_t kDensest = 16;

  const std::size_t first_capacity_;
  System system_{};
  std::unique_ptr<Table> table_;
  void* handle_ = nullptr;
  std::size_t code_at_last_ = 0;  // replacement
  std::uint64_t density_ = 1;
  std::vector<std::unique_ptr<Table>> replaced_;  // walkers may have an entry in hand, for how long nobody knows
};

}  // namespace

Opened open_growable_table(const RegistrarOptions& options) {
  auto registrar = std::make_unique<GrowableTable>(options);
  if (const auto ok = registrar->open(); !ok) return Failure(ok.error());
  return registrar;
}

}  // namespace windlass::registries
