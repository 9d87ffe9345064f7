// GCC's name for leaving a function out of the sanitizers: it reads stack memory as bytes, whoever it belongs to.
#pragma once

#define WINDLASS_READS_STACKS __attribute__((no_sanitize("address"), no_sanitize("thread")))
