// Functions, their code, and where it is known: to walks, exceptions, debuggers and profilers.
#include "runtime.h"

#include <sys/mman.h>
#include <windlass/backtrace.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "codegen.h"

namespace lilt {

using namespace windlass::managed;

namespace {

Word reserve_code(std::size_t size) {
  void* made = mmap(nullptr, size, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) throw std::runtime_error("no memory for code");
  return reinterpret_cast<Word>(made);
}

template <typename T>
T take(windlass::Expected<T> made) {
  if (!made) throw std::runtime_error(made.error().text());
  if constexpr (!std::is_void_v<T>) return std::move(*made);
}

constexpr const char* kPrelude = "struct Error { message: string; }";

}  // namespace

Runtime::Runtime(const Options& chosen)
    : options(chosen),
      heap(chosen.heap),
      suspender(windlass::own_process(), *this, *this, SIGRTMIN + 3),
      code_(reserve_code(kCodeSize)),
      pieces_(new std::atomic<const Piece*>[kCodeSize / kGranule]()) {
  manager_.emplace(take(windlass::CodeManager::create(code_, code_ + kCodeSize)));
  take(windlass::add_own_code(*manager_));
  if (options.gdb) debugger_ = take(windlass::open_registrar(windlass::Registry::kGdb));
  parse(program, kPrelude);
}

Runtime::~Runtime() = default;

// ---- types and cells ----------------------------------------------------------------------------------------------

const TypeInfo& Runtime::info(TypeRef type) {
  auto& made = structs_[type];
  if (!made.name.empty()) return made;
  made.name = type->name;
  for (const Parameter& field : program.structs.at(type->name).fields)
    made.references.push_back(field.type->is_reference());
  return made;
}

// Literals are objects outside of the heap, which never move.
Object* Runtime::literal(const std::string& text) {
  auto& words = literals_[text];
  if (words.empty()) {
    words.resize(3 + text.size() / 8);
    words[0] = reinterpret_cast<Word>(&string_);
    words[1] = text.size();
    std::copy(text.begin(), text.end(), reinterpret_cast<char*>(words.data() + 2));
  }
  return reinterpret_cast<Object*>(words.data());
}

void Runtime::made(Function& function) {
  Cell& cell = cells_.emplace_back();
  cell.function = &function;
  function.cell = &cell;
  if (function.is_lambda) {
    TypeInfo& type = closures_.emplace_back(TypeInfo{TypeInfo::kFields, function.name, {false}});
    for (const auto& captured : function.captures) type.references.push_back(captured.type->is_reference());
    cell.closure = &type;
  }
  to_compile_.push_back(&cell);
}

// ---- code ---------------------------------------------------------------------------------------------------------

// First fit among what was freed, else behind all that there is.
Word Runtime::take_space(std::size_t size) {
  size = (size + kGranule - 1) / kGranule * kGranule;
  if (const auto found = free_.lower_bound(size); found != free_.end()) {
    const auto [room, at] = *found;
    free_.erase(found);
    if (room > size) free_.emplace(room - size, at + size);
    return at;
  }
  if (code_used_ + size > kCodeSize) throw std::runtime_error("no room for code");
  return code_ + std::exchange(code_used_, code_used_ + size);
}

void Runtime::compile(Cell& cell, int tier) {
  auto code = generate(
      *this, cell, tier, [](void* self, std::size_t size) { return static_cast<Runtime*>(self)->take_space(size); },
      this);
  publish(*code);
  if (cell.code != nullptr) {
    const auto old = std::ranges::find(codes_, cell.code, &std::unique_ptr<Code>::get);
    retired_.push_back(std::move(*old));
    codes_.erase(old);
  }
  cell.code = code.get();
  cell.tier = tier;
  cell.calls_left = static_cast<std::int32_t>(tier == 0 ? options.tier_up : options.again);
  cell.entry.store(code->begin, std::memory_order_release);
  codes_.push_back(std::move(code));
  ++compiled;
}

// Before it runs: for find(), for walks of this process and of others, for a debugger.
void Runtime::publish(Code& code) {
  std::vector<windlass::GeneratedFunction> functions;
  for (const Piece& piece : code.pieces) {
    const auto size = static_cast<std::uint32_t>(piece.method.end - piece.method.begin);
    for (Word at = piece.method.begin; at < piece.method.end; at += kGranule)
      pieces_[(at - code_) / kGranule].store(&piece, std::memory_order_release);
    functions.push_back({.address = piece.method.begin, .size = size, .name = piece.name, .rows = piece.rows});
  }
  take(manager_->add(functions));
  if (debugger_) code.debugger = take(debugger_->add(functions));
}

// All threads are stopped: what was replaced and stands on no stack goes, and its place is used again.
void Runtime::release_unused(const std::vector<MutatorThread*>& threads) {
  const std::lock_guard lock(compiling_);
  for (auto& code : retired_) code->seen = false;
  for (const MutatorThread* thread : threads) {
    ManagedWalker walker(thread->walk, windlass::Registers(windlass::kOwnArchitecture), kThreadIsSuspended);
    while (walker.next()) {
      if (!walker.frame().frameless()) continue;
      for (auto& code : retired_) code->seen |= walker.frame().pc().lookup() - code->begin < code->size;
    }
    if (walker.error()) std::fprintf(stderr, "%s\n", walker.error()->text().c_str()), std::abort();
  }
  std::erase_if(retired_, [&](const std::unique_ptr<Code>& code) {
    if (code->seen) return false;
    for (const Piece& piece : code->pieces) {
      for (Word at = piece.method.begin; at < piece.method.end; at += kGranule)
        pieces_[(at - code_) / kGranule] = nullptr;
      take(manager_->remove({piece.method.begin}));
    }
    if (debugger_) take(debugger_->remove(code->debugger));
    std::fill_n(reinterpret_cast<unsigned char*>(code->begin), code->size, kFreed);
    free_.emplace((code->size + kGranule - 1) / kGranule * kGranule, code->begin);
    ++freed;
    return true;
  });
}

const Method* Runtime::find(Word pc) const {
  if (pc - code_ >= kCodeSize) return nullptr;
  const Piece* piece = pieces_[(pc - code_) / kGranule].load(std::memory_order_acquire);
  return piece != nullptr && pc >= piece->method.begin && pc < piece->method.end ? &piece->method : nullptr;
}

const Piece* Runtime::piece_at(Word pc) const {
  return find(pc) == nullptr ? nullptr : pieces_[(pc - code_) / kGranule].load(std::memory_order_acquire);
}

bool Runtime::returns_reference(const Method& method) const { return piece_at(method.begin)->returns_reference; }

void Runtime::tier_up(Thread& thread, Cell& cell) {
  bool sweep = false;
  {
    const std::lock_guard lock(compiling_);
    if (cell.tier == 0 || options.again != 0) compile(cell, 1);
    sweep = retired_.size() >= 16;
  }
  if (!sweep) return;
  in_native(thread, [&] {
    const Stopped stopped(suspender);
    release_unused(stopped.threads());
  });
}

// ---- running ------------------------------------------------------------------------------------------------------

void Runtime::compile(const std::string& source) {
  Function* main = parse(program, source);
  made(*main);
  try {
    check(program, *this, *main);
  } catch (...) {  // what was checked for this alone is not whole
    std::erase_if(program.instances, [&](const auto& each) {
      return std::ranges::find(to_compile_, each.second->cell) != to_compile_.end();
    });
    to_compile_.clear();
    throw;
  }
  const std::lock_guard lock(compiling_);
  for (Cell* cell : std::exchange(to_compile_, {})) compile(*cell, 0);
  main_ = main->cell;
}

void Runtime::run_main() {
  Attached attached(*this);
  suspender.leave_native(*attached.thread.mutator);
  call(attached.thread, main_, {});
  suspender.enter_native(*attached.thread.mutator);
}

void Runtime::run_thread(Word closure_at, Word argument) {
  Attached attached(*this);
  suspender.leave_native(*attached.thread.mutator);
  const Word closure = *reinterpret_cast<const Word*>(closure_at);
  call(attached.thread, nullptr, {closure, argument});
  suspender.enter_native(*attached.thread.mutator);
}

void Runtime::report() const {
  std::fprintf(stderr, "%lu walks checked, %lu frames, %lu wrong; %lu collections; %lu compiled, %lu freed\n",
               checked.load(), frames_checked.load(), wrong.load(), heap.collections.load(), compiled.load(),
               freed.load());
}

}  // namespace lilt
