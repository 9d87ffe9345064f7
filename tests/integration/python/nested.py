"""Three functions, each in the next. With the path of libwindlass-symbols.so, the innermost prints its own stack."""
import ctypes
import sys
import time


def innermost(library):
    if library:
        ctypes.CDLL(library).windlass_print_stack(1)
    else:
        print("READY", flush=True)
        time.sleep(1000)


def middle(library):
    innermost(library)


def outermost(library):
    middle(library)


outermost(sys.argv[1] if len(sys.argv) > 1 else None)
