// What those who make code at run time call its functions, each as of its time: the same address is one function's now
// and another's a millisecond later. So names are asked for when a sample comes in, not when all is over.
//
// Bounds: kMaxFunctions functions and kMaxBytes of names; what is beyond that has no name. kMaxDead processes that have
// ended. Numbers of find_late() grow by kLateStep each time that a recording is twice as long.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "profiler/processes/perf_map.h"
#include "profiler/processes/process_table.h"

namespace windlass::profiler {

// One at its place and line: two of one name at two places are two.
struct CodeFunction {
  std::uint64_t begin = 0;
  std::string name;
  std::string file = {};  // of its source, and the line in it of what ran; 0: not known
  std::uint32_t line = 0;
  std::uint32_t inlined_in = 0;  // the number of the function that it is inlined in; 0: it is none
};

// Where a frame stands: an address of `mapping` in `maps`, code of a process made at run time, and its Frame::function.
struct CodePlace {
  const MapSet& maps;
  const Mapping& mapping;
  std::uint64_t address = 0, function = 0;
};

// One thread only.
class CodeNames {
 public:
  static constexpr std::uint32_t kUnknown = 0;
  static constexpr std::size_t kMaxFunctions = std::size_t{1} << 20;
  static constexpr std::size_t kMaxBytes = std::size_t{256} << 20;
  static constexpr std::size_t kMaxDead = 256;
  static constexpr std::size_t kLateStep = 4096;

  // The number of the function that a place was of at a time, CLOCK_MONOTONIC in ns; `now` is that of asking. By what
  // the process publishes, else by its perf map, which is read at most once a millisecond.
  [[nodiscard]] std::uint32_t find(std::uint32_t tgid, const CodePlace& place, std::uint64_t time, std::uint64_t now);
  // The same, where what the process publishes may say it later: what it says when it ends, or resolve() is called, of
  // one time in an interval for all: kLateInterval at first, twice as long after each kLateStep numbers of a process.
  [[nodiscard]] std::uint32_t find_late(std::uint32_t tgid, const CodePlace& place, std::uint64_t time,
                                        std::uint64_t now);
  void resolve();
  // Forgets all functions behind resolve(), so that the bounds begin anew. The result gives the function of an old
  // number its new one; it refers to this object.
  [[nodiscard]] std::function<std::uint32_t(std::uint32_t number)> forget();
  // The number of a function that is inlined in that of another number, or in none: whoever knows of it by himself.
  [[nodiscard]] std::uint32_t add_inlined(const sources::NamedFunction& function, std::uint32_t in) {
    return intern({0, function.name, function.file, function.line}, in);
  }
  // Reads what has come to the perf maps, and calls `renamed(tgid)` for processes in which an address that had a name
  // has another one now, each at most ten times a second.
  void poll(std::uint64_t now, const std::function<void(std::uint32_t tgid)>& renamed);
  // The process is gone. What its perf map said stays known, and open, for kMaxDead such processes.
  void end(std::uint32_t tgid);
  // The same of every process for which known(tgid) is false: its end may have been reported late, or not at all.
  void keep_only(const std::function<bool(std::uint32_t tgid)>& known);
  // Where its perf map can be read to the end; empty: nowhere.
  [[nodiscard]] std::string open_path(std::uint32_t tgid) const;
  // Of a number that find() gave, but kUnknown. Its name is empty where find_late() gave it and nothing is known yet.
  [[nodiscard]] const CodeFunction& function(std::uint32_t number) const { return functions_[number - 1]; }

 private:
  struct Followed {
    std::unique_ptr<PerfMap> map;  // null: there was none
    std::uint64_t next_look = 0;
    std::uint64_t next_rename = 0;
    bool renamed = false;
    bool ended = false;
  };
  static constexpr std::uint64_t kLookInterval = 1'000'000;    // ns, at a map that is open
  static constexpr std::uint64_t kOpenInterval = 100'000'000;  // for one that is not there
  static constexpr std::uint64_t kRenameInterval = 100'000'000;
  static constexpr std::uint64_t kLateInterval = 10'000'000'000;
  static constexpr std::uint64_t kLongestLateInterval = kLateInterval << 20;
  // What a number that find_late() gave is the function of.
  struct Late {
    std::shared_ptr<manager::PublishedCode> code;
    std::uint64_t address = 0, time = 0;
    std::uint32_t number = 0;
  };
  using LateKey = std::tuple<const void*, std::uint64_t, std::uint64_t>;  // code, address, begin of the interval
  struct LateOfProcess {
    std::map<LateKey, std::uint32_t> numbers;
    std::vector<Late> unresolved;
    std::uint64_t interval = kLateInterval;
  };

  void look(std::uint32_t tgid, Followed& followed, std::uint64_t now);
  void resolve(const LateOfProcess& late);
  struct Function {
    std::uint64_t begin = 0;
    std::string_view name = {}, file = {};
    std::uint32_t line = 0;
  };
  std::uint32_t intern(const Function& function, std::uint32_t inlined_in = kUnknown);
  std::uint32_t add(const Function& function, std::uint32_t inlined_in = kUnknown);
  // The number of the innermost of all that are inlined at a place; kUnknown: it says nothing.
  std::uint32_t find_published(sources::NameSource& code, const CodePlace& place, std::uint64_t time);

  std::unordered_map<std::uint32_t, Followed> followed_;  // by tgid
  std::deque<std::uint32_t> dead_;                        // in the order of their ends
  std::deque<CodeFunction> functions_;
  std::unordered_map<std::string, std::uint32_t> numbers_;  // by begin, line, name and file
  std::unordered_map<std::uint32_t, LateOfProcess> late_;   // by tgid
  std::size_t bytes_ = 0;
  std::string key_;
  std::vector<sources::NamedFunction> inlined_;
};

}  // namespace windlass::profiler
