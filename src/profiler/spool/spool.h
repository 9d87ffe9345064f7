// Batches on disk, on their way to a server that may be away. A batch is any string of bytes.
//
// For example, the agent appends an encoded interval every 10 seconds. A thread sends the oldest batch, and
// acknowledges the batch once the server has taken it. After a restart the batches that wait are sent first.
//
// A batch is a file of its own in the spool's folder. The file is written under another name, synced and renamed. So a
// batch is whole, or is found torn by its length and checksum. Torn batches are deleted and counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "os/descriptor.h"
#include "windlass/error.h"

namespace windlass::spool {

struct SpoolCounters {
  std::uint64_t batches = 0, bytes = 0;  // that wait; the room on disk
  std::uint64_t most_bytes = 0;
  // Since open(). Dropped: for want of room, by a full disk, or by reject().
  std::uint64_t dropped_batches = 0, dropped_samples = 0;
  std::uint64_t torn_batches = 0;  // batches that a crash or the disk has damaged. How many samples they had is unknown
  std::uint64_t acknowledged_batches = 0, acknowledged_samples = 0;
  std::uint64_t earlier_batches = 0, earlier_samples = 0;  // of these, appended before Spool::set_first()
};

struct SpooledBatch {
  // Rises from batch to batch, also over restarts. No two batches of a folder have the same number, so a server can
  // tell a batch that comes twice.
  std::uint64_t sequence = 0;
  std::uint64_t samples = 0;  // of append()
  std::string bytes;
};

// All functions may be called by any thread. No function waits for a server.
class Spool {
 public:
  // Makes the folder if there is none; the folder above must exist. Batches of an earlier run wait again. `most_bytes`:
  // room on disk for all batches. A folder belongs to one Spool at a time: a second one is refused with EBUSY.
  // Errors: kSystem, with errno.
  [[nodiscard]] static Expected<Spool> open(const std::string& folder, std::uint64_t most_bytes);

  // The first batch that append() makes; after set_first() that one. Batches before it count as earlier ones.
  [[nodiscard]] std::uint64_t first() const;
  void set_first(std::uint64_t sequence);

  // Keeps the batch on disk; its sequence. `samples`: what a dropped batch counts for. If there is no room, the oldest
  // batches are dropped, but never the batch that oldest() returned last. On an error the batch counts as dropped:
  // kLimit, larger than all room; kSystem, the disk is full or cannot be written.
  // O(bytes), and waits until the disk has the batch.
  [[nodiscard]] Expected<std::uint64_t> append(std::string_view bytes, std::uint64_t samples = 0);

  // The batch to send next; nothing: no batch waits. Torn batches are deleted first. The same batch until it is
  // acknowledged or rejected. Error: kSystem, the file cannot be read; try again later.
  [[nodiscard]] Expected<std::optional<SpooledBatch>> oldest();

  // The server has the batch but for `dropped` samples, which no server will ever take. The batch is deleted. False: no
  // such batch waits.
  bool acknowledge(std::uint64_t sequence, std::uint64_t dropped = 0) { return finish(sequence, true, dropped); }
  // No server will ever take the batch: it is deleted, and counts as dropped. False: no such batch waits.
  bool reject(std::uint64_t sequence) { return finish(sequence, false, 0); }

  [[nodiscard]] SpoolCounters counters() const;

 private:
  struct Entry {
    std::uint64_t sequence = 0, bytes = 0;  // bytes: room on disk
  };
  struct State {
    std::mutex mutex;
    std::deque<Entry> waiting;
    std::optional<std::uint64_t> in_hand;  // what oldest() has returned
    SpoolCounters counters;
    std::uint64_t next = 0, first = 0;
  };

  Spool(os::Descriptor folder, os::Descriptor lock, std::uint64_t most_bytes);
  [[nodiscard]] Expected<void> read_folder();
  [[nodiscard]] bool make_room(std::uint64_t bytes);
  void forget(const std::deque<Entry>::iterator& entry);
  void drop(const std::deque<Entry>::iterator& entry);
  bool finish(std::uint64_t sequence, bool taken, std::uint64_t dropped);

  os::Descriptor folder_, lock_;
  std::unique_ptr<State> state_;
};

}  // namespace windlass::spool
