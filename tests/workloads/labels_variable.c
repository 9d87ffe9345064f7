/* The variable of OpenTelemetry's thread context, in a file of its own: the access model is the compiler's option. */
__attribute__((visibility("default"))) __thread void* otel_thread_ctx_v1;
__attribute__((visibility("default"))) void** context_variable(void) { return &otel_thread_ctx_v1; }
