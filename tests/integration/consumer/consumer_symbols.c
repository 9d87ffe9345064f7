/* The same in C, with libwindlass-symbols. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <windlass/c/symbols.h>

static int print_name(const windlass_named_address* named, size_t index, void* user) {
  (void)index;
  if (named->frame_count == 0) return 1;
  printf("%s\n", named->frames[named->frame_count - 1]->function);
  *(int*)user = strcmp(named->frames[named->frame_count - 1]->function, "main");
  return 0;
}

int main(void) {
  windlass_symbols* symbols = NULL;
  uint64_t address = (uint64_t)(uintptr_t)&main;
  int result = 2;
  if (windlass_symbols_open_self(NULL, &symbols, NULL) != WINDLASS_OK) return 1;
  if (windlass_symbols_name(symbols, &address, 1, 0, print_name, &result, NULL) != WINDLASS_OK) return 3;
  windlass_symbols_close(symbols);
  return result;
}
