// What exporters show as one frame: a function of a module. Addresses and inlining are resolved to these once.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "profiler/profile/profile.h"

namespace windlass::exporter {

enum class FrameKind : std::uint8_t { kFunction, kUnnamed, kComm, kTruncated };

struct Frame {
  std::string name;
  std::string_view file;                             // points into the Profile
  std::span<const std::uint32_t> several_modules{};  // of a frame of several modules: modules()
  std::uint32_t module = profile::kNone;             // index into Profile::modules; the first of modules()
  std::uint32_t line = 0;                            // where the function starts if known, else the first line seen
  std::uint64_t offset = 0;                          // of an address without a name
  FrameKind kind = FrameKind::kFunction;

  // All that have such a function, ascending.
  [[nodiscard]] std::span<const std::uint32_t> modules() const {
    if (!several_modules.empty()) return several_modules;
    return {&module, module == profile::kNone ? std::size_t{0} : std::size_t{1}};
  }
};

// "libfoo.so+0x1234" for an address nobody names, 0x1234 being where its function starts if that is known; "0x1234"
// without a module.
[[nodiscard]] std::string unnamed_frame(const profile::Profile& profile, const profile::Location& location);
// The last component of a module's path; "[kernel]" stays.
[[nodiscard]] std::string_view module_name(const profile::Module& module);
// "libfoo.so", "libfoo.so +1" of a frame of two modules; empty if the frame has none.
[[nodiscard]] std::string module_text(const profile::Profile& profile, const Frame& frame);

// Frames of a whole profile: equal names are one frame, whatever the modules. For example, an inline function that two
// libraries have is one function. A function of the kernel and one of a program are two, and so are unnamed addresses
// of two modules. Keeps views into the profile, which must outlive it.
// By which functions of two profiles are the same ones.
struct FunctionKey {
  std::string name;
  bool is_kernel = false;
  std::string file;  // of an address without a name: its module's path; else empty
  auto operator<=>(const FunctionKey&) const = default;
};
// Of a frame of code.
[[nodiscard]] FunctionKey function_key(const profile::Profile& profile, const Frame& frame);

class Frames {
 public:
  explicit Frames(const profile::Profile& profile);
  Frames(const Frames&) = delete;
  Frames& operator=(const Frames&) = delete;

  // Frame ids of a location, innermost first; never empty.
  [[nodiscard]] std::span<const std::uint32_t> of_location(std::uint32_t location) const {
    return {ids_.data() + first_[location], first_[location + 1] - first_[location]};
  }
  // A sample's stack, root first: its profile::root_of(), the thread's name, "[truncated: reason]" if callers are
  // missing, and the frames from the outermost in. Makes the frames that are new.
  void path_of(const profile::Sample& sample, std::vector<std::uint32_t>& path);
  // Those before the outermost frame, which alone can be new.
  void begin_path(const profile::Sample& sample, std::vector<std::uint32_t>& path);
  // Makes the name of an address without a name when it is first asked for. Not for several threads.
  [[nodiscard]] const Frame& operator[](std::uint32_t id) const {
    Frame& frame = frames_[id];
    if (frame.name.empty() && frame.kind == FrameKind::kUnnamed) name_unnamed(frame);
    return frame;
  }
  [[nodiscard]] FrameKind kind_of(std::uint32_t id) const { return frames_[id].kind; }
  [[nodiscard]] std::size_t size() const { return frames_.size(); }
  // True for an address without a name: its frame is another one in each module.
  [[nodiscard]] static bool is_of_module(const Frame& frame);

 private:
  struct Slot {
    std::uint32_t hash = 0;
    std::uint32_t id = profile::kNone;
  };
  [[nodiscard]] bool is_kernel(std::uint32_t module) const;
  [[nodiscard]] bool is_same(const Frame& a, const Frame& b) const;
  void grow();
  void settle_modules();
  // An address without a name, and its frame.
  struct Unnamed {
    std::uint64_t offset = 0;
    std::uint32_t file = profile::kNone;  // files_ of its module; the module where that is unknown
    std::uint32_t id = profile::kNone;
  };
  [[nodiscard]] std::size_t slot_of_unnamed(std::uint64_t offset, std::uint32_t file) const;
  void grow_unnamed();
  void find_files();
  void name_unnamed(Frame& frame) const;
  void add_module(std::uint32_t id, std::uint32_t module);
  std::uint32_t of_unnamed(const profile::Location& location);
  std::uint32_t of_comm(std::uint32_t comm);
  std::uint32_t of_end(std::uint8_t end);
  std::uint32_t intern(Frame frame);
  std::uint32_t of_line(const profile::Location& location, const profile::Line& line);

  const profile::Profile& profile_;
  mutable std::vector<Frame> frames_;
  std::vector<Slot> slots_;       // of frames, by the hashes of their names; a power of two of them, at most half used
  std::vector<Unnamed> unnamed_;  // slots of addresses without names; a power of two of them, at most half used
  std::size_t unnamed_used_ = 0;
  std::vector<std::uint32_t> files_;  // of each module: the first of the same file, which may be mapped in several ways
  std::vector<std::uint32_t> several_modules_;                         // of frames
  std::vector<std::pair<std::uint32_t, std::uint32_t>> modules_seen_;  // (frame, module), until settle_modules()
  std::unordered_map<std::uint64_t, std::uint32_t> by_function_;       // (module, function) -> frame
  std::vector<std::uint32_t> comms_;  // comm -> frame, kNone = not asked yet; the last one is for kNone
  std::uint32_t ends_[256];
  std::vector<std::uint32_t> ids_;
  std::vector<std::size_t> first_;  // of_location(i) is ids_[first_[i], first_[i + 1])
};

}  // namespace windlass::exporter
