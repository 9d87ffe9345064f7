// RtlInstallFunctionTableCallback(). The system asks for each address of the heap; Wine with its list's lock held, so
// the answer is found without one. An entry that was given stays where it is until its code is removed.
#include <algorithm>
#include <atomic>

#include "base/grace_period.h"
#include "base/pages.h"
#include "base/static_mutex.h"
#include "base/static_storage.h"
#include "jit/registries/windows/heap.h"

namespace windlass::registries {
namespace {

using Entry = RUNTIME_FUNCTION;  // RVAs from the heap's begin

constinit StaticStorage<GracePeriod> answers;  // under way

// The entries that a heap's pages have code of. What a look-up reads is never written again, but for the pointers to
// it.
class Directory {
 public:
  static constexpr unsigned kPageBits = 12;

  // Null: no memory.
  static Directory* make(std::uint64_t heap_size) {
    auto directory = std::make_unique<Directory>();
    directory->count_ = ((heap_size - 1) >> kPageBits) + 1;
    directory->pages_ = static_cast<std::atomic<const Page*>*>(map_pages(directory->bytes()));
    return directory->pages_ != nullptr ? directory.release() : nullptr;
  }
  Directory() = default;
  ~Directory() {
    if (pages_ == nullptr) return;
    for (std::uint64_t i = 0; i < count_; ++i) delete pages_[i].load(std::memory_order_relaxed);
    unmap_pages(pages_, bytes());
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  // A GracePeriod::Reader is in.
  [[nodiscard]] const Entry* find(std::uint32_t rva) const {
    if (rva >> kPageBits >= count_) return nullptr;
    const Page* page = pages_[rva >> kPageBits].load(std::memory_order_seq_cst);
    if (page == nullptr) return nullptr;
    const auto behind =
        std::ranges::upper_bound(*page, rva, {}, [](const Entry* entry) { return entry->BeginAddress; });
    return behind != page->begin() && rva < behind[-1]->EndAddress ? behind[-1] : nullptr;
  }

  // ---- writers, one at a time ----
  void add(std::span<const Entry> entries) {
    change(entries, [](Page& page, const Entry* entry) {
      page.insert(
          std::ranges::upper_bound(page, entry->BeginAddress, {}, [](const Entry* e) { return e->BeginAddress; }),
          entry);
    });
  }
  void remove(std::span<const Entry> entries) {
    change(entries, [](Page& page, const Entry* entry) { std::erase(page, entry); });
  }

 private:
  using Page = std::vector<const Entry*>;  // ascending, of code apart

  [[nodiscard]] std::size_t bytes() const { return count_ * sizeof(std::atomic<const Page*>); }
  // Calls alter(page, entry) for each entry and each page it has code of; ascending, so a page is replaced once.
  template <typename Alter>
  void change(std::span<const Entry> entries, Alter&& alter) {
    std::uint64_t number = 0;
    std::unique_ptr<Page> page;
    for (const Entry& entry : entries)
      for (std::uint64_t at = entry.BeginAddress >> kPageBits; at <= (entry.EndAddress - 1) >> kPageBits; ++at) {
        if (page == nullptr || at != number) {
          publish(number, std::move(page));
          const Page* old = pages_[at].load(std::memory_order_relaxed);
          page = old != nullptr ? std::make_unique<Page>(*old) : std::make_unique<Page>();
          number = at;
        }
        alter(*page, &entry);
      }
    publish(number, std::move(page));
  }
  void publish(std::uint64_t number, std::unique_ptr<Page> page) {
    if (page == nullptr) return;
    const Page* fresh = page->empty() ? nullptr : page.release();
    if (const Page* old = pages_[number].exchange(fresh, std::memory_order_seq_cst); old != nullptr)
      answers.value.retire(old);
  }

  std::uint64_t count_ = 0;
  std::atomic<const Page*>* pages_ = nullptr;
};

// What the system has in hand and gives to the callback, perhaps a moment after it was told to forget it: so it is
// never freed, and used again.
struct Context {
  std::uint64_t base = 0;
  std::atomic<const Directory*> directory = nullptr;
};
class Contexts {
 public:
  Context* take() {
    const std::lock_guard guard(lock_);
    if (spare_.empty()) return new Context;
    Context* context = spare_.back();
    spare_.pop_back();
    return context;
  }
  void give_back(Context* context) {
    const std::lock_guard guard(lock_);
    spare_.push_back(context);
  }

 private:
  StaticMutex lock_;
  std::vector<Context*> spare_;
};
constinit StaticStorage<Contexts> contexts;

Entry* CALLBACK answer(DWORD64 pc, void* given) {
  const auto* context = static_cast<const Context*>(given);
  const GracePeriod::Reader reader(answers.value);
  const Directory* directory = context->directory.load(std::memory_order_seq_cst);
  if (directory == nullptr || pc - context->base > 0xffff'ffff) return nullptr;
  return const_cast<Entry*>(directory->find(static_cast<std::uint32_t>(pc - context->base)));
}

class TableCallback : public HeapRegistrar {
 public:
  explicit TableCallback(const RegistrarOptions& options) : HeapRegistrar(options) {}
  ~TableCallback() override {
    remove_all();
    if (installed_) RtlDeleteFunctionTable(reinterpret_cast<Entry*>(identifier()));
    if (context_ == nullptr) return;
    context_->directory.store(nullptr, std::memory_order_seq_cst);
    contexts.value.give_back(context_);
    answers.value.retire(static_cast<const Directory*>(directory_));
  }
  TableCallback(const TableCallback&) = delete;
  TableCallback& operator=(const TableCallback&) = delete;

  Expected<void> install() {
    if (const auto ok = claim(); !ok) return ok;
    directory_ = Directory::make(end_ - begin_);
    if (directory_ == nullptr)
      return fail(ErrorCode::kLimit, "no memory for the directory of a heap", begin_, end_ - begin_);
    context_ = contexts.value.take();
    context_->base = begin_;
    context_->directory.store(directory_, std::memory_order_seq_cst);
    if (RtlInstallFunctionTableCallback(identifier(), begin_, static_cast<DWORD>(end_ - begin_), answer, context_,
                                        nullptr) == 0)
      return fail(ErrorCode::kSystem, "the system refuses the callback", begin_, GetLastError());
    installed_ = true;
    return {};
  }

 private:
  class Entries : public Published {
   public:
    Entries(TableCallback& owner, TableEntries entries) : owner_(owner), entries_(std::move(entries)) {
      owner_.directory_->add(entries_.entries);
    }
    ~Entries() override {
      owner_.directory_->remove(entries_.entries);
      owner_.free(entries_);
    }
    Entries(const Entries&) = delete;
    Entries& operator=(const Entries&) = delete;
    [[nodiscard]] Expected<void> check() const { return check_found(entries_, owner_.begin_); }

   private:
    TableCallback& owner_;
    TableEntries entries_;
  };

  // The two low bits set say that it is no table.
  [[nodiscard]] std::uint64_t identifier() const { return begin_ | 3; }

  Expected<std::unique_ptr<Published>> publish(std::span<const Function> functions,
                                               std::span<const Run> runs) override {
    if (const auto ok = check_code(runs); !ok) return Failure(ok.error());
    auto written = write(functions, begin_);
    if (!written) return Failure(written.error());
    auto entries = std::make_unique<Entries>(*this, std::move(*written));
    if (const auto ok = entries->check(); !ok) return Failure(ok.error());
    return entries;
  }

  Directory* directory_ = nullptr;
  Context* context_ = nullptr;
  bool installed_ = false;
};

}  // namespace

Opened open_table_callback(const RegistrarOptions& options) {
  auto registrar = std::make_unique<TableCallback>(options);
  if (const auto ok = registrar->install(); !ok) return Failure(ok.error());
  return registrar;
}

}  // namespace windlass::registries
