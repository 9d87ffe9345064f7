// The page of a recording that goes on, served on a thread of its own.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cli/page_server.h"
#include "cli/quick_names.h"
#include "os/descriptor.h"
#include "profiler/profile/profile.h"
#include "profiler/samples/recorder.h"

namespace windlass::cli {

// The recording gives a profile only if a browser has asked for the page since the last one. Making one and its page
// takes at most a tenth of a CPU, and happens at most every two seconds. The first page also reads the symbols of all
// files, which comes once and is not counted.
class LivePage {
 public:
  static constexpr auto kInterval = std::chrono::seconds(2);
  static constexpr int kTimesCost = 10;

  struct Options {
    std::string file;                                       // as of HtmlOptions
    std::vector<profiler::EventSpec> events;                // of the recording
    bool names = true;                                      // Name the addresses.
    std::function<void(const std::string& address)> begun;  // called on the page's thread
  };
  LivePage(PageServer server, Options options) : server_(std::move(server)), options_(std::move(options)) {}
  // Waits until the page that is being made is done.
  ~LivePage() { end(); }
  LivePage(const LivePage&) = delete;
  LivePage& operator=(const LivePage&) = delete;

  // ---- by the thread that records

  // With the samples until now. Starts to serve with the first ones.
  void progress(const profiler::RecordingProgress& progress, const std::function<profile::Profile()>& whole);
  [[nodiscard]] bool begun() const { return thread_.joinable(); }
  // Serves no more. The address is kept: browsers wait for the next one that serves there.
  void end();
  [[nodiscard]] const PageServer& server() const { return server_; }
  // Of the next page.
  [[nodiscard]] std::uint64_t next_version() const { return version_; }

 private:
  using Clock = std::chrono::steady_clock;
  void serve();
  [[nodiscard]] PageServer::Page make_page();
  void name(profile::Profile& profile);

  PageServer server_;
  Options options_;
  std::optional<QuickNames> names_;
  std::uint64_t version_ = 1;
  os::Descriptor news_ = event_descriptor(), stop_ = event_descriptor();
  static os::Descriptor event_descriptor();
  std::atomic<bool> wanted_ = false;
  std::mutex mutex_;  // of what follows
  std::optional<profile::Profile> given_;
  bool making_ = false;
  Clock::time_point next_{};         // when the next one may be given
  std::chrono::nanoseconds cost_{};  // CPU time of giving the last one
  std::thread thread_;
};

}  // namespace windlass::cli
