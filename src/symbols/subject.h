// The subject of a Symbolizer: says where an address lies, in a file, a space or a process.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "os/descriptor.h"
#include "symbols/known_modules.h"
#include "walk/interpreted.h"
#include "walk/module.h"
#include "walk/target/process_modules.h"
#include "windlass/target.h"

namespace windlass::symbols {

struct Place {
  KnownModule* module = nullptr;  // Null: there is nothing to name it by.
  std::string_view path;          // Empty: the address is in nothing known.
  std::uint64_t offset = 0;       // In the module's numbering.
  std::uint64_t number = 0;       // In the numbering of `module`.
  // The name by the maker of the code; empty: none.
  std::string_view name = {};
  std::uint64_t function_begin = 0;  // In the numbering of `offset`.
  std::string_view file = {};        // With the name, if the maker of the code gives it.
  std::uint32_t line = 0;
  // Functions inlined there, innermost first: names, files and lines. Without a name of its own: functions that an
  // interpreter runs there.
  std::vector<Place> inlined = {};
};

// Used by one thread at a time. The KnownModules must outlive it.
class Subject {
 public:
  virtual ~Subject() = default;
  // Called once before the addresses of a call.
  virtual void begin_call() {}
  // `function`: Frame::function.
  [[nodiscard]] virtual Place find(std::uint64_t address, std::uint64_t function) = 0;
  [[nodiscard]] virtual std::vector<std::string> notes() const { return {}; }
  // The memory in which the addresses lie; null: there is none that stays.
  [[nodiscard]] virtual const AddressSpace* space() const { return nullptr; }
};

class FileSubject final : public Subject {
 public:
  [[nodiscard]] static Expected<std::unique_ptr<Subject>> open(const std::string& path, KnownModules& modules);
  FileSubject(KnownModule* module, std::string_view path) : module_(module), path_(path) {}
  Place find(std::uint64_t address, std::uint64_t) override { return {module_, path_, address, address}; }

 private:
  KnownModule* module_;
  std::string_view path_;
};

// The process or dump that a space is the memory of.
struct SpaceOrigin {
  std::uint64_t process = 0;                                  // Whose perf map names its generated code; 0: not known.
  bool live = false;                                          // A process of this machine: its vdso is this kernel's.
  std::shared_ptr<const walk::Interpreted> interpreted = {};  // The Target's.
};

class SpaceSubject final : public Subject {
 public:
  // The space must outlive it.
  SpaceSubject(const AddressSpace& space, const SpaceOrigin& origin, KnownModules& modules);
  // Opens the files with code at `pcs` now, not only when needed. What a file is called by itself is read when needed.
  void open_those_of(std::span<const CodeAddress> pcs);
  void open_all();
  Place find(std::uint64_t address, std::uint64_t function) override;
  [[nodiscard]] const AddressSpace* space() const override { return &space_; }

 private:
  struct Known {
    KnownModule* module = nullptr;
    std::string_view path;
    std::uint64_t bias = 0;         // Of offsets.
    std::uint64_t number_bias = 0;  // Of the numbers by which names are looked up.
    bool is_final = true;           // False: a file that names it may turn up later.
  };

  void add_interpreted(std::uint64_t function, Place& place);
  [[nodiscard]] Place named_place(const sources::NamedFunction& function);
  void add_functions(sources::NameSource& names, std::uint64_t address, std::uint64_t function, Place& place);
  void open(const walk::Module& module);
  const Known& known(const walk::Module& module);
  [[nodiscard]] Known identify(const walk::Module& module);
  [[nodiscard]] KnownModule* perf_map();
  [[nodiscard]] KnownModule* vdso(const ModuleInfo& info);
  [[nodiscard]] KnownModule* file(const walk::Module& module);

  const AddressSpace& space_;
  SpaceOrigin origin_;
  KnownModules& modules_;
  std::string perf_map_;
  std::unordered_map<std::uint64_t, Known> by_id_;
  std::unordered_map<std::uint64_t, os::Descriptor> opened_;  // of modules that are not in by_id_ yet
  Known last_unkept_;                                         // Of a module about which nothing may be kept.
  std::vector<sources::NamedFunction> functions_;
};

class ProcessSubject final : public Subject {
 public:
  [[nodiscard]] static Expected<std::unique_ptr<Subject>> open(std::uint64_t pid, KnownModules& modules);
  // `folder`: /proc/PID, which leads nowhere once the process has ended, even if another process gets its number.
  ProcessSubject(pid_t pid, os::Descriptor folder, KnownModules& modules)
      : pid_(pid), folder_(std::move(folder)), modules_(modules) {}

  void begin_call() override;
  Place find(std::uint64_t address, std::uint64_t function) override {
    return mapped_->subject.find(address, function);
  }
  std::vector<std::string> notes() const override { return mapped_->target.notes; }

 private:
  // The modules of one state of its mappings.
  struct Mapped {
    Mapped(pid_t pid, const std::string& maps, KnownModules& known);
    Target target;
    walk::ProcessModules modules;
    SpaceSubject subject;
  };
  [[nodiscard]] std::string read_maps() const;

  pid_t pid_;
  os::Descriptor folder_;
  KnownModules& modules_;
  std::string maps_;
  std::unique_ptr<Mapped> mapped_;
};

}  // namespace windlass::symbols
