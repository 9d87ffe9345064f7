// Small minidumps, as Windows, Breakpad and Crashpad lay them out.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "support/byte_sink.h"
#include "windlass/registers.h"

namespace windlass::test {

class MinidumpWriter {
 public:
  enum class Context { kMicrosoft, kBreakpadOld };  // of AArch64
  struct DumpThread {
    std::uint32_t id;
    Registers registers;
    std::string name;
    std::uint64_t stack_begin = 0;
    std::vector<std::byte> stack{};
  };
  struct Module {
    std::uint64_t begin;
    std::uint32_t size;
    std::string path;
    std::vector<std::uint8_t> id{};
    bool elf_id = true;  // BpEL, else RSDS with the first 16 bytes
    std::uint32_t timestamp = 0;
    std::u16string wide_path{};  // instead of `path`
  };
  struct Memory {
    std::uint64_t begin;
    std::vector<std::byte> bytes;
  };

  explicit MinidumpWriter(Architecture architecture) : architecture_(architecture) {}

  std::vector<DumpThread> threads;
  std::vector<Module> modules;
  std::vector<Memory> memory;    // MemoryList
  std::vector<Memory> memory64;  // Memory64List
  std::uint32_t crashed = 0;     // 0: no exception stream
  std::uint32_t exception_code = 11;
  std::uint32_t process = 0;  // MiscInfo; 0: none
  std::string linux_maps, linux_command_line;
  bool windows = false;
  bool extended_threads = false;  // ThreadExList
  bool padded_lists = false;      // 4 bytes behind each count
  Context context = Context::kMicrosoft;

  struct StreamPlace {
    std::uint32_t type;
    std::uint32_t at;
    std::uint32_t size;
  };
  // Where each stream is in what `write` made last.
  [[nodiscard]] const std::vector<StreamPlace>& streams() const { return streams_; }

  std::vector<std::byte> write() {
    out_ = ByteSink();
    streams_.clear();
    out_.zeros(32);
    const std::size_t directory = out_.zeros(12 * kMaxStreams);
    write_system();
    write_threads();
    write_modules();
    write_memory();
    if (crashed != 0) write_exception();
    if (process != 0) {
      const std::size_t at = out_.put(std::uint32_t{24});
      out_.put(std::uint32_t{1});
      out_.put(process);
      out_.zeros(12);
      stream(15, at);
    }
    if (!linux_maps.empty()) stream(0x47670009, out_.append(linux_maps));
    if (!linux_command_line.empty()) stream(0x47670006, out_.append(linux_command_line));
    out_.set(0, std::uint32_t{0x504d444d});
    out_.set(4, std::uint32_t{0xa793});
    out_.set(8, static_cast<std::uint32_t>(streams_.size()));
    out_.set(12, static_cast<std::uint32_t>(directory));
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      out_.set(directory + 12 * i, streams_[i].type);
      out_.set(directory + 12 * i + 4, streams_[i].size);
      out_.set(directory + 12 * i + 8, streams_[i].at);
    }
    return out_.bytes();
  }

 private:
  static constexpr std::size_t kMaxStreams = 12;
  struct Place {
    std::uint32_t size;
    std::uint32_t rva;
  };

  void stream(std::uint32_t type, std::size_t at) {
    streams_.push_back({type, static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(out_.size() - at)});
    out_.align(4);
  }
  Place place(std::size_t at) const {
    return {static_cast<std::uint32_t>(out_.size() - at), static_cast<std::uint32_t>(at)};
  }
  void count(std::size_t entries) {
    out_.put(static_cast<std::uint32_t>(entries));
    if (padded_lists) out_.zeros(4);
  }
  std::uint32_t string(const std::string& ascii) { return string(std::u16string(ascii.begin(), ascii.end())); }
  std::uint32_t string(const std::u16string& units) {
    out_.align(4);
    const std::size_t at = out_.put(static_cast<std::uint32_t>(2 * units.size()));
    for (const char16_t unit : units) out_.put(static_cast<std::uint16_t>(unit));
    out_.put(std::uint16_t{0});
    return static_cast<std::uint32_t>(at);
  }

  void write_system() {
    const std::size_t at = out_.zeros(56);
    const std::uint16_t arm = context == Context::kBreakpadOld ? 0x8003 : 12;
    out_.set(at, architecture_ == Architecture::kX86_64 ? std::uint16_t{9} : arm);
    out_.set(at + 20, windows ? std::uint32_t{2} : std::uint32_t{0x8201});
    stream(7, at);
  }

  Place write_context(const Registers& registers) {
    const std::size_t at = out_.size();
    if (architecture_ == Architecture::kX86_64) {
      out_.zeros(1232);
      out_.set(at + 0x30, std::uint32_t{0x10000b});
      constexpr std::uint64_t kOrder[] = {0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15, 16};
      for (std::size_t i = 0; i < std::size(kOrder); ++i) out_.set(at + 0x78 + 8 * i, registers.get(kOrder[i]));
      return place(at);
    }
    const bool old = context == Context::kBreakpadOld;
    out_.zeros(old ? 796 : 912);
    if (old)
      out_.set(at, std::uint64_t{0x80000006});
    else
      out_.set(at, std::uint32_t{0x400007});
    for (std::uint64_t i = 0; i < 33; ++i) out_.set(at + 8 + 8 * i, registers.get(i));
    for (std::uint64_t i = 0; i < 8; ++i) out_.set(at + (old ? 284 : 272) + 16 * (8 + i), registers.get(72 + i));
    return place(at);
  }

  void write_threads() {
    std::vector<std::pair<Place, Place>> places;  // stack, context
    std::vector<std::uint32_t> names;
    for (const DumpThread& thread : threads) {
      out_.align(4);
      const std::size_t stack = out_.append(thread.stack);
      const Place stack_place = place(stack);
      out_.align(16);
      places.emplace_back(stack_place, write_context(thread.registers));
      names.push_back(thread.name.empty() ? 0 : string(thread.name));
    }
    out_.align(4);
    const std::size_t at = out_.size();
    count(threads.size());
    for (std::size_t i = 0; i < threads.size(); ++i) {
      out_.put(threads[i].id);
      out_.zeros(20);
      out_.put(threads[i].stack_begin);
      out_.put(places[i].first);
      out_.put(places[i].second);
      if (extended_threads) out_.zeros(16);
    }
    stream(extended_threads ? 8 : 3, at);
    const std::size_t names_at = out_.size();
    std::size_t named = 0;
    for (const std::uint32_t name : names) named += name != 0;
    if (named == 0) return;
    count(named);
    for (std::size_t i = 0; i < threads.size(); ++i) {
      if (names[i] == 0) continue;
      out_.put(threads[i].id);
      out_.put(std::uint64_t{names[i]});
    }
    stream(24, names_at);
  }

  void write_modules() {
    if (modules.empty()) return;
    std::vector<std::pair<std::uint32_t, Place>> places;  // name, CodeView record
    for (const Module& module : modules) {
      const std::uint32_t name = module.wide_path.empty() ? string(module.path) : string(module.wide_path);
      out_.align(4);
      const std::size_t at = out_.size();
      if (!module.id.empty()) {
        out_.put(module.elf_id ? std::uint32_t{0x4270454c} : std::uint32_t{0x53445352});
        out_.append(module.id.data(), module.elf_id ? module.id.size() : std::min<std::size_t>(16, module.id.size()));
        if (!module.elf_id) {
          out_.put(std::uint32_t{1});
          out_.append(std::string_view("x.pdb\0", 6));
        }
      }
      places.emplace_back(name, place(at));
    }
    out_.align(4);
    const std::size_t at = out_.size();
    count(modules.size());
    for (std::size_t i = 0; i < modules.size(); ++i) {
      const std::size_t entry = out_.zeros(108);
      out_.set(entry, modules[i].begin);
      out_.set(entry + 8, modules[i].size);
      out_.set(entry + 16, modules[i].timestamp);
      out_.set(entry + 20, places[i].first);
      out_.set(entry + 76, places[i].second);
    }
    stream(4, at);
  }

  void write_memory() {
    if (!memory.empty()) {
      std::vector<Place> places;
      for (const Memory& piece : memory) places.push_back(place(out_.append(piece.bytes)));
      out_.align(4);
      const std::size_t at = out_.size();
      count(memory.size());
      for (std::size_t i = 0; i < memory.size(); ++i) {
        out_.put(memory[i].begin);
        out_.put(places[i]);
      }
      stream(5, at);
    }
    if (!memory64.empty()) {
      const std::size_t base = out_.size();
      for (const Memory& piece : memory64) out_.append(piece.bytes);
      out_.align(4);
      const std::size_t at = out_.put(std::uint64_t{memory64.size()});
      out_.put(std::uint64_t{base});
      for (const Memory& piece : memory64) {
        out_.put(piece.begin);
        out_.put(std::uint64_t{piece.bytes.size()});
      }
      stream(9, at);
    }
  }

  void write_exception() {
    Place where{0, 0};
    std::uint64_t address = 0;
    for (const DumpThread& thread : threads) {
      if (thread.id != crashed) continue;
      out_.align(16);
      where = write_context(thread.registers);
      address = thread.registers.pc().value();
    }
    out_.align(8);
    const std::size_t at = out_.zeros(168);
    out_.set(at, crashed);
    out_.set(at + 8, exception_code);
    out_.set(at + 24, address);
    out_.set(at + 160, where);
    stream(6, at);
  }

  Architecture architecture_;
  ByteSink out_;
  std::vector<StreamPlace> streams_;
};

}  // namespace windlass::test
