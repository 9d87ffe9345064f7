// A Windows program for ARM64 without a C library. Asks the system's RtlVirtualUnwind for the caller at many addresses
// of an image, which is only data here. Registers are made up, and every word of the stack has a value of its own.
// Standard input: u64 image size, u64 count, the image laid out, count x { u32 RVA of a function-table entry, u32 RVA
// of a pc in its function }. Standard output, for each: the caller's pc, sp, x19-x29, d8-d15 (oracle.h). Addresses of
// the stack are made relative.
#include "oracle.h"

typedef unsigned int u32;

// ARM64_NT_CONTEXT of winnt.h
typedef struct {
  u32 flags, cpsr;
  u64 x[31];
  u64 sp, pc;
  struct {
    u64 low, high;
  } v[32];
  u32 fpcr, fpsr, bcr[8];
  u64 bvr[8];
  u32 wcr[2];
  u64 wvr[2];
} __attribute__((aligned(16))) Context;

__declspec(dllimport) void* RtlVirtualUnwind(u32 type, u64 base, u64 pc, void* function, Context* context, void** data,
                                             u64* frame, void* pointers);
__declspec(dllimport) long NtTerminateProcess(void* process, u32 status);
__declspec(dllimport) int WriteFile(void* file, const void* from, u32 size, u32* done, void* overlapped);
__declspec(dllimport) int ReadFile(void* file, void* to, u32 size, u32* done, void* overlapped);
__declspec(dllimport) void* GetStdHandle(u32 which);
__declspec(dllimport) void* VirtualAlloc(void* at, u64 size, u32 type, u32 protection);

static void stop(u32 status) { NtTerminateProcess((void*)-1, status); }

static void read_all(void* to, u64 size) {
  char* at = to;
  while (size > 0) {
    u32 done = 0;
    if (!ReadFile(GetStdHandle((u32)-10), at, size > 65536 ? 65536 : (u32)size, &done, 0) || done == 0) stop(3);
    at += done;
    size -= done;
  }
}

static void* allocate(u64 size) {
  return VirtualAlloc(0, size, 0x3000, 4);
}  // MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE

#define ANSWERS_A_WRITE 4096
static u64 answers[ANSWERS_A_WRITE * ORACLE_ANSWER];
static Context context;

static void made_up(u64 stack) {
  for (u32 i = 0; i < sizeof context / 4; i++) ((volatile u32*)&context)[i] = 0;
  context.flags = 0x400007;  // CONTEXT_FULL
  for (int i = 0; i < 31; i++) context.x[i] = ORACLE_X(i);
  context.x[29] = stack + ORACLE_FP;
  context.x[30] = ORACLE_LR;
  context.sp = stack + ORACLE_SP;
  for (int i = 8; i < 16; i++) context.v[i].low = ORACLE_D(i);
}

void mainCRTStartup(void) {
  u64 head[2];
  read_all(head, sizeof head);
  char* image = allocate(head[0]);
  u32* questions = allocate(head[1] * 8 + 8);
  u64* stack = allocate(ORACLE_STACK);
  if (!image || !questions || !stack) stop(4);
  read_all(image, head[0]);
  read_all(questions, head[1] * 8);
  for (u64 i = 0; i < ORACLE_STACK / 8; i++) stack[i] = ORACLE_WORD(i * 8);
  u32 kept = 0, done;
  for (u64 i = 0; i < head[1]; i++) {
    void* data;
    u64 frame;
    made_up((u64)stack);
    context.pc = (u64)image + questions[2 * i + 1];
    RtlVirtualUnwind(0, (u64)image, context.pc, image + questions[2 * i], &context, &data, &frame, 0);
    u64* answer = answers + (u64)kept * ORACLE_ANSWER;
    answer[0] = context.pc;
    answer[1] = context.sp;
    for (int r = 0; r < 11; r++) answer[2 + r] = context.x[19 + r];
    for (int r = 0; r < 8; r++) answer[13 + r] = context.v[8 + r].low;
    for (int k = 0; k < ORACLE_ANSWER; k++)
      if (answer[k] - (u64)stack < ORACLE_STACK) answer[k] = ORACLE_RELATIVE + (answer[k] - (u64)stack);
    if (++kept == ANSWERS_A_WRITE) {
      WriteFile(GetStdHandle((u32)-11), answers, sizeof answers, &done, 0);
      kept = 0;
    }
  }
  WriteFile(GetStdHandle((u32)-11), answers, kept * ORACLE_ANSWER * 8, &done, 0);
  stop(0);
}
