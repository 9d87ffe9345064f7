// A stack and managed methods that are made up word by word, for walks whose every step is known.
#pragma once

#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "windlass/managed/walk.h"

namespace windlass::managed {

inline constexpr std::uint64_t kCode = 0x10000, kCodeSize = 0x100, kNativeCode = 0x900000;
inline constexpr std::uint64_t kStackTop = 0x7000'0000, kStackSize = 0x4000;
inline constexpr RegisterNumber kRbx = 3, kRbp = 6, kR12 = 12;

class MadeUpMemory : public Memory {
 public:
  bool read(std::uint64_t address, void* to, std::size_t size) const override {
    if (address < kStackTop - kStackSize || address > kStackTop || size > kStackTop - address) return false;
    std::memcpy(to, bytes_ + (address - (kStackTop - kStackSize)), size);
    return true;
  }
  template <typename T>
  void put(std::uint64_t address, const T& value) {
    std::memcpy(bytes_ + (address - (kStackTop - kStackSize)), &value, sizeof value);
  }

 private:
  std::byte bytes_[kStackSize] = {};
};

// Every method has a frame of `words` words above its sp: [.., rbx of its caller, return address].
class MadeUpRuntime : public Runtime {
 public:
  Method& add(std::uint64_t id, unsigned words, Funclet funclet = Funclet::kNone, const Method* parent = nullptr) {
    const std::uint64_t begin = kCode + methods_.size() * kCodeSize;
    Method& method = methods_.emplace_back();
    method.begin = begin;
    method.end = begin + kCodeSize;
    method.id = id;
    method.funclet = funclet;
    method.parent = parent;
    words_.push_back(words);
    return method;
  }
  const Method* find(std::uint64_t pc) const override {
    const std::uint64_t index = (pc - kCode) / kCodeSize;
    return pc >= kCode && index < methods_.size() ? &methods_[index] : nullptr;
  }
  Expected<void> row_at(const AddressSpace&, const Method& method, std::uint64_t pc, FrameRow& to) const override {
    to = FrameRow{};
    to.begin = pc;
    to.end = pc + 1;
    to.cfa = CfaRule::at(7, static_cast<std::int32_t>(8 * words(method)));
    to.return_address = RegisterRule::at_cfa(-8);
    (void)to.registers.set(kRbx, RegisterRule::at_cfa(-16));
    return {};
  }
  std::string_view name(const Method& method, std::span<char> to) const override {
    const std::string text = "method" + std::to_string(method.id);
    const std::size_t size = std::min(text.size(), to.size());
    std::memcpy(to.data(), text.data(), size);
    return {to.data(), size};
  }
  std::uint64_t guard_value() const override { return 0x6a6a'6a6a; }
  [[nodiscard]] unsigned words(const Method& method) const { return words_[(method.begin - kCode) / kCodeSize]; }

 private:
  std::deque<Method> methods_;
  std::vector<unsigned> words_;
};

// Grows downwards, outermost first.
class MadeUpStack {
 public:
  static constexpr std::uint64_t kCookie = 0x1234'5678;

  MadeUpStack() {
    auto memory = std::make_unique<MadeUpMemory>();
    mem = memory.get();
    space = std::make_unique<AddressSpace>(Architecture::kX86_64, std::move(memory));
    thread = {.space = space.get(), .runtime = &runtime, .cookie = kCookie};
  }

  // `method` was called by what is there so far; returns where its frame begins, its CFA.
  std::uint64_t call(const Method& method, std::uint64_t its_rbx = 0) {
    const std::uint64_t cfa = sp;
    sp -= 8ull * runtime.words(method);
    mem->put(cfa - 8, pc);
    mem->put(cfa - 16, rbx);
    pc = method.begin + 0x10;
    rbx = its_rbx;
    return cfa;
  }
  void call_native(unsigned words = 8) {
    sp -= 8ull * words;
    mem->put(sp + 8ull * words - 8, pc);
    pc = kNativeCode + 0x10;
  }
  // Pushes a frame of the list into native code's, or `at` a place in a method's.
  template <typename F>
  std::uint64_t push(F frame, std::uint64_t at = 0) {
    if (at == 0) at = sp -= (sizeof(F) + 15) / 16 * 16;
    frame.header.next = thread.frames;
    frame.header.cookie = kCookie ^ at;
    mem->put(at, frame);
    thread.frames = at;
    return at;
  }
  std::uint64_t push_record(ExceptionRecord record) {
    sp -= (sizeof record + 15) / 16 * 16;
    record.previous = thread.exceptions;
    record.cookie = kCookie ^ sp;
    mem->put(sp, record);
    return thread.exceptions = sp;
  }
  [[nodiscard]] CallSiteFrame call_site() const {
    CallSiteFrame frame;
    frame.site = {pc, sp, 0};
    return frame;
  }
  [[nodiscard]] Registers registers(bool interrupted = false) const {
    Registers registers(Architecture::kX86_64);
    registers.set_pc(interrupted ? CodeAddress::instruction(pc) : CodeAddress::return_address(pc));
    registers.set_sp(sp);
    registers.set(kRbx, rbx);
    registers.set(kRbp, 0x66);
    return registers;
  }

  // What a walk shows, as text: "3 call(inlined call) 2 1".
  [[nodiscard]] std::string shown(const Registers& from, WalkFlags flags) const {
    std::string text;
    Error error;
    const WalkOutcome outcome = walk(
        thread, from, flags,
        [&](const CrawlFrame& frame) {
          if (!text.empty()) text += ' ';
          switch (frame.state) {
            case CrawlState::kFrameless: text += std::to_string(frame.method->id); break;
            case CrawlState::kFrameFunction: text += std::string(kind_name(frame.frame.kind)); break;
            case CrawlState::kSkippedFrame: text += "skipped " + std::string(kind_name(frame.frame.kind)); break;
            default: text += std::string(state_name(frame.state));
          }
          if (frame.interrupted) text += '!';
          if (frame.faulted) text += '*';
          if (!frame.reports_roots) text += "(silent)";
          return WalkAction::kContinue;
        },
        &error);
    if (outcome == WalkOutcome::kFailed) text += (text.empty() ? "error: " : " error: ") + std::string(error.what);
    return text;
  }

  MadeUpRuntime runtime;
  MadeUpMemory* mem;
  std::unique_ptr<AddressSpace> space;
  ManagedThread thread;
  std::uint64_t sp = kStackTop - 64, pc = kNativeCode + 0x80, rbx = 0;
};

}  // namespace windlass::managed
