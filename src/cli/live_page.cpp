#include "cli/live_page.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/monotonic.h"
#include "base/text_writer.h"
#include "os/priority.h"
#include "profiler/export/html.h"
#include "profiler/samples/named_waits.h"

namespace windlass::cli {

// Of this thread.
static std::chrono::nanoseconds cpu_time() { return std::chrono::nanoseconds(thread_time_ns()); }

os::Descriptor LivePage::event_descriptor() { return os::Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)); }

void LivePage::progress(const profiler::RecordingProgress& progress, const std::function<profile::Profile()>& whole) {
  if (begun() ? !wanted_ : progress.samples == 0) return;
  {
    const std::scoped_lock lock(mutex_);
    if (making_ || Clock::now() < next_) return;
    making_ = true;
  }
  wanted_ = false;
  const auto begin = cpu_time();
  profile::Profile profile = whole();
  {
    const std::scoped_lock lock(mutex_);
    given_ = std::move(profile);
    cost_ = cpu_time() - begin;
  }
  (void)eventfd_write(news_.get(), 1);
  if (!begun()) thread_ = std::thread([this] { serve(); });
}

void LivePage::end() {
  if (!begun()) return;
  (void)eventfd_write(stop_.get(), 1);
  thread_.join();
}

void LivePage::name(profile::Profile& profile) {
  if (!options_.names) return;
  if (!names_) names_.emplace(1);
  names_->name(profile);
  profiler::settle_named_waits(profile, options_.events);
}

PageServer::Page LivePage::make_page() {
  const auto begin = cpu_time();
  eventfd_t number = 0;
  (void)eventfd_read(news_.get(), &number);
  std::optional<profile::Profile> profile;
  {
    const std::scoped_lock lock(mutex_);
    profile = std::exchange(given_, std::nullopt);
  }
  auto html = std::make_shared<std::string>();
  const PageServer::Page page{.html = html, .version = version_++};
  if (profile) {
    name(*profile);
    TextWriter out(html.get());
    const exporter::HtmlOptions::Live live{.version = page.version, .running = true};
    if (!exporter::write_html(*profile, out, {.file = options_.file, .live = live}) || !out.finish())
      *html = "out of memory\n";
  }
  const std::scoped_lock lock(mutex_);
  const auto cost = page.version == 1 ? std::chrono::nanoseconds(0) : cpu_time() - begin + cost_;
  next_ = Clock::now() + std::max<std::chrono::nanoseconds>(kInterval, kTimesCost * cost);
  making_ = false;
  return page;
}

void LivePage::serve() {
  os::restore_priority();
  options_.begun(server_.address());
  const PageServer::Newer newer{
      .news = news_.get(), .take = [this] { return make_page(); }, .wanted = [this] { wanted_ = true; }};
  // A browser that cannot be served is no reason to end the recording: the last page says what is wrong.
  (void)server_.serve(make_page(), {}, stop_.get(), &newer);
}

}  // namespace windlass::cli
