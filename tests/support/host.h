/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Helpers for tests on the host device: checks that also work in a forked child, and short names
 * for questions about the device. */
#ifndef TESTS_SUPPORT_HOST_H
#define TESTS_SUPPORT_HOST_H

#include "common/machine.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tarn/host.h>
#include <tarn/tarn.h>

#define MIB ((size_t)1 << 20)

/* If `condition` is false, fails the test, or ends the child if this is one. Prints the text and
 * the last error. */
void check_at(bool condition, const char *text, const char *file, int line);
void status_at(tarn_status status, tarn_status wanted, const char *text, const char *file,
               int line);

#define CHECK(condition) check_at((condition), #condition, __FILE__, __LINE__)
#define OK(call) status_at((call), TARN_OK, #call, __FILE__, __LINE__)
#define GIVES(call, status) status_at((call), (status), #call, __FILE__, __LINE__)

/* Runs a function in a forked child, in which a failed check ends the child. Fails the test if the
 * child does not succeed within a minute. */
void in_child(void (*function)(void));
/* The same, and demands this exit status of the child. */
void in_child_that_exits(void (*function)(void), int code);
/* The same, and returns the child's status from waitpid(). */
int child_status(void (*function)(void));
/* A cmocka test that runs a function by in_child(), since what the function sets up is for a whole
 * process. */
struct child_test {
    void (*function)(void);
};
void run_child_test(void **state);
#define CHILD_TEST(function) \
    ((struct CMUnitTest){#function, run_child_test, NULL, NULL, &(struct child_test){function}})

/* The machine below the driver: the host device, or the one inside the simulated library that
 * host_start_with() opened. */
extern const struct machine *machine;

/* Configures the host device, before the first use. With TARN_DRIVER=cuda or hip, the one in the
 * simulated library. */
void host_start_with(int devices, size_t memory);

tarn_host_ledger ledger_of(int device);
tarn_stats stats_of(int device);
/* The number of driver calls of a kind, such as "unmap", on a device since the start. */
uint64_t calls_of(int device, const char *kind);
uint64_t all_calls(int device);
int kind_of(const char *name);

uint64_t time_now(void);
void time_pass(uint64_t ns);
void *native_of(tarn_stream stream);
tarn_stream lease(int device);
/* Creates a driver's stream that tarn does not know. It stays until the process ends. */
void *native_made(int device);
/* Queues work on a stream that uses memory. It ends `ns` from now, or after the work that is queued
 * before it. */
void work_on(tarn_stream stream, const void *address, size_t size, uint64_t ns);

void *alloc_on(tarn_stream stream, size_t size);
/* Sizes of a pool's segments: SIZES(.rounding = 512). */
#define SIZES(...) (&(tarn_segment_sizes){.size = sizeof(tarn_segment_sizes), __VA_ARGS__})
/* pool_with(): a pool with these options, whose `size` need not be set. The others: a block of it,
 * and its statistics. */
tarn_pool *pool_with(tarn_pool_options options);
void *alloc_in(tarn_pool *pool, tarn_stream stream, size_t size);
tarn_stats pool_stats_of(tarn_pool *pool);
tarn_pool_info pool_info_of(tarn_pool *pool);
size_t usable_size(const void *pointer);

/* The heap of a stream in the default pool, which is created if needed. */
struct stream;
struct heap;
tarn_status default_heap(struct stream *stream, struct heap **heap);

/* Checks the invariants of a device's memory, and its counters against the driver's ledger. Nothing
 * else may run meanwhile. */
void verify(int device);
/* Ends all work, trims, and demands that no block, no memory and no count is left. */
void nothing_is_left(int device);

/* Bytes of tarn's metadata without the page map. The page map keeps 256 KiB for every 2 GiB of
 * addresses in which memory ever lay, and the addresses depend on the machine. A leak shows in the
 * rest. */
uint64_t metadata_bytes(void);

/* How many files the process has open. */
int open_files(void);

/* xorshift64. */
uint64_t random_next(uint64_t *state);

#endif
