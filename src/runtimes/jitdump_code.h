// The code that a process's jitdump tells of.
#pragma once

#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "formats/dwarf/cfi.h"
#include "os/code_history.h"
#include "os/jitdump.h"
#include "runtimes/jitdump_lines.h"
#include "runtimes/published_code.h"
#include "windlass/function_ref.h"

namespace windlass::manager {

// Each function has its name from the time of its record on, until a later record covers its range or the function
// moves. Rows come from the dump's unwinding data, and lines from its debug information, where the dump has these.
// Answers for all code of the process for which no code manager answers. Of two dumps, the one opened later answers.
//
// If the file's times are those of a processor's clock, not of CLOCK_MONOTONIC, a record counts from the moment it was
// read. Bounds: kMaxFunctions, kMaxText bytes of names, kMaxFrames bytes of unwinding data that were needed.
class JitdumpCode final : public PublishedCode, private os::JitdumpVisitor {
 public:
  static constexpr std::size_t kMaxFunctions = std::size_t{1} << 22;
  static constexpr std::size_t kMaxText = std::size_t{256} << 20;
  static constexpr std::size_t kMaxFrames = std::size_t{64} << 20;
  static constexpr std::uint64_t kLookInterval = 10'000'000;  // ns, at a file that may have become longer

  // By os::files_of(). kSystem: it cannot be opened; kNotFound: what its path leads to is another file.
  [[nodiscard]] static Expected<std::shared_ptr<JitdumpCode>> open(pid_t pid, pid_t parent, const os::ProcMap& map);
  JitdumpCode(os::GrowingFile file, std::uint64_t address, const os::FileIdentity& identity);

  std::uint64_t begin() const override { return 0; }
  std::uint64_t end() const override { return ~std::uint64_t{0}; }
  std::uint64_t rank() const override { return opened_; }
  void set_time(std::uint64_t time) override;
  // Where nothing had come by then: the first one that came. Runtimes tell of some code after it has run (HotSpot).
  std::uint64_t functions_at(std::uint64_t address, std::uint64_t function, std::uint64_t time,
                             std::vector<sources::NamedFunction>& to) override;
  bool is_settled(std::uint64_t time, std::uint64_t ended) override;
  std::optional<Error> problem() const override;
  std::unique_ptr<sources::UnwindSource> make_source() override;

 private:
  class Source;
  struct Known {
    std::size_t name_at = 0;
    std::uint32_t name_size = 0;
    os::JitdumpFrames frames;
  };

  void load(std::uint64_t time, const os::JitdumpLoad& load, std::string_view name,
            const os::JitdumpDetails& details) override;
  void move(std::uint64_t time, const os::JitdumpMove& move) override;
  void read_until(std::uint64_t time);
  [[nodiscard]] bool has_own_clock() const;
  [[nodiscard]] const os::CodeHistory::Piece* piece_at(std::uint64_t address) const;
  [[nodiscard]] std::optional<Architecture> architecture() const;
  // False: no more.
  using FdeSink = FunctionRef<Expected<bool>(const dwarf::CfiSection& section, const dwarf::Fde& fde)>;
  [[nodiscard]] Expected<void> for_each_fde(const os::CodeHistory::Piece& piece, FdeSink sink);
  [[nodiscard]] Expected<void> row_in(const os::CodeHistory::Piece& piece, std::uint64_t address, FrameRow& to);
  [[nodiscard]] JitdumpLineTable::Line line_in(const os::CodeHistory::Piece& piece, std::uint64_t address) {
    return lines_.find(piece.function, address - piece.begin, file_);
  }
  [[nodiscard]] const std::vector<std::byte>* frames_of(std::uint32_t function);

  mutable std::mutex lock_;
  os::JitdumpFile file_;
  const std::uint64_t opened_;
  std::uint64_t read_ = 0;  // when, CLOCK_MONOTONIC; 0: never
  std::uint64_t time_ = ~std::uint64_t{0};
  std::optional<Error> problem_;  // of its contents
  std::string texts_;
  std::vector<Known> functions_;
  std::unordered_map<std::uint64_t, std::uint32_t> by_index_;
  os::CodeHistory history_;
  std::unordered_map<std::uint32_t, std::vector<std::byte>> frames_;  // read, by function
  std::size_t frame_bytes_ = 0;
  JitdumpLineTable lines_;
};

}  // namespace windlass::manager
