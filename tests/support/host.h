/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the tests that run on the host device share: checks that also work in a forked child, and
 * short names for what they ask of the device. */
#ifndef TESTS_SUPPORT_HOST_H
#define TESTS_SUPPORT_HOST_H

#include "common/machine.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tarn/host.h>
#include <tarn/tarn.h>

#define MIB ((size_t)1 << 20)

/* Fails the test, or in a forked child ends it, with the text and the last error. */
void check_at(bool condition, const char *text, const char *file, int line);
void status_at(tarn_status status, tarn_status wanted, const char *text, const char *file,
               int line);

#define CHECK(condition) check_at((condition), #condition, __FILE__, __LINE__)
#define OK(call) status_at((call), TARN_OK, #call, __FILE__, __LINE__)
#define GIVES(call, status) status_at((call), (status), #call, __FILE__, __LINE__)

/* Runs a function in a forked child, where a failed check ends the child. Fails the test when the
 * child does not end well within a minute. */
void in_child(void (*function)(void));
/* The same, and the child must end with this exit status. */
void in_child_that_exits(void (*function)(void), int code);
/* The same; gives what waitpid() says of the child. */
int child_status(void (*function)(void));
/* One of cmocka's unit tests: runs a function in_child(), since what it sets up counts for its
 * process. */
struct child_test {
    void (*function)(void);
};
void run_child_test(void **state);
#define CHILD_TEST(function) \
    ((struct CMUnitTest){#function, run_child_test, NULL, NULL, &(struct child_test){function}})

/* What is below the driver: the host device, or the one inside the simulated library that
 * host_start_with() opened. */
extern const struct machine *machine;

/* Configures the host device; before the first use. With TARN_DRIVER=cuda or hip, the one of the
 * simulated library. */
void host_start_with(int devices, size_t memory);

tarn_host_ledger ledger_of(int device);
tarn_stats stats_of(int device);
/* The number of driver calls of a kind, "unmap", on a device since the start. */
uint64_t calls_of(int device, const char *kind);
uint64_t all_calls(int device);
int kind_of(const char *name);

uint64_t time_now(void);
void time_pass(uint64_t ns);
void *native_of(tarn_stream stream);
tarn_stream lease(int device);
/* A stream of the driver that tarn has not heard of; left to the end of the process. */
void *native_made(int device);
/* Queues work on a stream that uses memory and ends `ns` from now, or after what is queued before
 * it. */
void work_on(tarn_stream stream, const void *address, size_t size, uint64_t ns);

void *alloc_on(tarn_stream stream, size_t size);
/* Sizes of a pool's segments: SIZES(.rounding = 512). */
#define SIZES(...) (&(tarn_segment_sizes){.size = sizeof(tarn_segment_sizes), __VA_ARGS__})
/* A pool with these options, whose size need not be set; a block of it; its statistics. */
tarn_pool *pool_with(tarn_pool_options options);
void *alloc_in(tarn_pool *pool, tarn_stream stream, size_t size);
tarn_stats pool_stats_of(tarn_pool *pool);
tarn_pool_info pool_info_of(tarn_pool *pool);
size_t usable_size(const void *pointer);

/* The heap of a stream in the default pool, made if need be. */
struct stream;
struct heap;
tarn_status default_heap(struct stream *stream, struct heap **heap);

/* The invariants of a device's memory; its counters against the driver's ledger. Nothing else may
 * run. */
void verify(int device);
/* Ends all work, trims, and demands that nothing is left: of blocks, of memory, in the counters. */
void nothing_is_left(int device);

/* Bytes of tarn's metadata, without the page map: that keeps 256 KiB for every 2 GiB of addresses
 * in which memory ever lay, and which those are is up to the machine. What leaks is seen in the
 * rest. */
uint64_t metadata_bytes(void);

/* How many files the process has open. */
int open_files(void);

/* xorshift64. */
uint64_t random_next(uint64_t *state);

#endif
