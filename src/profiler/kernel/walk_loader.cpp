#include "profiler/kernel/walk_loader.h"

#include <bpf/libbpf.h>

#include <atomic>
#include <cerrno>
#include <thread>
#include <utility>

#include "profiler/doctor/kernel_errors.h"
#include "profiler/doctor/system_trials.h"
#include "windlass_bpf_state.h"
#include "windlass_process_layout.h"

// Has variables of its types.
#include "windlass.skel.h"

namespace windlass::profiler {
namespace {

// 0, or the errno. A map of its own would take samples that nobody reads.
int lend_maps(const windlass_bpf& first, const windlass_bpf& second) {
  bpf_map* map = nullptr;
  bpf_object__for_each_map(map, second.obj) {
    const bpf_map* lent = bpf_object__find_map_by_name(first.obj, bpf_map__name(map));
    if (lent == nullptr) return ENOENT;
    if (const int failed = bpf_map__reuse_fd(map, bpf_map__fd(lent)); failed != 0) return -failed;
  }
  return 0;
}

}  // namespace

struct WalkLoader::Load {
  ~Load() {
    if (mapped != nullptr) bpf_link__destroy(mapped);
    if (object != nullptr) windlass_bpf__destroy(object);
  }
  void open(const windlass_bpf& first);
  std::optional<SystemError> load();

  std::shared_ptr<const ProgramTypes> types;
  windlass_bpf* object = nullptr;
  bpf_link* mapped = nullptr;
  std::optional<SystemError> error;
  std::atomic<bool> done = false;
};

void WalkLoader::Load::open(const windlass_bpf& first) {
  const LibbpfLog log;
  bpf_object_open_opts options{};
  options.sz = sizeof options;
  options.btf_custom_path = types->path();
  object = windlass_bpf__open_opts(&options);
  if (object == nullptr) {
    error = explain_load_error(errno, log.text(), types->given());
    return;
  }
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, object->obj) bpf_program__set_autoload(program, false);
  if (const int failed = lend_maps(first, *object); failed != 0)
    error = explain_load_error(failed, log.text(), types->given());
}

std::optional<SystemError> WalkLoader::Load::load() {
  const LibbpfLog log;
  bpf_program__set_autoload(object->progs.windlass_sample, true);
  // Without it, what is mapped over other code at an address of the program's choice is known when perf's event has
  // come.
  bpf_program__set_autoload(object->progs.windlass_mapped, try_hook() == 0);
  if (const int failed = windlass_bpf__load(object); failed != 0)
    return explain_load_error(-failed, log.text(), types->given());
  if (!bpf_program__autoload(object->progs.windlass_mapped)) return std::nullopt;
  mapped = bpf_program__attach(object->progs.windlass_mapped);
  if (mapped == nullptr) return explain_tracepoint_error(errno, "windlass_mapped", types->given());
  return std::nullopt;
}

WalkLoader::WalkLoader(const windlass_bpf& first, std::shared_ptr<const ProgramTypes> types)
    : load_(std::make_shared<Load>()) {
  load_->types = std::move(types);
  load_->open(first);
  std::thread([load = load_] {
    if (!load->error) load->error = load->load();
    load->done = true;
    load->done.notify_all();
  }).detach();
}

WalkLoader::~WalkLoader() = default;

bool WalkLoader::is_done() const { return load_->done; }

const std::optional<SystemError>& WalkLoader::wait() const {
  load_->done.wait(false);
  return load_->error;
}

const bpf_program* WalkLoader::sampler() const { return load_->object->progs.windlass_sample; }

}  // namespace windlass::profiler
