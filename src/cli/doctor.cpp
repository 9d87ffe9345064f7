// windlass doctor: can this machine be recorded, by this user, and if not, what would change that.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/json_writer.h"
#include "base/shown_format.h"
#include "cli/commands.h"
#include "profiler/doctor/system_probe.h"
#include "profiler/kernel/kernel_side.h"

namespace windlass::cli {
namespace {

struct DoctorArguments {
  std::string btf;
  bool json = false;
  bool verbose = false;
};

// The programs themselves: probes foresee much, but only the verifier knows what it accepts.
struct Loading {
  profiler::Probe probe{"BPF programs", profiler::ProbeState::kOk, {}, {}};
  std::vector<profiler::ProgramStats> programs;
  std::string log;
};

Loading load_programs(const std::string& btf) {
  Loading loading;
  profiler::KernelSideOptions options;
  options.btf_path = btf;
  options.program_stats = &loading.programs;
  const auto begin = std::chrono::steady_clock::now();
  auto side = profiler::KernelSide::open(options);
  if (!side) {
    // With statistics wanted the verifier keeps its reasons to itself: once more without.
    options.program_stats = nullptr;
    side = profiler::KernelSide::open(options);
  }
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  std::expected<void, profiler::SystemError> started;
  if (side) started = (*side)->start();
  if (side && started) {
    (*side)->stop();
    loading.probe.seen =
        fmt::format("{} accepted by the verifier and attached, in {:.0f} ms", loading.programs.size(), took.count());
    return loading;
  }
  const profiler::SystemError& error = side ? started.error() : side.error();
  loading.probe.state = profiler::ProbeState::kRefused;
  loading.probe.seen = error.text;
  loading.probe.kind = error.kind;
  loading.log = error.log;
  return loading;
}

void print_text(TextWriter& out, const profiler::Diagnosis& diagnosis, const Loading& loading, bool verbose) {
  for (const profiler::Probe& probe : diagnosis.probes) {
    out.text(shown_format("{:<8} {}: {}\n", profiler::probe_state_word(probe.state), probe.name, probe.seen));
    if (!probe.way_out.empty()) out.text(shown_format("{:<8}   way out: {}\n", "", probe.way_out));
  }
  if (verbose && !loading.programs.empty()) {
    out.text(shown_format("\n{:<24} {:>12} {:>12}  {}\n", "program", "instructions", "verified in", "stack, bytes"));
    for (const profiler::ProgramStats& program : loading.programs)
      out.text(shown_format("{:<24} {:>12} {:>9.1f} ms  {}\n", program.name, program.instructions,
                            static_cast<double>(program.verify_us) / 1000, program.stack_depth));
    out.text("\n");
  }
  if (verbose && !loading.log.empty()) out.text("\n" + shown_lines(loading.log) + "\n");
  out.text(shown(diagnosis.sentence) + "\n");
}

const char* verdict_word(profiler::Verdict verdict) {
  switch (verdict) {
    case profiler::Verdict::kWorks: return "works";
    case profiler::Verdict::kLimited: return "limited";
    case profiler::Verdict::kRefused: break;
  }
  return "refused";
}

void print_json(TextWriter& out, const profiler::Diagnosis& diagnosis, const Loading& loading) {
  JsonWriter json(out);
  const auto line = [&](auto&& members) {
    json.begin_object();
    members();
    json.end_object();
    json.end_text();
  };
  for (const profiler::Probe& probe : diagnosis.probes) {
    line([&] {
      json.member("probe", probe.name);
      json.member("state", profiler::probe_state_word(probe.state));
      json.member("seen", probe.seen);
      if (!probe.way_out.empty()) json.member("way_out", probe.way_out);
      if (probe.state == profiler::ProbeState::kRefused) json.member("kind", profiler::refusal_word(probe.kind));
    });
  }
  for (const profiler::ProgramStats& program : loading.programs) {
    line([&] {
      json.member("program", program.name);
      json.member("instructions", program.instructions);
      json.member("verify_us", program.verify_us);
      json.member("stack_depth", program.stack_depth);
    });
  }
  line([&] {
    json.member("verdict", verdict_word(diagnosis.verdict));
    json.member("seen", diagnosis.sentence);
  });
}

int doctor(const DoctorArguments& arguments) {
  const profiler::SystemFacts facts = profiler::read_system_facts(arguments.btf);
  const profiler::SystemTrials trials = profiler::try_system(facts);
  std::vector<profiler::Probe> probes = profiler::judge(facts, trials);
  Loading loading;
  if (profiler::first_refused(probes) == nullptr) {
    loading = load_programs(arguments.btf);
    probes.push_back(loading.probe);
  }
  const profiler::Diagnosis diagnosis = profiler::conclude(facts, std::move(probes), trials.perf_own == 0);
  TextWriter out(STDOUT_FILENO);
  if (arguments.json)
    print_json(out, diagnosis, loading);
  else
    print_text(out, diagnosis, loading, arguments.verbose);
  out.flush();
  switch (diagnosis.verdict) {
    case profiler::Verdict::kWorks: return kDone;
    case profiler::Verdict::kLimited: return kFoundWrong;
    case profiler::Verdict::kRefused: break;
  }
  return kRefused;
}

}  // namespace

void register_doctor(CLI::App& app, int& status) {
  auto arguments = std::make_shared<DoctorArguments>();
  CLI::App* command = app.add_subcommand(
      "doctor", "what this machine and user allow `windlass record`, and the way out of each refusal");
  command->add_flag("--json", arguments->json, "one JSON object a probe, the verdict last");
  command->add_flag("-v,--verbose", arguments->verbose,
                    "what the verifier says of each BPF program; its whole log where it rejects one");
  command->add_option("--btf", arguments->btf, "as for record")->type_name("FILE");
  command->callback([arguments, &status] { status = doctor(*arguments); });
}

}  // namespace windlass::cli
