// Where there is no Zydis.
#include "winx64/instruction_length.h"

unsigned windlass::winx64::instruction_length(ByteView) { return 0; }
