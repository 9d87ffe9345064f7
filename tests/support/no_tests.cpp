// A program without tests, whose precompiled headers the others use.
