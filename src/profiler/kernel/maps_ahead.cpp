#include "profiler/kernel/maps_ahead.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <unistd.h>

namespace windlass::profiler {
namespace {

int make(const bpf_map* map) {
  bpf_map_create_opts options{};
  options.sz = sizeof options;
  options.map_flags = bpf_map__map_flags(map);
  return bpf_map_create(bpf_map__type(map), bpf_map__name(map), bpf_map__key_size(map), bpf_map__value_size(map),
                        bpf_map__max_entries(map), &options);
}

}  // namespace

MapsAhead::MapsAhead(std::initializer_list<bpf_map*> maps) {
  for (bpf_map* map : maps) made_.emplace_back(map, -1);
  thread_ = std::thread([this] {
    for (auto& [map, descriptor] : made_) descriptor = make(map);
  });
}

MapsAhead::~MapsAhead() {
  if (thread_.joinable()) thread_.join();
  for (const auto& [map, descriptor] : made_)
    if (descriptor >= 0) close(descriptor);
}

void MapsAhead::give() {
  if (thread_.joinable()) thread_.join();
  for (const auto& [map, descriptor] : made_)
    if (descriptor >= 0) (void)bpf_map__reuse_fd(map, descriptor);
}

}  // namespace windlass::profiler
