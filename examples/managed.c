/* A managed runtime in C: a moving collector that finds what a method keeps in its frame, and an exception that another
 * method catches. The methods stand for what a compiler generates: "inner" keeps a reference in its frame while it
 * calls the runtime's helpers, "outer" calls it in a try. Their frames are unwound by the call frame information beside
 * them. */
#include <stdio.h>
#include <string.h>
#include <windlass/c/managed.h>

#if defined(__x86_64__)
enum { SLOT_OF_INNER = 8 }; /* its reference is at sp + 8 */
__asm__(
    ".text\n.globl outer_method, inner_method, catch_funclet\n"
    "outer_method:\n.cfi_startproc\nsubq $24, %rsp\n.cfi_def_cfa_offset 32\n"
    "outer_try: call inner_method\nouter_try_end: xorl %eax, %eax\njmp 1f\n"
    "outer_resume: movl $1, %eax\n" /* behind the handler */
    "1: addq $24, %rsp\n.cfi_def_cfa_offset 8\nret\n.cfi_endproc\nouter_end:\n"
    "inner_method:\n.cfi_startproc\nsubq $24, %rsp\n.cfi_def_cfa_offset 32\n"
    "call helper_new\nmovq %rax, 8(%rsp)\n"
    "call helper_collect\ninner_site: movq 8(%rsp), %rdi\n"
    "call helper_throw\nint3\n.cfi_endproc\ninner_end:\n"
    "catch_funclet:\n.cfi_startproc\nsubq $8, %rsp\n.cfi_def_cfa_offset 16\n"
    "movq %rsi, %rdi\ncall helper_caught\nleaq outer_resume(%rip), %rax\n"
    "addq $8, %rsp\n.cfi_def_cfa_offset 8\nret\n.cfi_endproc\ncatch_end:\n");
#else
enum { SLOT_OF_INNER = 16 };
__asm__(
    ".text\n.p2align 2\n.globl outer_method, inner_method, catch_funclet\n"
    "outer_method:\n.cfi_startproc\nstp x29, x30, [sp, #-16]!\n.cfi_def_cfa_offset 16\n"
    ".cfi_offset x29, -16\n.cfi_offset x30, -8\n"
    "outer_try: bl inner_method\nouter_try_end: mov w0, #0\nb 1f\n"
    "outer_resume: mov w0, #1\n" /* behind the handler */
    "1: ldp x29, x30, [sp], #16\n.cfi_def_cfa_offset 0\n.cfi_restore x29\n.cfi_restore x30\nret\n.cfi_endproc\n"
    "outer_end:\n"
    "inner_method:\n.cfi_startproc\nstp x29, x30, [sp, #-32]!\n.cfi_def_cfa_offset 32\n"
    ".cfi_offset x29, -32\n.cfi_offset x30, -24\n"
    "bl helper_new\nstr x0, [sp, #16]\n"
    "bl helper_collect\ninner_site: ldr x0, [sp, #16]\n"
    "bl helper_throw\nbrk #0\n.cfi_endproc\ninner_end:\n"
    "catch_funclet:\n.cfi_startproc\nstp x29, x30, [sp, #-16]!\n.cfi_def_cfa_offset 16\n"
    ".cfi_offset x29, -16\n.cfi_offset x30, -8\n"
    "mov x0, x1\nbl helper_caught\nadr x0, outer_resume\n"
    "ldp x29, x30, [sp], #16\n.cfi_def_cfa_offset 0\n.cfi_restore x29\n.cfi_restore x30\nret\n.cfi_endproc\n"
    "catch_end:\n");
#endif
extern int outer_method(void);
extern const char inner_method[], catch_funclet[], outer_try[], outer_try_end[], outer_resume[], outer_end[],
    inner_site[], inner_end[], catch_end[];

enum { OUTER = 1, INNER = 2, CATCH = 3 };
static const char* const names[] = {"?", "outer", "inner", "catch"};
static windlass_method* methods[4];
static windlass_mutator* self;

/* ---- what the runtime says of its code --------------------------------------------------------------------- */

static struct { uint64_t begin, end; } bounds[4];

static const windlass_method* find(uint64_t pc, void* user) {
  int i;
  (void)user;
  for (i = OUTER; i <= CATCH; ++i)
    if (pc >= bounds[i].begin && pc < bounds[i].end) return methods[i];
  return NULL;
}

static uint64_t address(const void* code) { return (uint64_t)(uintptr_t)code; }

static int make_method(int id, const void* begin, const void* end, windlass_method_description* description) {
  description->size = sizeof *description;
  description->id = (uint64_t)id;
  description->begin = bounds[id].begin = address(begin);
  description->end = bounds[id].end = address(end);
  return windlass_make_method(description, &methods[id], NULL) == WINDLASS_OK;
}

static int make_methods(void) {
  windlass_method_description outer = {0}, inner = {0}, handler = {0};
  windlass_clause clause = {0};
  windlass_root_slot slot = {{WINDLASS_AT_SP, 0, SLOT_OF_INNER}, 0};
  windlass_root_site site = {(uint32_t)(inner_site - inner_method), 1, NULL};
  windlass_stack_map map = {0};
  unsigned char bytes[64];
  size_t size = 0;

  site.live = &slot;
  map.size = sizeof map;
  map.code_size = (uint32_t)(inner_end - inner_method);
  map.sites = &site;
  map.site_count = 1;
  if (windlass_encode_stack_map(&map, bytes, sizeof bytes, &size, NULL) != WINDLASS_OK) return 0;
  inner.roots = bytes;
  inner.roots_size = size;

  clause.kind = WINDLASS_CLAUSE_CATCH;
  clause.begin = (uint32_t)(address(outer_try) - address((const void*)(uintptr_t)outer_method));
  clause.end = (uint32_t)(address(outer_try_end) - address((const void*)(uintptr_t)outer_method));
  clause.handler = address(catch_funclet);
  outer.clauses = &clause;
  outer.clause_count = 1;

  handler.funclet = WINDLASS_CATCH;
  if (!make_method(OUTER, (const void*)(uintptr_t)outer_method, outer_end, &outer)) return 0;
  handler.parent = methods[OUTER];
  return make_method(INNER, inner_method, inner_end, &inner) && make_method(CATCH, catch_funclet, catch_end, &handler);
}

/* ---- helpers, which the methods call ----------------------------------------------------------------------- */

struct object {
  char text[16];
};
static struct object from_space, to_space;

struct object* helper_new(void) {
  strcpy(from_space.text, "an object");
  return &from_space;
}

static void move_root(const windlass_root* root, void* user) {
  if (root->value != address(&from_space)) return;
  *(uint64_t*)(uintptr_t)root->address = address(&to_space);
  ++*(int*)user;
}

static int collect_frame(const windlass_crawl* crawl, const windlass_crawl_frame* frame, void* user) {
  if (frame->state == WINDLASS_FRAMELESS) printf(" %s", names[frame->function]);
  return windlass_crawl_roots(crawl, move_root, user, NULL) == WINDLASS_OK || frame->function != INNER
             ? WINDLASS_CONTINUE
             : WINDLASS_ABORT;
}

void helper_collect(void) {
  windlass_context_frame frame;
  windlass_managed_thread thread = {0};
  uint32_t outcome = WINDLASS_WALK_FAILED;
  int moved = 0;
  memset(&frame.header, 0, sizeof frame.header);
  frame.header.kind = WINDLASS_FRAME_HELPER;
  frame.header.form = WINDLASS_FORM_LAZY;
  windlass_capture_frame(&frame); /* where this is; who called it is looked for when somebody walks */
  windlass_push_frame(windlass_mutator_frames(self), &frame.header);

  to_space = from_space;
  memset(&from_space, 'x', sizeof from_space - 1);
  thread.size = sizeof thread;
  thread.mutator = self;
  printf("walked:");
  windlass_walk_managed(&thread, NULL, WINDLASS_GC_FUNCLET_REFERENCES, collect_frame, &moved, &outcome, NULL);
  printf("; outcome %u, %d moved\n", outcome, moved);

  windlass_pop_frame(windlass_mutator_frames(self), &frame.header);
}

void helper_throw(struct object* object) { windlass_raise(self, address(object)); }

void helper_caught(struct object* object) {
  printf("caught: %s%s\n", object->text, object == &to_space ? ", where it is now" : "");
}

/* ---- exceptions -------------------------------------------------------------------------------------------- */

static int catches(const windlass_crawl* crawl, const windlass_crawl_frame* frame, const windlass_clause* clause,
                   const windlass_thrown* thrown, void* user) {
  (void)crawl, (void)frame, (void)clause, (void)thrown, (void)user;
  return 1;
}

static void trace(const windlass_crawl* crawl, const windlass_crawl_frame* frame, const windlass_thrown* thrown,
                  void* user) {
  (void)crawl, (void)thrown, (void)user;
  printf("thrown through: %s\n", names[frame->function]);
}

int main(void) {
  windlass_runtime_callbacks callbacks = {0};
  windlass_personality personality = {0};
  windlass_explicit_frame marker = {0};
  windlass_runtime* runtime;
  int i, result;
  callbacks.size = sizeof callbacks;
  callbacks.find = find;
  personality.size = sizeof personality;
  personality.catches = catches;
  personality.trace = trace;
  if (!make_methods() || windlass_open_runtime(&callbacks, &runtime, NULL) != WINDLASS_OK ||
      windlass_open_mutator(runtime, &personality, &self, NULL) != WINDLASS_OK)
    return 1;

  marker.kind = WINDLASS_FRAME_CALLBACK; /* native code calls managed code here */
  windlass_push_frame(windlass_mutator_frames(self), &marker);
  result = outer_method();
  windlass_pop_frame(windlass_mutator_frames(self), &marker);
  printf("outer went on behind its handler: %s\n", result == 1 ? "yes" : "no");

  windlass_close_mutator(self);
  windlass_close_runtime(runtime);
  for (i = CATCH; i >= OUTER; --i) windlass_free_method(methods[i]);
  return result == 1 ? 0 : 1;
}
