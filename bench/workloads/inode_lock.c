/* Threads that write to one file, and wait for the lock of its inode in the kernel.
 *   inode_lock FILE WRITES [THREADS [BYTES]] */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static int file;
static long writes, bytes = 8000000;

__attribute__((noinline)) static long write_once(const char* data) { return pwrite(file, data, (size_t)bytes, 0); }

static void* write_all(void* done) {
  char* const data = calloc(1, (size_t)bytes);
  for (long i = 0; i < writes; ++i) *(long*)done += write_once(data);
  free(data);
  return NULL;
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  file = open(argv[1], O_RDWR | O_CREAT, 0600);
  writes = atol(argv[2]);
  const int count = argc > 3 ? atoi(argv[3]) : 4;
  if (argc > 4) bytes = atol(argv[4]);
  pthread_t threads[64];
  long done[64] = {0};
  for (int i = 0; i < count; ++i) pthread_create(&threads[i], NULL, write_all, &done[i]);
  for (int i = 0; i < count; ++i) pthread_join(threads[i], NULL);
  unlink(argv[1]);
  return done[0] == writes * bytes ? 0 : 1;
}
