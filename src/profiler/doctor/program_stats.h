// What the kernel's verifier says of each BPF program: how much work it was, how much stack it needs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

struct bpf_object;

namespace windlass::profiler {

struct ProgramStats {
  std::string name;
  std::uint64_t instructions = 0;  // that the verifier processed, each state of each path once; at most 1,000,000
  std::uint64_t verify_us = 0;     // microseconds
  std::string stack_depth;         // bytes, one number for each function: "64+32"
};

// Reads the lines that the kernel writes at BPF_LOG_STATS (print_verification_stats in kernel/bpf/verifier.c):
// "verification time 123 usec", "stack depth 8+16", "processed 42 insns (limit 1000000) ...". Nothing if "processed" is
// missing.
[[nodiscard]] std::optional<ProgramStats> parse_verifier_stats(std::string_view log);

// The program whose load failed, from libbpf's messages ("prog 'NAME': BPF program load failed: ..."); empty if none.
[[nodiscard]] std::string failed_program(std::string_view libbpf_log);

// Lets the kernel write its figures for the programs of an object that are going to be loaded. Must outlive the load.
class ProgramLogs {
 public:
  ProgramLogs() = default;
  ProgramLogs(const ProgramLogs&) = delete;
  ProgramLogs& operator=(const ProgramLogs&) = delete;
  void watch(bpf_object* object);
  // After the load, in the object's order.
  [[nodiscard]] std::vector<ProgramStats> read() const;

 private:
  static constexpr std::size_t kBytes = 65536;
  struct Log {
    std::string name;
    std::unique_ptr<char[]> text;
  };
  std::vector<Log> logs_;
};

}  // namespace windlass::profiler
