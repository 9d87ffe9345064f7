#include "profiler/doctor/program_stats.h"

#include <bpf/libbpf.h>

#include <charconv>

namespace windlass::profiler {
namespace {

// What follows `key` up to the next blank or line end.
std::string_view word_after(std::string_view text, std::string_view key) {
  const auto at = text.rfind(key);
  if (at == std::string_view::npos) return {};
  text.remove_prefix(at + key.size());
  return text.substr(0, text.find_first_of(" \n"));
}

std::optional<std::uint64_t> number_after(std::string_view text, std::string_view key) {
  const std::string_view word = word_after(text, key);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (word.empty() || error != std::errc()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<ProgramStats> parse_verifier_stats(std::string_view log) {
  const auto instructions = number_after(log, "processed ");
  if (!instructions) return std::nullopt;
  ProgramStats stats;
  stats.instructions = *instructions;
  stats.verify_us = number_after(log, "verification time ").value_or(0);
  stats.stack_depth = word_after(log, "stack depth ");
  return stats;
}

std::string failed_program(std::string_view log) {
  constexpr std::string_view kFailed = "': BPF program load failed";
  const auto end = log.find(kFailed);
  if (end == std::string_view::npos) return {};
  const auto quote = log.rfind('\'', end - 1);
  return quote == std::string_view::npos ? std::string() : std::string(log.substr(quote + 1, end - quote - 1));
}

void ProgramLogs::watch(bpf_object* object) {
  constexpr __u32 kStatistics = 4;  // BPF_LOG_STATS, include/linux/bpf_verifier.h
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, object) {
    if (!bpf_program__autoload(program)) continue;
    Log log{bpf_program__name(program), std::make_unique<char[]>(kBytes)};
    bpf_program__set_log_buf(program, log.text.get(), kBytes);
    bpf_program__set_log_level(program, kStatistics);
    logs_.push_back(std::move(log));
  }
}

std::vector<ProgramStats> ProgramLogs::read() const {
  std::vector<ProgramStats> all;
  for (const Log& log : logs_) {
    ProgramStats stats = parse_verifier_stats(log.text.get()).value_or(ProgramStats{});
    stats.name = log.name;
    all.push_back(std::move(stats));
  }
  return all;
}

}  // namespace windlass::profiler
