#include "profiler/kernel/maps_ahead.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <unistd.h>

#include <utility>

namespace windlass::profiler {
namespace {

int make(const bpf_map* map, int inner = 0) {
  bpf_map_create_opts options{};
  options.sz = sizeof options;
  options.map_flags = bpf_map__map_flags(map);
  options.inner_map_fd = static_cast<__u32>(inner);
  return bpf_map_create(bpf_map__type(map), bpf_map__name(map), bpf_map__key_size(map), bpf_map__value_size(map),
                        bpf_map__max_entries(map), &options);
}

}  // namespace

MapsAhead::MapsAhead(std::initializer_list<bpf_map*> maps, bpf_map* ring, std::function<void(int)> use_ring,
                     bpf_map* chunks)
    : ring_(ring, -1), use_ring_(std::move(use_ring)), chunks_(chunks) {
  for (bpf_map* map : maps) made_.emplace_back(map, -1);
  thread_ = std::thread([this] { make_maps(); });
}

void MapsAhead::make_some() {
  for (std::size_t i = next_++; i < made_.size(); i = next_++) made_[i].second = make(made_[i].first);
}

void MapsAhead::make_maps() {
  chunk_ = make(bpf_map__inner_map(chunks_));
  if (chunk_ >= 0) array_ = make(chunks_, chunk_);
  if (array_ >= 0) putting_ = std::thread([this, array = array_] { put_chunk(array); });
  ring_.second = make(ring_.first);
  make_some();
  all_made_.set_value();
  given_.get_future().wait();
  if (ring_.second >= 0) use_ring_(ring_.second);
}

void MapsAhead::put_chunk(int array) {
  const int first = 0;
  has_chunk_ = bpf_map_update_elem(array, &first, &chunk_, BPF_ANY) == 0;
}

void MapsAhead::join() {
  if (thread_.joinable()) thread_.join();
  if (putting_.joinable()) putting_.join();
}

MapsAhead::~MapsAhead() {
  if (!was_given_) given_.set_value();
  join();
  if (chunk_ >= 0) close(chunk_);
  if (array_ >= 0) close(array_);
  if (ring_.second >= 0) close(ring_.second);
  for (const auto& [map, descriptor] : made_)
    if (descriptor >= 0) close(descriptor);
}

int MapsAhead::take_chunk() {
  join();
  return has_chunk_ ? std::exchange(chunk_, -1) : -1;
}

void MapsAhead::give() {
  make_some();
  all_made_.get_future().wait();
  if (array_ >= 0) (void)bpf_map__reuse_fd(chunks_, array_);
  if (ring_.second >= 0) (void)bpf_map__reuse_fd(ring_.first, ring_.second);
  for (const auto& [map, descriptor] : made_)
    if (descriptor >= 0) (void)bpf_map__reuse_fd(map, descriptor);
  was_given_ = true;
  given_.set_value();
}

}  // namespace windlass::profiler
