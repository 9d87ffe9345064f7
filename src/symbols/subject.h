// What a Symbolizer names the code of: it says where an address lies.
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
  KnownModule* module = nullptr;  // null: there is nothing to name it by
  std::string_view path;          // empty: the address is in nothing known
  std::uint64_t offset = 0;       // as the module numbers it
  std::uint64_t number = 0;       // as `module` names it
  // Where whoever made the code names it; empty: he does not.
  std::string_view name = {};
  std::uint64_t function_begin = 0;  // as `offset` is numbered
  std::string_view file = {};        // with the name, where he says that, too
  std::uint32_t line = 0;
  // In it, innermost first: names, files and lines. Without a name of its own: what an interpreter runs there.
  std::vector<Place> inlined = {};
};

// One thread at a time. The KnownModules must outlive it.
class Subject {
 public:
  virtual ~Subject() = default;
  // Once before the addresses of a call.
  virtual void begin_call() {}
  // `function`: Frame::function.
  [[nodiscard]] virtual Place find(std::uint64_t address, std::uint64_t function) = 0;
  [[nodiscard]] virtual std::vector<std::string> notes() const { return {}; }
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

// What a space is the memory of.
struct SpaceOrigin {
  std::uint64_t process = 0;                                  // whose perf map names its generated code; 0: not known
  bool live = false;                                          // a process of this machine: its vdso is this kernel's
  std::shared_ptr<const walk::Interpreted> interpreted = {};  // Target's
};

class SpaceSubject final : public Subject {
 public:
  // The space must outlive it.
  SpaceSubject(const AddressSpace& space, const SpaceOrigin& origin, KnownModules& modules);
  // Opens every module's file now, in place of when it is first needed.
  void open_all();
  Place find(std::uint64_t address, std::uint64_t function) override;

 private:
  struct Known {
    KnownModule* module = nullptr;
    std::string_view path;
    std::uint64_t bias = 0;         // of offsets
    std::uint64_t number_bias = 0;  // of what names are looked up by
    bool is_final = true;           // false: what names it may turn up later
  };

  void add_interpreted(std::uint64_t function, Place& place);
  [[nodiscard]] Place named_place(const sources::NamedFunction& function);
  bool add_functions(const walk::Module& module, std::uint64_t address, std::uint64_t function, Place& place);
  const Known& known(const walk::Module& module);
  [[nodiscard]] Known identify(const walk::Module& module);
  [[nodiscard]] KnownModule* perf_map();
  [[nodiscard]] KnownModule* vdso(const ModuleInfo& info);
  [[nodiscard]] KnownModule* file(const ModuleInfo& info);

  const AddressSpace& space_;
  SpaceOrigin origin_;
  KnownModules& modules_;
  std::string perf_map_;
  std::unordered_map<std::uint64_t, Known> by_id_;
  Known last_unkept_;  // of a module that nothing may be kept about
  std::vector<sources::NamedFunction> functions_;
  std::vector<char> name_room_ = std::vector<char>(std::size_t{1} << 16);  // for any name of made code
};

class ProcessSubject final : public Subject {
 public:
  [[nodiscard]] static Expected<std::unique_ptr<Subject>> open(std::uint64_t pid, KnownModules& modules);
  // `folder`: /proc/PID, which leads nowhere once the process has ended, whoever gets its number.
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
