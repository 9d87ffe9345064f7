#include "cli/top_show.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

#include <fmt/format.h>

#include "base/text_writer.h"
#include "profiler/export/pprof.h"
#include "profiler/samples/named_waits.h"
#include "symbols/symbolize.h"

namespace windlass::cli {
namespace {

// Waits for one of them; false: the second is readable, which ends all.
bool wait_for(pollfd* wanted, std::size_t number) {
  while (poll(wanted, number, -1) < 0 && errno == EINTR) continue;
  return wanted[1].revents == 0;
}

}  // namespace

TopShow::TopShow(TopFeed& feed, exporter::TopModel& model, const profiler::Recorder& recorder, int signals)
    : feed_(feed), model_(model), events_(recorder.options().events), signals_(signals) {}

// True: some have come.
bool TopShow::take_seconds() {
  bool any = false;
  for (profile::Profile& second : feed_.take()) {
    names_.name(second);
    profiler::settle_named_waits(second, events_);
    model_.add(second);
    any = true;
  }
  return any;
}

void TopShow::write_whole() {
  auto whole = feed_.take_whole();
  if (!whole) return;
  symbols::SymbolizeOptions options;
  options.kernel = &names_.kernel();
  (void)symbols::symbolize(*whole, options);
  profiler::settle_named_waits(*whole, events_);
  const auto written = exporter::write_pprof_file(*whole, model_.file());
  model_.tell(written ? fmt::format("wrote {}", model_.file())
                      : fmt::format("cannot write {}: {}", model_.file(), written.error().text()));
}

void TopShow::on_terminal(TopTerminal& terminal, int resized) {
  pollfd wanted[] = {{feed_.news(), POLLIN, 0}, {signals_, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}, {resized, POLLIN, 0}};
  const auto draw = [&] { terminal.draw(model_.screen(terminal.width(), terminal.height())); };
  bool told_end = false;
  for (draw(); wait_for(wanted, std::size(wanted)); draw()) {
    if ((wanted[2].revents & (POLLHUP | POLLERR)) != 0) break;
    signalfd_siginfo info;
    while (read(resized, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) terminal.resize();
    if (wanted[0].revents != 0) (void)take_seconds();
    write_whole();
    if (feed_.ended() && !told_end) {
      model_.tell("the recording has ended: q leaves");
      told_end = true;
    }
    while (const auto key = terminal.next_key()) {
      const exporter::TopWish wish = model_.press(*key);
      if (wish == exporter::TopWish::kQuit) return feed_.leave();
      if (wish != exporter::TopWish::kWrite) continue;
      model_.tell(fmt::format("writing {}", model_.file()));
      feed_.want_whole();
    }
  }
  feed_.leave();
}

int TopShow::as_text(std::size_t pages, std::size_t width, std::size_t rows) {
  TextWriter out(STDOUT_FILENO);
  pollfd wanted[] = {{feed_.news(), POLLIN, 0}, {signals_, POLLIN, 0}};
  for (std::size_t page = 0; (pages == 0 || page < pages) && out.failed() == 0;) {
    if (!wait_for(wanted, std::size(wanted))) break;
    const bool ended = feed_.ended();
    if (take_seconds()) {
      if (page++ != 0) out.character('\n');
      for (const exporter::TopLine& line : model_.page(width, rows)) out.text(text_of(line) + "\n");
      out.flush();
    }
    if (ended) break;
  }
  feed_.leave();
  return out.failed();
}

}  // namespace windlass::cli
