#include "walk/own/windows/modules.h"

#include <windows.h>

#include <algorithm>
#include <new>

#include "formats/image/pe_format.h"
#include "walk/own/windows/loader.h"

namespace windlass::walk {
namespace {

constexpr std::size_t kCapacity = 1024;

// Where the images are, ascending. Readers use the one that `current` names while the other is made; `version` is odd
// while one is.
struct Snapshot {
  std::atomic<std::uint32_t> version = 0;
  std::atomic<std::size_t> count = 0;
  struct Place {
    std::atomic<std::uint64_t> begin = 0, end = 0;
    std::atomic<const OwnImage*> image = nullptr;
  } places[kCapacity];
};
constinit Snapshot snapshots[2];
constinit std::atomic<Snapshot*> current = nullptr;

// Images that have gone stay in their places until these are needed: a walk may just be looking at one.
alignas(OwnImage) std::byte images[kCapacity][sizeof(OwnImage)];
constinit bool constructed[kCapacity] = {};
constinit std::size_t next_image = 0;
SRWLOCK changing = SRWLOCK_INIT;

bool in_use(const Snapshot* snapshot, const OwnImage* image) {
  for (std::size_t i = 0; snapshot != nullptr && i < snapshot->count.load(std::memory_order_relaxed); ++i)
    if (snapshot->places[i].image.load(std::memory_order_relaxed) == image) return true;
  return false;
}

// The place that was given up longest ago.
OwnImage* free_place(const Snapshot* snapshot) {
  for (std::size_t tries = 0; tries < kCapacity; ++tries) {
    const std::size_t index = next_image++ % kCapacity;
    auto* image = reinterpret_cast<OwnImage*>(images[index]);
    if (in_use(snapshot, image)) continue;
    if (constructed[index]) std::destroy_at(image);
    constructed[index] = true;
    return image;
  }
  return nullptr;
}

// Makes the next snapshot: the current one without what lies at `gone`, and with `added` if there is one.
void publish(std::uint64_t gone, const OwnImage* added) {
  Snapshot* const now = current.load(std::memory_order_relaxed);
  Snapshot& next = now == &snapshots[0] ? snapshots[1] : snapshots[0];
  next.version.fetch_add(1, std::memory_order_acq_rel);
  std::size_t count = 0;
  const auto put = [&](const OwnImage* image) {
    const ModuleInfo& info = image->module().info();
    next.places[count].begin.store(info.begin, std::memory_order_relaxed);
    next.places[count].end.store(info.end, std::memory_order_relaxed);
    next.places[count].image.store(image, std::memory_order_relaxed);
    ++count;
  };
  const std::size_t old = now != nullptr ? now->count.load(std::memory_order_relaxed) : 0;
  for (std::size_t i = 0; i < old; ++i) {
    const OwnImage* image = now->places[i].image.load(std::memory_order_relaxed);
    if (added != nullptr && image->base() > added->base()) {
      put(added);
      added = nullptr;
    }
    if (image->base() != gone) put(image);
  }
  if (added != nullptr) put(added);
  next.count.store(count, std::memory_order_relaxed);
  next.version.fetch_add(1, std::memory_order_release);
  current.store(&next, std::memory_order_release);
}

std::string utf8(const wchar_t* text, std::size_t length) {
  const int wide = static_cast<int>(length);
  std::string result(
      static_cast<std::size_t>(WideCharToMultiByte(CP_UTF8, 0, text, wide, nullptr, 0, nullptr, nullptr)), '\0');
  WideCharToMultiByte(CP_UTF8, 0, text, wide, result.data(), static_cast<int>(result.size()), nullptr, nullptr);
  return result;
}

// The image at `base` as it is mapped: its headers are there, and say how far it reaches.
ByteView mapped_image(std::uint64_t base) {
  const ByteView headers(reinterpret_cast<const std::byte*>(base), 4096);
  const auto image = image::PeImage::parse(headers, image::PeLayout::kMapped);
  return image ? ByteView(headers.data(), image->image_size()) : ByteView();
}

void loaded(std::uint64_t base, const wchar_t* path, std::size_t path_length) {
  auto image = image::PeImage::parse(mapped_image(base), image::PeLayout::kMapped);
  if (!image) return;
  AcquireSRWLockExclusive(&changing);
  if (find_own_image(base) == nullptr) {
    const Snapshot* now = current.load(std::memory_order_relaxed);
    if (OwnImage* place = now == nullptr || now->count.load() < kCapacity ? free_place(now) : nullptr)
      publish(0, new (place) OwnImage(std::move(*image), base, utf8(path, path_length)));
  }
  ReleaseSRWLockExclusive(&changing);
}

void unloaded(std::uint64_t base) {
  AcquireSRWLockExclusive(&changing);
  if (find_own_image(base) != nullptr) publish(base, nullptr);
  ReleaseSRWLockExclusive(&changing);
}

}  // namespace

OwnImage::OwnImage(image::PeImage image, std::uint64_t base, std::string path)
    : image_(std::move(image)),
      functions_(image_),
      source_(sources::make_source(image_)),
      module_({base, base + image_.image_size(), base, std::move(path), {}, true}, *source_, base) {}

const OwnImage* find_own_image(std::uint64_t address) {
  for (;;) {
    const Snapshot* snapshot = current.load(std::memory_order_acquire);
    if (snapshot == nullptr) return nullptr;
    const std::uint32_t version = snapshot->version.load(std::memory_order_acquire);
    if ((version & 1) != 0) continue;
    std::size_t low = 0, high = snapshot->count.load(std::memory_order_relaxed);
    while (low < high) {
      const std::size_t middle = (low + high) / 2;
      if (address < snapshot->places[middle].begin.load(std::memory_order_relaxed))
        high = middle;
      else
        low = middle + 1;
    }
    const OwnImage* found = nullptr;
    if (low != 0 && address < snapshot->places[low - 1].end.load(std::memory_order_relaxed))
      found = snapshot->places[low - 1].image.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (snapshot->version.load(std::memory_order_relaxed) == version) return found;
  }
}

const Module* find_own_module(std::uint64_t address) {
  const OwnImage* image = find_own_image(address);
  return image != nullptr ? &image->module() : nullptr;
}

void each_own_module(FunctionRef<void(const Module&)> callback) {
  const Snapshot* snapshot = current.load(std::memory_order_acquire);
  for (std::size_t i = 0; snapshot != nullptr && i < snapshot->count.load(std::memory_order_relaxed); ++i)
    callback(snapshot->places[i].image.load(std::memory_order_relaxed)->module());
}

// An image's sections are not told apart here.
bool read_own_image(std::uint64_t, void*, std::size_t) { return false; }
Executable find_own_executable(std::uint64_t, CodeExtent&) { return Executable::kNo; }  // no code is followed
bool own_module_has_code(std::uint64_t begin, std::uint64_t end) {
  bool has = false;
  each_own_module([&](const Module& module) { has |= begin < module.info().end && module.info().begin < end; });
  return has;
}

// From then on the loader is followed; called again, it does nothing.
void know_own_modules() {
  static std::atomic<bool> known = false;
  if (!known.exchange(true)) follow_loader(loaded, unloaded);
}

// Before any other initialiser that could walk: walks must find modules without the loader's lock.
[[gnu::constructor(101)]] static void know_own_modules_early() { know_own_modules(); }

}  // namespace windlass::walk
