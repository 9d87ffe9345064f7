// A compiler on top of LLVM's ORC whose stacks are whole, for everybody. LLVM writes .eh_frame with its code and shows
// it to libgcc. A plugin of the linking layer hears of each object when its addresses are final, and passes on the
// rest: .eh_frame to the walks of this process, every function to GDB and perf.
//
//   jit_orc [DIR]       walks the stack by libgcc and by this library, and throws an exception through it
//   jit_orc stop DIR    raises SIGINT instead, for a debugger
//   jit_orc spin DIR    computes for a second, for a profiler; the jitdump goes to DIR
#include <llvm/AsmParser/Parser.h>
#include <llvm/ExecutionEngine/JITLink/EHFrameSupport.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h>
#include <llvm/Support/SourceMgr.h>
#include <llvm/Support/TargetSelect.h>
#include <unwind.h>
#include <windlass/backtrace.h>
#include <windlass/jit/code_range.h>
#include <windlass/jit/describe.h>
#include <windlass/jit/registration.h>

#include <csignal>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <stdexcept>
#include <string>

using namespace llvm;

// Aligned, since some builds of perf need room behind a function, see docs/how-to/register-generated-code.md.
static const char kProgram[] = R"(
  declare i64 @called_back(i64)
  define i64 @evaluate(i64 %x) noinline uwtable align 256 {
    %y = mul i64 %x, 3
    %r = call i64 @called_back(i64 %y)
    %s = add i64 %r, %x
    ret i64 %s
  }
  define i64 @optimize(i64 %x) noinline uwtable align 256 {
    %room = alloca [64 x i64]
    %slot = getelementptr [64 x i64], ptr %room, i64 0, i64 %x
    store volatile i64 %x, ptr %slot
    %r = call i64 @evaluate(i64 %x)
    %kept = load volatile i64, ptr %slot
    %s = add i64 %r, %kept
    ret i64 %s
  }
  define i64 @parse(i64 %n) noinline uwtable align 256 {
    %room = alloca i8, i64 %n
    store volatile i8 1, ptr %room
    %r = call i64 @optimize(i64 %n)
    %s = sub i64 %r, %n
    ret i64 %s
  })";

// ---- what the linker says, passed on --------------------------------------------------------------------------------

class Announce final : public orc::ObjectLinkingLayer::Plugin {
 public:
  explicit Announce(const std::string& folder) {
    using enum windlass::Registry;
    for (const auto registry : {kGdb, kPerfMap, kJitdump}) {
      auto registrar = windlass::open_registrar(registry, {.folder = registry == kJitdump ? folder : ""});
      if (registrar) registrars_.push_back(std::move(*registrar));
    }
  }
  ~Announce() override {
    for (const auto id : ranges_) (void)windlass::retire_own_code(id);
  }

  void modifyPassConfig(orc::MaterializationResponsibility&, jitlink::LinkGraph&,
                        jitlink::PassConfiguration& config) override {
    config.PostFixupPasses.emplace_back([this](jitlink::LinkGraph& graph) { return announce(graph); });
  }
  // The code is executable now, and nothing of it has run: before that, registrars refuse it.
  Error notifyEmitted(orc::MaterializationResponsibility&) override {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < functions_.size(); ++i) {
      functions_[i].name = names_[i];
      functions_[i].rows = described_[i].rows;
    }
    for (const auto& registrar : registrars_)
      if (const auto id = registrar->add(functions_); !id) return failed(id.error());
    return Error::success();
  }
  Error notifyFailed(orc::MaterializationResponsibility&) override { return Error::success(); }
  Error notifyRemovingResources(orc::JITDylib&, orc::ResourceKey) override { return Error::success(); }
  void notifyTransferringResources(orc::JITDylib&, orc::ResourceKey, orc::ResourceKey) override {}

  [[nodiscard]] bool is_generated(std::uint64_t pc) const { return pc > begin_ && pc <= end_; }

 private:
  Error announce(jitlink::LinkGraph& graph) {
    const std::lock_guard lock(mutex_);
    for (jitlink::Symbol* const symbol : graph.defined_symbols()) {
      if (!symbol->isCallable() || symbol->getSize() == 0) continue;
      const std::uint64_t address = symbol->getAddress().getValue();
      begin_ = std::min(begin_, address);
      end_ = std::max(end_, address + symbol->getSize());
      const auto code = std::as_bytes(std::span(symbol->getSymbolContent().data(), symbol->getSize()));
      auto found = windlass::describe(code, address, kArchitecture);
      if (!found || !found->whole()) continue;
      described_.push_back(std::move(*found));
      names_.emplace_back(symbol->getName().data(), symbol->getName().size());
      functions_.push_back({.address = address, .size = static_cast<std::uint32_t>(symbol->getSize())});
    }
    if (jitlink::Section* const section = graph.findSectionByName(".eh_frame")) {
      const jitlink::SectionRange range(*section);
      std::vector<std::byte> bytes(range.getSize());
      for (const jitlink::Block* const block : section->blocks())
        std::copy_n(reinterpret_cast<const std::byte*>(block->getContent().data()), block->getSize(),
                    bytes.data() + (block->getAddress() - range.getStart()));
      const auto id = windlass::add_own_code({.begin = begin_,
                                              .end = end_,
                                              .name = "[orc]",
                                              .eh_frame = std::move(bytes),
                                              .eh_frame_address = range.getStart().getValue()});
      if (!id) return failed(id.error());
      ranges_.push_back(*id);
    }
    return Error::success();
  }
  static Error failed(const windlass::Error& error) {
    return make_error<StringError>(error.text(), inconvertibleErrorCode());
  }

#if defined(__aarch64__)
  static constexpr auto kArchitecture = windlass::Architecture::kAArch64;
#else
  static constexpr auto kArchitecture = windlass::Architecture::kX86_64;
#endif
  std::mutex mutex_;
  std::vector<std::unique_ptr<windlass::Registrar>> registrars_;
  std::vector<windlass::CodeRangeId> ranges_;
  // Of this program's one object, until it is emitted.
  std::vector<std::string> names_;
  std::vector<windlass::Description> described_;
  std::vector<windlass::GeneratedFunction> functions_;
  std::uint64_t begin_ = ~0ULL, end_ = 0;  // of this program's one object
};

// ---- who is called in the end ---------------------------------------------------------------------------------------

static Announce* announced;
static std::string mode;

static _Unwind_Reason_Code libgcc_frame(_Unwind_Context* context, void* generated) {
  *static_cast<unsigned*>(generated) += announced->is_generated(_Unwind_GetIP(context)) ? 1 : 0;
  return _URC_NO_REASON;
}

static long called_back(long x) {
  if (mode == "stop") std::raise(SIGINT);
  for (const std::clock_t end = std::clock() + CLOCKS_PER_SEC; mode == "spin" && std::clock() < end;) continue;
  unsigned by_libgcc = 0, own = 0;
  _Unwind_Backtrace(libgcc_frame, &by_libgcc);
  windlass::StackWalker walker(windlass::own_process(), windlass::capture_registers());
  while (walker.step()) own += announced->is_generated(walker.frame().pc().value()) ? 1 : 0;
  std::printf("libgcc: %u generated frames\nwindlass: %u generated frames, %s\n", by_libgcc, own,
              std::string(windlass::end_name(walker.end_reason())).c_str());
  throw std::runtime_error("thrown at " + std::to_string(x));
}

int main(int argc, char** argv) {
  mode = argc > 2 ? argv[1] : "";
  const ExitOnError check("jit_orc: ");
  InitializeNativeTarget();
  InitializeNativeTargetAsmPrinter();
  const std::string folder = argc > 1 ? argv[argc - 1] : "/tmp";
  const auto layer = [&](orc::ExecutionSession& session, const Triple&) -> Expected<std::unique_ptr<orc::ObjectLayer>> {
    auto linker = std::make_unique<orc::ObjectLinkingLayer>(session);
    linker->addPlugin(std::make_shared<orc::EHFrameRegistrationPlugin>(
        session, std::make_unique<jitlink::InProcessEHFrameRegistrar>()));
    auto announce = std::make_shared<Announce>(folder);
    announced = announce.get();
    linker->addPlugin(std::move(announce));
    return linker;
  };
  const auto jit = check(orc::LLJITBuilder().setObjectLinkingLayerCreator(layer).create());
  orc::SymbolMap symbols;
  symbols[jit->mangleAndIntern("called_back")] = {orc::ExecutorAddr::fromPtr(called_back), JITSymbolFlags::Exported};
  check(jit->getMainJITDylib().define(orc::absoluteSymbols(std::move(symbols))));
  auto context = std::make_unique<LLVMContext>();
  SMDiagnostic wrong;
  auto module = parseAssemblyString(kProgram, wrong, *context);
  check(jit->addIRModule(orc::ThreadSafeModule(std::move(module), std::move(context))));
  const auto parse = check(jit->lookup("parse")).toPtr<long(long)>();
  try {
    parse(16);
  } catch (const std::exception& error) {
    std::printf("caught, %s\n", error.what());
  }
}
