// A compiler on top of AsmJit whose stacks are whole. AsmJit's register allocator makes the frames, so nobody here
// knows them: describe() reads them off the machine code. Then they are registered for everybody who may walk the
// stack.
//
//   jit_asmjit [DIR]       walks the stack by libgcc and by this library, and throws an exception through it
//   jit_asmjit stop DIR    raises SIGINT instead, for a debugger
//   jit_asmjit spin DIR    computes for a second, for a profiler; the jitdump goes to DIR
#include <asmjit/asmjit.h>
#include <unwind.h>
#include <windlass/backtrace.h>
#include <windlass/jit/describe.h>
#include <windlass/jit/registration.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#if defined(__aarch64__)
#include <asmjit/arm/a64compiler.h>
using Compiler = asmjit::a64::Compiler;
using Register = asmjit::a64::Gp;
constexpr auto kArchitecture = windlass::Architecture::kAArch64;
#else
using Compiler = asmjit::x86::Compiler;
using Register = asmjit::x86::Gp;
constexpr auto kArchitecture = windlass::Architecture::kX86_64;
#endif

using Function = long (*)(long);

struct Generated {
  std::string name;
  Function function;
  std::size_t size;
  windlass::Description description;
};

// ---- the compiler: long name(long x) { return next(x + 1) + x + ... } -----------------------------------------------

static void add(Compiler& compiler, const Register& to, const Register& what) {
#if defined(__aarch64__)
  compiler.add(to, to, what);
#else
  compiler.add(to, what);
#endif
}

// `live` values are kept across the call: first in the registers that it preserves, then on the stack.
static Function compile(asmjit::JitRuntime& runtime, Function next, unsigned live, std::size_t& size) {
  asmjit::CodeHolder code;
  code.init(runtime.environment());
  Compiler compiler(&code);
  const auto signature = asmjit::FuncSignatureT<long, long>(asmjit::CallConvId::kHost);
  asmjit::FuncNode* const function = compiler.addFunc(signature);
  const Register x = compiler.newInt64(), one = compiler.newInt64(), target = compiler.newInt64();
  function->setArg(0, x);
  compiler.mov(one, 1);
  std::vector<Register> values;
  for (unsigned i = 0; i < live; ++i) {
    values.push_back(compiler.newInt64());
    compiler.mov(values.back(), x);
    add(compiler, x, one);
  }
  compiler.mov(target, asmjit::imm(reinterpret_cast<void*>(next)));
  asmjit::InvokeNode* call = nullptr;
  compiler.invoke(&call, target, signature);
  call->setArg(0, x);
  const Register result = compiler.newInt64();
  call->setRet(0, result);
  for (const Register& value : values) add(compiler, result, value);
  compiler.ret(result);
  compiler.endFunc();
  const asmjit::Label end = compiler.newLabel();
  compiler.bind(end);
  static constexpr char kRoom[512] = {};
  // Some builds of perf need room behind a function, see docs/how-to/register-generated-code.md.
  compiler.embed(kRoom, sizeof kRoom);
  Function made = nullptr;
  if (compiler.finalize() != asmjit::kErrorOk || runtime.add(&made, &code) != asmjit::kErrorOk) return nullptr;
  size = code.labelOffset(end);
  return made;
}

// ---- who is called in the end ---------------------------------------------------------------------------------------

static std::vector<Generated> functions;
static std::string mode;

static unsigned is_generated(std::uint64_t pc) {
  for (const Generated& made : functions)
    if (const auto begin = reinterpret_cast<std::uint64_t>(made.function); pc > begin && pc <= begin + made.size)
      return 1;
  return 0;
}

static _Unwind_Reason_Code libgcc_frame(_Unwind_Context* context, void* generated) {
  *static_cast<unsigned*>(generated) += is_generated(_Unwind_GetIP(context));
  return _URC_NO_REASON;
}

static long called_back(long x) {
  if (mode == "stop") std::raise(SIGINT);
  for (const std::clock_t end = std::clock() + CLOCKS_PER_SEC; mode == "spin" && std::clock() < end;) continue;
  unsigned by_libgcc = 0, own = 0;
  _Unwind_Backtrace(libgcc_frame, &by_libgcc);
  windlass::StackWalker walker(windlass::own_process(), windlass::capture_registers());
  while (walker.step()) own += is_generated(walker.frame().pc().value());
  std::printf("libgcc: %u generated frames\nwindlass: %u generated frames, %s\n", by_libgcc, own,
              std::string(windlass::end_name(walker.end_reason())).c_str());
  throw std::runtime_error("thrown at " + std::to_string(x));
}

// ---- registration ---------------------------------------------------------------------------------------------------

static std::vector<std::unique_ptr<windlass::Registrar>> register_all(const std::string& folder) {
  std::vector<windlass::GeneratedFunction> known;
  for (const Generated& made : functions)
    known.push_back({.address = reinterpret_cast<std::uint64_t>(made.function),
                     .size = static_cast<std::uint32_t>(made.size),
                     .name = made.name,
                     .rows = made.description.rows});
  std::vector<std::unique_ptr<windlass::Registrar>> registrars;
  using enum windlass::Registry;
  for (const auto registry : {kWindlass, kFrameInfo, kGdb, kPerfMap, kJitdump}) {
    auto registrar = windlass::open_registrar(registry, {.folder = registry == kJitdump ? folder : ""});
    if (!registrar) return std::fprintf(stderr, "%s\n", registrar.error().text().c_str()), std::move(registrars);
    if (const auto id = (*registrar)->add(known); !id) std::fprintf(stderr, "%s\n", id.error().text().c_str());
    registrars.push_back(std::move(*registrar));
  }
  return registrars;
}

int main(int argc, char** argv) {
  mode = argc > 2 ? argv[1] : "";
  asmjit::JitRuntime runtime;
  Function next = called_back;
  constexpr struct {
    const char* name;
    unsigned live;
  } kFunctions[] = {{"evaluate", 2}, {"optimize", 9}, {"parse", 24}};  // the innermost first
  for (const auto& [name, live] : kFunctions) {
    std::size_t size = 0;
    next = compile(runtime, next, live, size);
    if (next == nullptr) return 2;
    const auto code = std::as_bytes(std::span(reinterpret_cast<const char*>(next), size));
    auto found = windlass::describe(code, reinterpret_cast<std::uint64_t>(next), kArchitecture);
    if (!found || !found->whole()) return std::fprintf(stderr, "%s is not fully described\n", name), 3;
    functions.push_back({name, next, size, std::move(*found)});
  }
  const auto registrars = register_all(argc > 1 ? argv[argc - 1] : "/tmp");
  try {
    next(1);
  } catch (const std::exception& error) {
    std::printf("caught, %s\n", error.what());
  }
  return 0;  // the registrars go before the code does
}
