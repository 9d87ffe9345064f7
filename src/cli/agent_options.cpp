#include "cli/agent_options.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "cli/byte_counts.h"
#include "cli/durations.h"
#include "cli/metrics_server.h"
#include "cli/otlp_headers.h"
#include "cli/parsing.h"
#include "cli/sample_options.h"
#include "profiler/store/open_store.h"

namespace windlass::cli {
namespace {

constexpr unsigned kAgentFrequency = 19;  // a second and CPU
constexpr std::size_t kLongestConfig = std::size_t{1} << 20;
constexpr std::string_view kNoConfigKeys[] = {"config", "help"};

std::string trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1));
}

void add_spool_size(CLI::App& command, const char* name, std::uint64_t& to) {
  command
      .add_option_function<std::string>(
          name, [&to](const std::string& text) { to = parse_bytes(text).value_or(0); },
          "the oldest batches are dropped so that the folder stays below this size (256M)")
      ->check([](const std::string& text) {
        return parse_bytes(text) ? std::string() : fmt::format("{} is no number of bytes, such as 100M or 2G", text);
      })
      ->type_name("BYTES");
}

void add_store_options(CLI::App& command, AgentArguments& to) {
  command
      .add_option("--store", to.store,
                  "the file that takes the samples, made if there is none; or clickhouse://HOST:PORT/DATABASE")
      ->type_name("FILE");
  command.add_option("--host", to.host, "the label host of the samples; this machine's name if not given")
      ->type_name("NAME");
  add_duration(command, "--interval", to.interval, "samples of so long are kept together (10s)");
  add_duration(command, "--keep", to.keep, "older samples are deleted (7d)");
  command
      .add_option_function<std::string>(
          "--keep-size", [&to](const std::string& text) { to.keep_size = parse_bytes(text).value_or(0); },
          "the oldest samples are deleted so that the file stays below this size, of 8M or more (2G)")
      ->check([](const std::string& text) {
        constexpr std::uint64_t kLeast = std::uint64_t{8} << 20;
        return parse_bytes(text).value_or(0) >= kLeast
                   ? std::string()
                   : fmt::format("{} is no number of bytes of 8M or more, such as 100M or 2G", text);
      })
      ->type_name("BYTES");
  command
      .add_option("--store-spool", to.store_spool,
                  "a folder for intervals that wait for a store of clickhouse:// (/var/lib/windlass-spool)")
      ->type_name("FOLDER");
  add_spool_size(command, "--store-spool-size", to.store_spool_size);
}

void add_otlp_options(CLI::App& command, OtlpArguments& to) {
  command
      .add_option(
          "--otlp", to.url,
          "send the samples to an OpenTelemetry collector: http://HOST:4318, https://, grpc://HOST:4317, grpcs://")
      ->check([](const std::string& text) {
        const auto place = transport::otlp_place(text);
        return place ? std::string() : std::string(place.error().what);
      })
      ->type_name("URL");
  command
      .add_option("--otlp-header", to.headers,
                  "a header of each request; may be repeated. WARNING: all users can read a command line; secrets "
                  "belong into --otlp-header-file")
      ->check([](const std::string& text) {
        return header_of(text).first.empty() ? fmt::format("{} is no KEY=VALUE", text) : std::string();
      })
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  const auto add_file = [&command](const char* name, std::string& path, const char* help) {
    command.add_option(name, path, help)->type_name("FILE");
  };
  add_file("--otlp-header-file", to.header_file, "headers of each request: KEY=VALUE in each line");
  add_file("--otlp-token-file", to.token_file, "the first line of this file is sent as a bearer token");
  add_file("--otlp-ca", to.ca, "certificates of the CA that has signed the server's, in PEM");
  add_file("--otlp-certificate", to.certificate, "the certificate of this client, in PEM");
  add_file("--otlp-key", to.key, "the key of this client's certificate, in PEM");
  command.add_option("--otlp-compression", to.compression, "gzip, zstd or none (gzip)")
      ->check(CLI::IsMember({"gzip", "zstd", "none"}))
      ->type_name("HOW");
  add_duration(command, "--otlp-timeout", to.timeout, "a request is given up after so long (10s)");
  command
      .add_option("--otlp-spool", to.spool, "a folder for batches that wait for the server; STORE.otlp if not given")
      ->type_name("FOLDER");
  add_spool_size(command, "--otlp-spool-size", to.spool_size);
}

// An application with the agent's options alone.
struct Probe {
  explicit Probe(AgentArguments& to) { add_agent_options(app, to); }

  // Empty: parsed.
  std::string parse(std::vector<std::string> words) {
    std::reverse(words.begin(), words.end());  // as CLI11 wants them
    try {
      app.parse(std::move(words));
    } catch (const CLI::ParseError& error) {
      return error.what();
    }
    return {};
  }

  CLI::App app;
};

std::string word_of(const ConfigLine& line) {
  return line.has_value ? fmt::format("--{}={}", line.key, line.value) : "--" + line.key;
}

// Of one line by itself; empty: nothing is wrong.
std::string check_line(const ConfigLine& line) {
  AgentArguments unused;
  Probe probe(unused);
  const bool is_known = std::ranges::find(kNoConfigKeys, line.key) == std::end(kNoConfigKeys) &&
                        probe.app.get_option_no_throw("--" + line.key) != nullptr;
  if (!is_known)
    return fmt::format("there is no option {}. Way out: a long option of `windlass agent`, without --", line.key);
  for (CLI::Option* option : probe.app.get_options()) {
    // What an option needs or excludes may be in other lines.
    for (CLI::Option* other : probe.app.get_options()) {
      option->remove_needs(other);
      option->remove_excludes(other);
    }
  }
  return probe.parse({word_of(line)});
}

// As they were given. COMMAND and its arguments come last.
std::vector<std::string> words_given(const CLI::App& command) {
  std::vector<std::string> words, rest;
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0 || option->get_lnames() == std::vector<std::string>{"config"}) continue;
    for (const std::string& value : option->results()) {
      if (option->get_positional())
        rest.push_back(value);
      else
        words.push_back(fmt::format("--{}={}", option->get_lnames().front(), value));
    }
  }
  if (!rest.empty()) words.emplace_back("--");
  words.insert(words.end(), rest.begin(), rest.end());
  return words;
}

std::expected<std::string, std::string> read_config(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (file.bad() || !file.is_open()) return std::unexpected(fmt::format("{}: {}", path, std::strerror(errno)));
  if (text.size() > kLongestConfig) return std::unexpected(fmt::format("{}: longer than 1 MB", path));
  return text;
}

// systemd names the folder that a service may write (systemd.exec(5), StateDirectory).
std::string default_spool() {
  const char* state = std::getenv("STATE_DIRECTORY");
  return state != nullptr && *state == '/' ? std::string(state) + "/spool" : "/var/lib/windlass-spool";
}

}  // namespace

void add_agent_options(CLI::App& command, AgentArguments& to) {
  to.recorder.frequency = kAgentFrequency;
  add_store_options(command, to);
  add_otlp_options(command, to.otlp);
  command
      .add_option("--config", to.config,
                  "a file of these options, a line each, as \"keep = 3d\"; SIGHUP reads the file again")
      ->type_name("FILE");
  command.add_option("--metrics", to.metrics, "serve counters for Prometheus there: 127.0.0.1:9309, or unix:/run/NAME")
      ->check([](const std::string& text) {
        const auto place = MetricsPlace::parse(text);
        return place ? std::string() : place.error();
      })
      ->type_name("ADDRESS");
  command.add_option("-F,--frequency", to.recorder.frequency, "samples a second of CPU time, on every CPU")
      ->capture_default_str()
      ->check(number_between(1, 49999))
      ->type_name("HZ");
  add_duration(command, "--duration", to.recorder.duration, "stop after so long: 2, 2s, 500ms, 1m");
  add_event_options(command, to.events);
  add_target_options(command, to.recorder, "a command to run, with its arguments");
  add_filter_options(command, to.recorder.filters);
  add_label_options(command, to.recorder);
  add_table_cache_option(command, to.recorder);
}

std::expected<std::vector<ConfigLine>, std::string> parse_config(std::string_view text) {
  std::vector<ConfigLine> lines;
  for (unsigned number = 1; !text.empty(); ++number) {
    const std::string line = trimmed(text.substr(0, text.find('\n')));
    text.remove_prefix(std::min(text.size(), std::min(text.find('\n'), text.size() - 1) + 1));
    if (line.empty() || line.front() == '#') continue;
    const std::size_t mark = line.find('=');
    ConfigLine entry{.number = number, .key = trimmed(line.substr(0, mark)), .value = {}, .has_value = false};
    if (mark != std::string::npos) {
      entry.has_value = true;
      entry.value = trimmed(line.substr(mark + 1));
    }
    const bool is_key = !entry.key.empty() && entry.key.find_first_of(" \t-") != 0 &&
                        entry.key.find_first_of(" \t\"'[]") == std::string::npos;
    if (!is_key || (entry.has_value && entry.value.empty()))
      return std::unexpected(fmt::format("line {}: neither OPTION = VALUE nor OPTION", number));
    lines.push_back(std::move(entry));
  }
  return lines;
}

std::expected<AgentArguments, std::string> agent_arguments(const CLI::App& command, const std::string& config) {
  std::vector<std::string> words;
  if (!config.empty()) {
    const auto text = read_config(config);
    if (!text) return std::unexpected(text.error());
    const auto lines = parse_config(*text);
    if (!lines) return std::unexpected(fmt::format("{}: {}", config, lines.error()));
    for (const ConfigLine& line : *lines) {
      const std::string wrong = check_line(line);
      if (!wrong.empty()) return std::unexpected(fmt::format("{}: line {}: {}", config, line.number, wrong));
      if (command.get_option("--" + line.key)->count() == 0) words.push_back(word_of(line));
    }
  }
  for (std::string& word : words_given(command)) words.push_back(std::move(word));
  AgentArguments arguments;
  {
    Probe probe(arguments);
    const std::string wrong = probe.parse(std::move(words));
    if (!wrong.empty()) return std::unexpected(config.empty() ? wrong : fmt::format("{}: {}", config, wrong));
  }
  arguments.config = config;
  if (auto taken = take_otlp_environment(arguments.otlp, !arguments.store.empty(), std::getenv); !taken)
    return std::unexpected(taken.error());
  if (arguments.store.empty() && arguments.otlp.url.empty())
    return std::unexpected("neither --store nor --otlp is given. Way out: --store FILE, or --otlp URL");
  if (arguments.otlp.spool.empty() && !arguments.otlp.url.empty()) {
    if (arguments.store.empty()) return std::unexpected("--otlp-spool is missing. Way out: --otlp-spool FOLDER");
    arguments.otlp.spool = arguments.store + ".otlp";
  }
  if (!store::is_clickhouse_url(arguments.store))
    arguments.store_spool.clear();
  else if (arguments.store_spool.empty())
    arguments.store_spool = default_spool();
  return arguments;
}

}  // namespace windlass::cli
