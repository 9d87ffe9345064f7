#include "profiler/kernel/program_aside.h"

#include <bpf/libbpf.h>
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace windlass::profiler {
namespace {

thread_local ProgramAside* current_aside = nullptr;

constexpr const char* kSection = "perf_event";
constexpr const char* kLicense = "Dual MIT/GPL";  // as in bpf/windlass.bpf.c: libbpf does not tell an object's

}  // namespace

// libbpf keeps handlers for the whole process: one is registered, once, and goes by the thread.
ProgramAside::ProgramAside(std::string name) : name_(std::move(name)) {
  static const int registered = [] {
    libbpf_prog_handler_opts handler{};
    handler.sz = sizeof handler;
    handler.prog_prepare_load_fn = prepare;
    return libbpf_register_prog_handler(kSection, BPF_PROG_TYPE_PERF_EVENT, bpf_attach_type{}, &handler);
  }();
  current_aside = !name_.empty() && registered >= 0 ? this : nullptr;
}

ProgramAside::~ProgramAside() {
  end_of_load();
  if (!thread_.joinable()) return;
  thread_.join();
  if (loaded_ >= 0) close(loaded_);
}

void ProgramAside::end_of_load() {
  if (current_aside == this) current_aside = nullptr;
}

int ProgramAside::prepare(bpf_program* program, bpf_prog_load_opts* options, long) {
  const bool is_aside = current_aside != nullptr && current_aside->name_ == bpf_program__name(program);
  return is_aside ? current_aside->take(*program, *options) : 0;
}

int ProgramAside::take(bpf_program& program, bpf_prog_load_opts& options) {
  const bpf_insn* first = bpf_program__insns(&program);
  instructions_.assign(first, first + bpf_program__insn_cnt(&program));
  options_ = options;  // what it points to is the object's
  bpf_insn nothing[2]{};
  nothing[0].code = BPF_ALU64 | BPF_MOV | BPF_K;  // r0 = 0
  nothing[1].code = BPF_JMP | BPF_EXIT;
  if (const int error = bpf_program__set_insns(&program, nothing, std::size(nothing)); error != 0) return error;
  options.prog_btf_fd = 0;
  options.func_info = options.line_info = nullptr;
  options.func_info_cnt = options.line_info_cnt = 0;
  program_ = &program;
  thread_ = std::thread([this, programs = programs_ != nullptr ? bpf_map__fd(programs_) : -1] { load(programs); });
  return 0;
}

void ProgramAside::load(int programs) {
  // Nobody waits for a program that is put into an array, and what goes on may be of the same priority. Threads of one
  // real-time priority would not take turns.
  const sched_param none{};
  if (programs >= 0 && sched_getscheduler(0) != SCHED_OTHER) (void)sched_setscheduler(0, SCHED_OTHER, &none);
  loaded_ = bpf_prog_load(BPF_PROG_TYPE_PERF_EVENT, name_.c_str(), kLicense, instructions_.data(), instructions_.size(),
                          &options_);
  const int first = 0;
  if (loaded_ < 0)
    refusal_ = -loaded_;
  else if (programs >= 0)
    refusal_ = -bpf_map_update_elem(programs, &first, &loaded_, BPF_ANY);
}

int ProgramAside::finish() {
  if (!thread_.joinable()) return 0;
  thread_.join();
  if (loaded_ < 0) return -loaded_;
  const int error = dup3(loaded_, bpf_program__fd(program_), O_CLOEXEC) < 0 ? errno : 0;
  close(loaded_);
  return error;
}

}  // namespace windlass::profiler
