// What compiled code calls. All are called in managed mode, with the thread first.
#pragma once

#include "runtime.h"

namespace lilt::helpers {

enum Trap : Word { kNull, kBounds, kDivision, kTraps };

Word allocate(Thread* thread, const TypeInfo* type, Word length);
Word join(Thread* thread, Word left, Word right);
Word equal(Thread* thread, Word left, Word right);
Word text(Thread* thread, Word value, Word kind);
Word substring(Thread* thread, Word string, Word from, Word length);
Word character(Thread* thread, Word string, Word at);
Word print(Thread* thread, Word value, Word kind);
Word sort(Thread* thread, Word array, Word closure);
Word parallel(Thread* thread, Word count, Word closure);
Word collect(Thread* thread);
Word depth(Thread* thread);
Word clock(Thread* thread);
void poll(Thread* thread);
void tier_up(Thread* thread, Cell* cell);
[[noreturn]] void trap(Thread* thread, Word trap);
[[noreturn]] void throw_object(Thread* thread, Word object);
[[noreturn]] void throw_again(Thread* thread);

}  // namespace lilt::helpers
