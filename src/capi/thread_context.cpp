// The variable of OpenTelemetry's thread context (OTEP 4947). A file of its own, since the access model belongs to the
// whole file: CMakeLists.txt has the option.

extern "C" {

__attribute__((visibility("default"))) __thread void* otel_thread_ctx_v1 = nullptr;

// Where the calling thread's variable is. Never inlined: glibc before 2.39 may lose vector registers when it resolves a
// TLS descriptor (bug 31372), and this function has nothing in any.
__attribute__((visibility("hidden"), noinline)) void** windlass_thread_context() { return &otel_thread_ctx_v1; }

}  // extern "C"
