// The public symbol reader: files, live processes, what a walk gives.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "live_process.h"
#include "nm.h"
#include "support/jit_stub.h"
#include "support/run_command.h"
#include "windlass/backtrace.h"
#include "windlass/jit/registration.h"
#include "windlass/symbols.h"

// Named by the tests of walks: in no namespace, kept from being inlined, and not a tail call.
extern "C" __attribute__((noinline)) void windlass_test_walk_here(std::vector<windlass::NamedAddress>* names,
                                                                  const windlass::Symbolizer* symbols) {
  windlass::StackWalker walker(windlass::own_process(), windlass::capture_registers());
  for (const windlass::Frame& frame : walker) names->push_back(symbols->name(frame));
  asm volatile("");
}

namespace windlass {
namespace {

namespace fs = std::filesystem;
using test::LiveProcess;
using test::run;
using test::symbols_of;

// "function file:line" each, "+" before what is inlined.
std::vector<std::string> text_of(const NamedAddress& named) {
  std::vector<std::string> text;
  for (const SourceFrame& frame : named.frames) {
    std::string line = (frame.inlined ? "+" : "") + std::string(frame.function);
    if (!frame.file.empty()) line += " " + fs::path(frame.file).filename().string() + ":" + std::to_string(frame.line);
    text.push_back(line);
  }
  return text;
}
std::string function_of(const NamedAddress& named) {
  return named.frames.empty() ? "" : std::string(named.frames.back().function);
}

using Text = std::vector<std::string>;
const Text kInlined = {"+outer::innermost inlined.cpp:7", "+outer::middle(int) inlined.cpp:11",
                       "outer::Box::work(int) inlined.cpp:19"};

NamedAddress name(const Symbolizer& symbols, std::uint64_t address) {
  return symbols.name(CodeAddress::instruction(address));
}

class Folder {
 public:
  Folder() {
    char name[] = "/tmp/windlass-symbolizer-XXXXXX";
    path_ = ::mkdtemp(name);
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// ---- files ---------------------------------------------------------------------------------------------------------

TEST(SymbolizerOfFile, FunctionsInlinedCallsAndLines) {
  for (const std::string file : {WINDLASS_INLINED, WINDLASS_INLINED_DWARF4, WINDLASS_INLINED_SPLIT}) {
    const auto symbols = Symbolizer::of_file(file);
    ASSERT_TRUE(symbols) << symbols.error().text();
    const auto known = symbols_of(file);
    const NamedAddress inlined = name(*symbols, known.at("wl_mark_inlined"));
    EXPECT_EQ(text_of(inlined), kInlined);
    EXPECT_EQ(inlined.frames.back().linkage_name, "_ZN5outer3Box4workEi");
    EXPECT_EQ(inlined.function_begin, known.at("_ZN5outer3Box4workEi"));
    EXPECT_EQ(inlined.module, file);
    EXPECT_EQ(inlined.offset, known.at("wl_mark_inlined"));
    EXPECT_EQ(text_of(name(*symbols, known.at("wl_mark_plain"))), Text{"plain_c inlined.cpp:37"});
  }
}

TEST(SymbolizerOfFile, WithoutLines) {
  const auto symbols = Symbolizer::of_file(WINDLASS_INLINED, {.lines = false, .debug_directory = {}});
  ASSERT_TRUE(symbols);
  EXPECT_EQ(text_of(name(*symbols, symbols_of(WINDLASS_INLINED).at("wl_mark_inlined"))), Text{"outer::Box::work(int)"});
}

TEST(SymbolizerOfFile, WhatHasNoNameIsNoError) {
  const auto symbols = Symbolizer::of_file(WINDLASS_INLINED);
  ASSERT_TRUE(symbols);
  for (const std::uint64_t address : {std::uint64_t{0}, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    const NamedAddress named = name(*symbols, address);
    EXPECT_TRUE(named.frames.empty());
    EXPECT_EQ(named.module, WINDLASS_INLINED);
    EXPECT_EQ(named.offset, address);
    EXPECT_EQ(named.function_begin, 0u);
  }
  EXPECT_TRUE(symbols->name(std::span<const CodeAddress>()).empty());
}

TEST(SymbolizerOfFile, AReturnAddressIsLookedUpAtTheCallBeforeIt) {
  const auto symbols = Symbolizer::of_file(WINDLASS_INLINED);
  ASSERT_TRUE(symbols);
  const auto begin = symbols_of(WINDLASS_INLINED).at("asm_with_size");
  const auto end = begin + symbols_of(WINDLASS_INLINED).at("asm_size_of_sized");
  const NamedAddress after_call = symbols->name(CodeAddress::return_address(end));
  EXPECT_EQ(function_of(after_call), "asm_with_size");
  EXPECT_EQ(after_call.lookup, end - 1);
  EXPECT_EQ(after_call.offset, end - 1);
  EXPECT_EQ(function_of(name(*symbols, end)), "");
}

// A stripped function is still one frame: where it begins is known by the unwind information.
TEST(SymbolizerOfFile, WithoutAnyNameTheFunctionsBeginIsKnown) {
  const Folder folder;
  const auto known = symbols_of(WINDLASS_INLINED);
  ASSERT_EQ(run("cp " WINDLASS_INLINED " " + folder / "prog" + " && strip -s " + folder / "prog").status, 0);
  const auto symbols = Symbolizer::of_file(folder / "prog");
  ASSERT_TRUE(symbols);
  const NamedAddress named = name(*symbols, known.at("wl_mark_inlined"));
  EXPECT_TRUE(named.frames.empty());
  EXPECT_EQ(named.function_begin, known.at("_ZN5outer3Box4workEi"));
}

TEST(SymbolizerOfFile, LinkageStubs) {
  const auto symbols = Symbolizer::of_file(WINDLASS_LIBRARY);
  ASSERT_TRUE(symbols);
  const std::string listing = run("objdump -d --no-show-raw-insn " WINDLASS_LIBRARY).output;
  const auto mark = listing.find("<abs_of_other@plt>:");
  ASSERT_NE(mark, std::string::npos);
  const std::uint64_t stub = std::strtoull(listing.c_str() + listing.rfind('\n', mark) + 1, nullptr, 16);
  EXPECT_EQ(function_of(name(*symbols, stub + 4)), "abs_of_other@plt");
}

TEST(SymbolizerOfFile, ABatchIsWhatSingleAddressesGive) {
  const auto known = symbols_of(WINDLASS_INLINED);
  const std::uint64_t from = known.at("_ZN5outer3Box4workEi") & ~std::uint64_t{0xff};
  std::vector<CodeAddress> pcs;
  for (std::uint64_t i = 0; i < 600; ++i) {  // in no order, many twice, of both kinds
    const std::uint64_t address = from + i * 37 % 400;
    pcs.push_back(i % 3 == 0 ? CodeAddress::return_address(address) : CodeAddress::instruction(address));
  }
  const auto symbols = Symbolizer::of_file(WINDLASS_INLINED, {.debug_directory = {}, .threads = 4});
  const auto others = Symbolizer::of_file(WINDLASS_INLINED);
  ASSERT_TRUE(symbols && others);
  const auto batch = symbols->name(pcs);
  ASSERT_EQ(batch.size(), pcs.size());
  std::size_t named = 0;
  for (std::size_t i = 0; i < pcs.size(); ++i) {
    const NamedAddress single = others->name(pcs[i]);
    EXPECT_EQ(text_of(batch[i]), text_of(single));
    EXPECT_EQ(batch[i].lookup, pcs[i].lookup());
    EXPECT_EQ(batch[i].offset, single.offset);
    EXPECT_EQ(batch[i].function_begin, single.function_begin);
    named += batch[i].frames.empty() ? 0 : 1;
  }
  EXPECT_GT(named, 100u);
}

TEST(SymbolizerOfFile, ThreadsMayAskAtATimeAndNamesStay) {
  const auto known = symbols_of(WINDLASS_INLINED);
  auto first = Symbolizer::of_file(WINDLASS_INLINED);
  ASSERT_TRUE(first);
  const Symbolizer symbols = std::move(*first);
  const NamedAddress before = name(symbols, known.at("wl_mark_inlined"));
  std::vector<int> wrong(4);
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < wrong.size(); ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < 200; ++i) {
          wrong[t] += text_of(name(symbols, known.at("wl_mark_inlined"))) != kInlined;
          wrong[t] += text_of(name(symbols, known.at("wl_mark_plain"))) != Text{"plain_c inlined.cpp:37"};
        }
      });
  }
  EXPECT_EQ(wrong, std::vector<int>(4));
  EXPECT_EQ(text_of(before), kInlined);
  EXPECT_EQ(before.frames[0].function.data(), name(symbols, known.at("wl_mark_inlined")).frames[0].function.data());
}

TEST(SymbolizerOfFile, Errors) {
  const Folder folder;
  const auto error_of = [](const std::string& path) {
    const auto symbols = Symbolizer::of_file(path);
    return symbols ? Error{ErrorCode::kLimit} : symbols.error();
  };
  EXPECT_EQ(error_of(folder / "none").code, ErrorCode::kSystem);
  EXPECT_EQ(error_of(folder / "none").detail, static_cast<std::uint64_t>(ENOENT));
  EXPECT_EQ(error_of("/tmp").code, ErrorCode::kUnsupported);
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(error_of(folder / "fifo").code, ErrorCode::kUnsupported);
  std::ofstream(folder / "text") << "neither the one nor the other";
  EXPECT_EQ(error_of(folder / "text").code, ErrorCode::kUnsupported);
  std::ofstream(folder / "empty").close();
  EXPECT_EQ(error_of(folder / "empty").code, ErrorCode::kUnsupported);
  std::ofstream(folder / "cut") << "\177ELF\2\1\1";
  EXPECT_EQ(error_of(folder / "cut").code, ErrorCode::kMalformed);
}

TEST(SymbolizerOfFile, SeparateDebugFilesAndNotes) {
  const Folder folder;
  const auto known = symbols_of(WINDLASS_INLINED);
  const std::string notes = run("readelf -n " WINDLASS_INLINED).output;
  const std::string id = notes.substr(notes.find("Build ID: ") + 10, 40);
  const std::string place = folder / ("tree/.build-id/" + id.substr(0, 2));
  ASSERT_EQ(
      run("mkdir -p " + place + " && objcopy --only-keep-debug " WINDLASS_INLINED " " + place + "/" + id.substr(2) +
          ".debug && cp " WINDLASS_INLINED " " + folder / "prog" + " && strip -s " + folder / "prog")
          .status,
      0);
  const auto without = Symbolizer::of_file(folder / "prog");
  const auto with = Symbolizer::of_file(folder / "prog", {.debug_directory = folder / "tree"});
  ASSERT_TRUE(without && with);
  EXPECT_TRUE(name(*without, known.at("wl_mark_inlined")).frames.empty());
  EXPECT_EQ(text_of(name(*with, known.at("wl_mark_inlined"))), kInlined);
}

#ifdef WINDLASS_DLL
TEST(SymbolizerOfFile, APeImageByItsCoffSymbolsAndExports) {
  const Folder folder;
  const auto known = symbols_of(WINDLASS_DLL, WINDLASS_MINGW_NM);
  const std::uint64_t base = 0x180000000;  // as it was linked
  const auto symbols = Symbolizer::of_file(WINDLASS_DLL);
  ASSERT_TRUE(symbols) << symbols.error().text();
  const NamedAddress inside = name(*symbols, known.at("inside") - base + 1);
  EXPECT_EQ(text_of(inside), Text{"inside"});
  EXPECT_EQ(inside.function_begin, known.at("inside") - base);
  EXPECT_EQ(text_of(name(*symbols, known.at("exported") - base)), Text{"exported"});
  // Stripped it has its exports, which do not name the functions beside them.
  ASSERT_EQ(run(WINDLASS_MINGW_STRIP " -s -o " + folder / "stripped.dll" + " " WINDLASS_DLL).status, 0);
  const auto stripped = Symbolizer::of_file(folder / "stripped.dll");
  ASSERT_TRUE(stripped);
  EXPECT_EQ(text_of(name(*stripped, known.at("exported") - base)), Text{"exported"});
  EXPECT_EQ(text_of(name(*stripped, known.at("inside") - base)), Text{});
  EXPECT_EQ(name(*stripped, known.at("inside") - base + 1).function_begin, known.at("inside") - base);
}
#endif

// ---- live processes ------------------------------------------------------------------------------------------------

TEST(SymbolizerOfProcess, FilesTheVdsoAndGeneratedCode) {
  const LiveProcess process(WINDLASS_LIVE);
  ASSERT_TRUE(process.started());
  const auto symbols = Symbolizer::of_process(process.id());
  ASSERT_TRUE(symbols) << symbols.error().text();
  const NamedAddress known = name(*symbols, process.at("known_function"));
  EXPECT_EQ(function_of(known), "known_function");
  EXPECT_EQ(known.frames.back().linkage_name, "known_function");
  EXPECT_EQ(fs::path(known.frames.back().file).filename(), "live.cpp");
  EXPECT_EQ(known.frames.back().line, 16u);
  EXPECT_EQ(known.module, WINDLASS_LIVE);
  EXPECT_EQ(known.offset, symbols_of(WINDLASS_LIVE).at("known_function"));
  EXPECT_EQ(known.function_begin, known.offset);
  EXPECT_NE(function_of(name(*symbols, process.at("getpid"))).find("getpid"), std::string::npos);

  EXPECT_EQ(function_of(name(*symbols, process.at("code") + 1)), "made_first");
  const NamedAddress second = name(*symbols, process.at("code") + 70);
  EXPECT_EQ(text_of(second), Text{"made second"});
  EXPECT_EQ(second.module, "[anon]");
  EXPECT_EQ(second.offset - second.function_begin, 6u);
  EXPECT_TRUE(name(*symbols, process.at("code") + 128).frames.empty());

  bool found = process.at("vdso") == 0;
  for (std::uint64_t offset = 0; offset < 0x4000 && !found; offset += 16) {
    const NamedAddress named = name(*symbols, process.at("vdso") + offset);
    found = named.module == "[vdso]" && function_of(named).find("clock_gettime") != std::string::npos;
  }
  EXPECT_TRUE(found);

  const NamedAddress nowhere = name(*symbols, 0x10);
  EXPECT_TRUE(nowhere.module.empty());
  EXPECT_TRUE(nowhere.frames.empty());
  EXPECT_EQ(nowhere.lookup, 0x10u);
}

// This one, from outside. What comes after its mappings were read counts, too.
TEST(SymbolizerOfProcess, WhatItsJitdumpTellsOf) {
  const Folder folder;
  const test::JitChain chain;
  const auto registrar = open_registrar(Registry::kJitdump, {.folder = folder / ""});
  ASSERT_TRUE(registrar);
  const auto add = [&](unsigned number, std::string_view called) {
    const test::JitStub& stub = chain.stubs()[number];
    const GeneratedLine lines[] = {{.offset = 0, .file = "made.js", .line = 6},
                                   {.offset = 4, .file = "made.js", .line = 7}};
    return (*registrar)
        ->add(std::vector{GeneratedFunction{.address = stub.begin(),
                                            .size = static_cast<std::uint32_t>(stub.end() - stub.begin()),
                                            .name = called,
                                            .rows = stub.rows(),
                                            .lines = lines}});
  };
  ASSERT_TRUE(add(0, "made_first"));
  const auto symbols = Symbolizer::of_process(static_cast<std::uint64_t>(::getpid()));
  ASSERT_TRUE(symbols) << symbols.error().text();
  const std::uint64_t second = chain.stubs()[1].begin();
  const NamedAddress first = name(*symbols, chain.stubs()[0].begin() + 4);
  EXPECT_EQ(function_of(first), "made_first");
  EXPECT_EQ(first.offset - first.function_begin, 4u);
  EXPECT_EQ(first.frames[0].file, "made.js");
  EXPECT_EQ(first.frames[0].line, 7u);
  EXPECT_TRUE(name(*symbols, second).frames.empty());
  ASSERT_TRUE(add(1, "_Z11made_secondv"));
  EXPECT_EQ(function_of(name(*symbols, second)), "made_second()");
}

TEST(SymbolizerOfProcess, ALibraryThatIsLoadedLater) {
  LiveProcess process(WINDLASS_LIVE);
  ASSERT_TRUE(process.started());
  const auto symbols = Symbolizer::of_process(process.id());
  ASSERT_TRUE(symbols);
  const NamedAddress before = name(*symbols, process.at("known_function"));
  process.load(WINDLASS_LIBRARY, "exported_first");
  if (process.at("exported_first") == 0) GTEST_SKIP() << "the library cannot be loaded";
  EXPECT_EQ(function_of(name(*symbols, process.at("exported_first"))), "exported_first");
  EXPECT_EQ(function_of(before), "known_function") << "names stay when mappings change";
}

TEST(SymbolizerOfProcess, AFileThatWasReplacedOrDeleted) {
  const Folder folder;
  const std::string program = folder / "live";
  fs::copy_file(WINDLASS_LIVE, program);
  const LiveProcess process(program);
  ASSERT_TRUE(process.started());
  const auto early = Symbolizer::of_process(process.id());
  ASSERT_TRUE(early);
  fs::copy_file(WINDLASS_INLINED, folder / "other");
  fs::rename(folder / "other", program);
  EXPECT_EQ(function_of(name(*early, process.at("known_function"))), "known_function");
  const auto late = Symbolizer::of_process(process.id());
  ASSERT_TRUE(late);
  const std::string named = function_of(name(*late, process.at("known_function")));
  if (::geteuid() == 0)
    EXPECT_EQ(named, "known_function");  // /proc/PID/map_files leads to it
  else
    EXPECT_TRUE(named.empty() || named == "known_function") << "the other file's name: " << named;
  fs::remove(program);
  EXPECT_EQ(function_of(name(*early, process.at("known_function"))), "known_function");
}

TEST(SymbolizerOfProcess, AProcessThatEndsMeanwhile) {
  const Folder folder;
  const std::string program = folder / "live";
  fs::copy_file(WINDLASS_LIVE, program);
  LiveProcess process(program);
  ASSERT_TRUE(process.started());
  const std::uint64_t pid = process.id();
  const auto symbols = Symbolizer::of_process(pid);
  ASSERT_TRUE(symbols);
  process.end();
  fs::remove(program);
  EXPECT_EQ(function_of(name(*symbols, process.at("known_function"))), "known_function");
  EXPECT_NE(function_of(name(*symbols, process.at("getpid"))).find("getpid"), std::string::npos);
  EXPECT_EQ(function_of(name(*symbols, process.at("code"))), "made_first");
  const auto gone = Symbolizer::of_process(pid);
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, ErrorCode::kSystem);
  EXPECT_EQ(gone.error().detail, static_cast<std::uint64_t>(ESRCH));
}

TEST(SymbolizerOfProcess, AnotherMountNamespace) {
  const Folder folder;
  const std::string place = folder / "mounted";
  fs::create_directory(place);
  const std::string program = place + "/live";
  const LiveProcess process(program, [&] {
    return ::unshare(CLONE_NEWNS) == 0 && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           ::mount("windlass", place.c_str(), "tmpfs", 0, nullptr) == 0 && fs::copy_file(WINDLASS_LIVE, program);
  });
  if (!process.started()) GTEST_SKIP() << "no mount namespaces here";
  ASSERT_FALSE(fs::exists(program));
  const auto symbols = Symbolizer::of_process(process.id());
  ASSERT_TRUE(symbols);
  EXPECT_EQ(function_of(name(*symbols, process.at("known_function"))), "known_function");
}

TEST(SymbolizerOfProcess, Errors) {
  for (const std::uint64_t pid : {std::uint64_t{0}, std::uint64_t{2147483646}, ~std::uint64_t{0}}) {
    const auto symbols = Symbolizer::of_process(pid);
    ASSERT_FALSE(symbols);
    EXPECT_EQ(symbols.error().code, ErrorCode::kSystem);
    EXPECT_EQ(symbols.error().detail, static_cast<std::uint64_t>(ESRCH));
  }
}

// ---- walks ---------------------------------------------------------------------------------------------------------

TEST(SymbolizerOfSelf, AWalkedFrameInOneCall) {
  const Symbolizer symbols = Symbolizer::of_self();
  std::vector<NamedAddress> names;
  windlass_test_walk_here(&names, &symbols);
  ASSERT_GT(names.size(), 3u);
  EXPECT_EQ(function_of(names[0]), "windlass_test_walk_here");
  EXPECT_NE(function_of(names[1]).find("AWalkedFrameInOneCall"), std::string::npos) << function_of(names[1]);
  EXPECT_TRUE(std::ranges::any_of(names, [](const auto& at) { return function_of(at) == "main"; }));
}

// The file under the library's name is another one by the time that it is asked for.
TEST(SymbolizerOfSelf, LibrariesThatComeAndAReplacedFile) {
  const Folder folder;
  const std::string library = folder / "library.so";
  fs::copy_file(WINDLASS_LIBRARY, library);
  const Symbolizer symbols = Symbolizer::of_self();
  void* loaded = ::dlopen(library.c_str(), RTLD_LAZY);
  if (loaded == nullptr) GTEST_SKIP() << ::dlerror();
  const auto first = reinterpret_cast<std::uint64_t>(::dlsym(loaded, "exported_first"));
  EXPECT_EQ(function_of(name(symbols, first)), "exported_first");
  fs::remove(library);
  fs::copy_file(WINDLASS_INLINED, library);
  const Symbolizer later = Symbolizer::of_self();
  const NamedAddress named = name(later, first);
  EXPECT_EQ(named.module, library);
  EXPECT_EQ(function_of(named), "") << "a name of another file";
  EXPECT_EQ(function_of(name(symbols, first)), "exported_first");
  ::dlclose(loaded);
}

TEST(SymbolizerOfTarget, AfterTheTargetWasReleasedAndHasEnded) {
  LiveProcess process(WINDLASS_LIVE);
  ASSERT_TRUE(process.started());
  auto target = open_process(process.id());
  if (!target) GTEST_SKIP() << "may not trace here: " << target.error().text();
  const Symbolizer symbols = Symbolizer::of_target(*target);
  ASSERT_FALSE(target->threads.empty());
  std::vector<CodeAddress> pcs;
  StackWalker walker(target->space, target->threads[0].registers);
  for (const Frame& frame : walker) pcs.push_back(frame.pc());
  target->release();
  process.end();
  const auto names = symbols.name(pcs);
  ASSERT_EQ(names.size(), pcs.size());
  EXPECT_TRUE(std::ranges::any_of(names, [](const auto& at) { return function_of(at) == "main"; }));
  EXPECT_EQ(function_of(name(symbols, process.at("known_function"))), "known_function");
}

class NoMemory final : public Memory {
 public:
  [[nodiscard]] bool read(std::uint64_t, void*, std::size_t) const override { return false; }
};

TEST(SymbolizerOfSpace, ModulesOfOnesOwn) {
  AddressSpace space(Architecture::kX86_64, std::make_unique<NoMemory>());
  constexpr std::uint64_t kBias = 0x70000000;
  ASSERT_TRUE(space.add_module({kBias, kBias + 0x100000, kBias, WINDLASS_INLINED, {}}));
  ASSERT_TRUE(space.add_module({2 * kBias, 2 * kBias + 0x100000, 2 * kBias, "/as/it/was/there", WINDLASS_INLINED}));
  ASSERT_TRUE(space.add_module({3 * kBias, 3 * kBias + 0x1000, 3 * kBias, "/no/such/file", {}}));
  ASSERT_TRUE(space.add({.begin = 4 * kBias, .end = 4 * kBias + 0x1000, .name = "[made]"}));
  const Symbolizer symbols = Symbolizer::of_space(space);
  const std::uint64_t mark = symbols_of(WINDLASS_INLINED).at("wl_mark_inlined");
  EXPECT_EQ(text_of(name(symbols, kBias + mark)), kInlined);
  EXPECT_EQ(name(symbols, kBias + mark).offset, mark);
  EXPECT_EQ(text_of(name(symbols, 2 * kBias + mark)), kInlined);
  EXPECT_EQ(name(symbols, 2 * kBias + mark).module, "/as/it/was/there");
  EXPECT_EQ(text_of(name(symbols, 3 * kBias + 8)), Text{});
  EXPECT_EQ(name(symbols, 3 * kBias + 8).module, "/no/such/file");
  EXPECT_EQ(name(symbols, 3 * kBias + 8).offset, 8u);
  EXPECT_EQ(name(symbols, 4 * kBias + 8).module, "[made]");
  // What is added later is seen; one mapped twice in a batch, too.
  ASSERT_TRUE(space.add_module({5 * kBias, 5 * kBias + 0x100000, 5 * kBias, WINDLASS_INLINED, {}}));
  const CodeAddress both[] = {CodeAddress::instruction(5 * kBias + mark), CodeAddress::instruction(kBias + mark)};
  for (const NamedAddress& named : symbols.name(both)) EXPECT_EQ(text_of(named), kInlined);
}

// The first addresses of a file are looked for in one pass over its symbols, later ones in the sorted table. libc has
// aliases, and functions with labels in them.
TEST(Symbolizer, NamesTheFirstAddressesAsThoseThatFollow) {
  const auto libc = reinterpret_cast<std::uint64_t>(&std::strtoull);
  std::vector<CodeAddress> wanted;
  for (std::uint64_t i = 0; i < 200; ++i) wanted.push_back(CodeAddress::instruction(libc - 100 * 3001 + i * 3001));
  const Symbolizer first = Symbolizer::of_self(), later = Symbolizer::of_self();
  (void)later.name(wanted.front());
  const std::vector<NamedAddress> scanned = first.name(wanted), sorted = later.name(wanted), again = first.name(wanted);
  std::size_t named = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(text_of(scanned[i]), text_of(sorted[i])) << i;
    EXPECT_EQ(text_of(again[i]), text_of(sorted[i])) << i;
    EXPECT_EQ(scanned[i].function_begin, sorted[i].function_begin) << i;
    named += function_of(scanned[i]).empty() ? 0 : 1;
  }
  EXPECT_GT(named, 50U);
}

}  // namespace
}  // namespace windlass
