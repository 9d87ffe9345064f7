/* What addr2line does, of a file or a process: name_addresses FILE|PID ADDRESS... */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <windlass/c/symbols.h>

static int print_address(const windlass_named_address* named, size_t index, void* user) {
  size_t i;
  (void)index;
  (void)user;
  printf("%#llx %s+%#llx\n", (unsigned long long)named->lookup, named->module != NULL ? named->module : "?",
         (unsigned long long)named->offset);
  for (i = 0; i < named->frame_count; ++i) {
    const windlass_source_frame* frame = named->frames[i];
    printf("  %s%s", frame->function, (frame->flags & WINDLASS_FRAME_INLINED) != 0 ? " (inlined)" : "");
    if (frame->line != 0) printf(" at %s:%u", frame->file, frame->line);
    printf("\n");
  }
  return 0;
}

int main(int argc, char** argv) {
  windlass_symbols* symbols = NULL;
  windlass_error error;
  windlass_status status;
  uint64_t addresses[256];
  size_t count = 0;
  int i;
  error.size = sizeof error;
  if (argc < 2 || argc > 258) return 2;
  if (argv[1][strspn(argv[1], "0123456789")] == '\0')
    status = windlass_symbols_open_process(atoll(argv[1]), NULL, &symbols, &error);
  else
    status = windlass_symbols_open_file(argv[1], NULL, &symbols, &error);
  if (status != WINDLASS_OK) {
    fprintf(stderr, "%s: %s\n", argv[1], error.text);
    return 1;
  }
  for (i = 2; i < argc; ++i) addresses[count++] = strtoull(argv[i], NULL, 0);
  status = windlass_symbols_name(symbols, addresses, count, 0, print_address, NULL, &error);
  windlass_symbols_close(symbols);
  return status == WINDLASS_OK ? 0 : 1;
}
