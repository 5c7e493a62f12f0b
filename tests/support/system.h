/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Calls of the C library that the library makes, so that they can be made to fail. In what is
 * linked into a test, the linker directs each of these calls to here (-Wl,--wrap:
 * tests/CMakeLists.txt). The tests' own calls go the same way. */
#ifndef TESTS_SUPPORT_SYSTEM_H
#define TESTS_SUPPORT_SYSTEM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

int system_ways(void);
void system_arm(uint64_t nth, bool forever, int way);
uint64_t system_calls(void);
uint64_t system_hits(void);

/* True if a text names a library or a symbol that this thread was made not to find since the
 * failure was armed. */
bool system_failure_named(const char *text);

/* In the third way, dlsym() finds what this function returns instead of the library's symbol. NULL:
 * it finds nothing, as in the other ways. */
extern void *(*system_instead)(const char *symbol);

/* Called before each dlopen(), dlsym() and dladdr(), in the thread that makes the call; may be
 * NULL. */
extern void (*_Atomic system_at_loader)(void);

/* Limits the failures to these names, separated by spaces; NULL: all calls. */
void system_only(const char *names);

/* Runs a function in a new thread, whose start never fails and is not counted. */
void system_in_thread(void (*run)(void));

#endif
