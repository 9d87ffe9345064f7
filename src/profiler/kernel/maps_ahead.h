// Makes maps of an opened object on a thread of its own, while types are read and programs are verified. The kernel
// clears tens of megabytes, and a map that is put into an array of maps takes a grace period of RCU: up to 20 ms. Once
// the types are read, the caller's thread makes some of the maps, too. Mapping the ring takes 3 ms.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <future>
#include <initializer_list>
#include <utility>
#include <vector>

#include <thread>

struct bpf_map;

namespace windlass::profiler {

class MapsAhead {
 public:
  // Their sizes are set already. The object outlives this. `chunks`: an array of maps, which gets its first one.
  // `use_ring` is called on the thread, with the descriptor of `ring` once that is made. It has returned when
  // take_chunk() has.
  MapsAhead(std::initializer_list<bpf_map*> maps, bpf_map* ring, std::function<void(int)> use_ring, bpf_map* chunks);
  ~MapsAhead();
  MapsAhead(const MapsAhead&) = delete;
  MapsAhead& operator=(const MapsAhead&) = delete;

  // Makes those that are not begun, waits for the others, and gives all to the object. A map that could not be made is
  // left to the object, which says why.
  void give();
  // Waits until the first chunk lies in the array. The caller closes the descriptor; negative: there is none.
  [[nodiscard]] int take_chunk();

 private:
  void make_maps();
  void make_some();
  void put_chunk(int array);
  void join();

  std::vector<std::pair<bpf_map*, int>> made_;  // with their descriptors
  std::pair<bpf_map*, int> ring_;
  std::function<void(int)> use_ring_;
  std::atomic<std::size_t> next_ = 0;  // of those
  bpf_map* chunks_;
  int array_ = -1;
  int chunk_ = -1;
  bool has_chunk_ = false;  // the array
  std::promise<void> all_made_, given_;
  bool was_given_ = false;
  std::thread thread_;   // last: they use the others
  std::thread putting_;  // waits for the grace period
};

}  // namespace windlass::profiler
