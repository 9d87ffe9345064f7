// What runtimes have in common that are described by one layout, of their data, and by one map of their code.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "runtimes/late_map.h"
#include "runtimes/runtime_code.h"

namespace windlass::runtimes {

template <typename Layout, typename CodeMap>
struct LaidOut {
  explicit LaidOut(const Layout& read) : layout(read), map(layout) {}
  LaidOut(const LaidOut&) = delete;
  LaidOut& operator=(const LaidOut&) = delete;

  Layout layout;
  CodeMap map;  // refers to the layout
};

template <typename Layout, typename CodeMap>
class LaidOutRuntime : public Runtime {
 public:
  Architecture architecture() const override { return Architecture::kX86_64; }
  std::optional<Error> problem() const override { return tables_.problem(); }
  bool is_understood() const override { return !tables_.is_ready() || tables_; }

 protected:
  using ReadLayout = Expected<Layout>(const Memory& memory, std::uint64_t image);
  LaidOutRuntime(std::shared_ptr<const Memory> memory, std::uint64_t image, ReadLayout* read)
      : memory_(std::move(memory)), image_(image), read_(read) {
    prepare();
  }

  void prepare() {
    tables_.prepare([&] { return read_(*memory_, image_); });
  }
  // The process has not got far enough to be read.
  bool is_not_ready() {
    prepare();
    return !tables_.is_ready();
  }

  std::shared_ptr<const Memory> memory_;
  std::uint64_t image_;
  ReadLayout* read_;
  LateMap<LaidOut<Layout, CodeMap>> tables_;
};

}  // namespace windlass::runtimes
