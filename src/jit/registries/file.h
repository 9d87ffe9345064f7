// Registries that are a file of the process, to which text is appended and of which nothing can be withdrawn.
#pragma once

#include <sys/types.h>

#include <map>

#include "jit/registries/batch.h"
#include "os/descriptor.h"

namespace windlass::registries {

class FileRegistrar : public BatchRegistrar {
 public:
  // Begins the file of this process. To be called once; a child of fork() begins its own.
  [[nodiscard]] Expected<void> open();

 protected:
  // The file is "PREFIX<process>SUFFIX".
  FileRegistrar(std::string prefix, std::string suffix) : prefix_(std::move(prefix)), suffix_(std::move(suffix)) {}

  // How the file is opened, and what stands at its begin.
  [[nodiscard]] virtual int open_flags() const = 0;
  [[nodiscard]] virtual Expected<void> begin() { return {}; }
  [[nodiscard]] virtual Expected<std::string> text_of(std::span<const Function> functions) = 0;

  // What says that code has moved, before its text at the new place. `was`: its text at the old one.
  [[nodiscard]] virtual std::string text_of_moves(std::string_view /*was*/, std::span<const MovedFunction>) const {
    return {};
  }
  // Makes what a parent wrote a text of this process, its child.
  virtual void inherit(std::string&) const {}

  // All of it or, but for what others write to the file meanwhile, nothing.
  [[nodiscard]] Expected<void> write(std::string_view text) const;
  [[nodiscard]] int file() const { return file_.get(); }
  // False in a child that has registered nothing.
  [[nodiscard]] bool is_own() const;

 private:
  class Text;

  [[nodiscard]] Expected<std::unique_ptr<Published>> publish(std::span<const Function> functions,
                                                             std::span<const Run> runs) override;
  [[nodiscard]] Expected<std::unique_ptr<Published>> republish(std::unique_ptr<Published> was,
                                                               std::span<const MovedFunction> moves,
                                                               std::span<const Function> functions,
                                                               std::span<const Run> runs) override;
  [[nodiscard]] Expected<void> follow_fork();
  void take_back(std::size_t size) const;

  const std::string prefix_, suffix_;
  os::Descriptor file_;
  pid_t process_ = 0;
  std::map<const Text*, std::string*> live_;  // for a child's file
};

}  // namespace windlass::registries
