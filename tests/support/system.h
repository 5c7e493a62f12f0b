/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Calls of the C library that the library makes, to be failed: the linker leads each of these, in
 * what is linked into a test, here (-Wl,--wrap: tests/CMakeLists.txt). The tests' own go the same
 * way. */
#ifndef TESTS_SUPPORT_SYSTEM_H
#define TESTS_SUPPORT_SYSTEM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

int system_ways(void);
void system_arm(uint64_t nth, bool forever, int way);
uint64_t system_calls(void);
uint64_t system_hits(void);

/* Whether a text names a library or a symbol that this thread was made not to find since it was
 * armed. */
bool system_failure_named(const char *text);

/* In the third way dlsym() finds what this gives in place of the library's function; NULL, as it
 * is: nothing, as in the others. */
extern void *(*system_instead)(const char *symbol);

/* Called before each dlopen(), dlsym() and dladdr(), by the thread that is about to make it; NULL:
 * nothing is. */
extern void (*_Atomic system_at_loader)(void);

/* Only these, by name, with spaces between; NULL: all. */
void system_only(const char *names);

/* Runs a function in a thread of its own, whose start never fails and is not counted. */
void system_in_thread(void (*run)(void));

#endif
