/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Makes every possible failure happen, one at a time. A scenario first runs without failures, while
 * its calls of each kind are counted. Then it runs once for each of these calls, with that one
 * failing, and with it and all later ones failing, in each way that matters.
 *
 * The number of calls of each scenario is printed and held: tests/support/injections.txt has the
 * numbers by the name of the test (TARN_TEST, which CTest sets), and a scenario that makes notably
 * fewer calls is red. `scripts/injections --write` writes the file. If all failures would take
 * long, only every n-th call fails, unless TARN_FAILURES=all. */
#ifndef TESTS_SUPPORT_FAILURES_H
#define TESTS_SUPPORT_FAILURES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tarn/status.h>

/* ---- One failure ---- */

/* What can be made to fail:
 *   driver  calls of the host device, or of the simulated vendor's library if the driver is CUDA or
 *           HIP
 *   memory  the library's own allocations
 *   system  calls of the C library: system.h
 *   handle  calls of the simulated libraries with handles */
#define FAILURE_KIND_LIST(X) X(driver) X(memory) X(system) X(handle)
enum failure_kind {
#define X(kind) FAIL_##kind,
    FAILURE_KIND_LIST(X)
#undef X
        FAILURE_KINDS
};

#define FAILURE_LOSS (-1)

struct failure {
    enum failure_kind kind;
    uint64_t nth;
    bool forever;
    /* the error: 0 to failure_ways() - 1; or FAILURE_LOSS, for the driver only: the device is
     * lost */
    int way;
};

/* In how many ways a call of a kind can fail; 0 if there is no such call. */
int failure_ways(enum failure_kind kind);
/* Makes the nth call from now on fail, counted over all threads. UINT64_MAX only counts. */
void failure_arm(const struct failure *failure);
void failure_clear(void);
/* failure_calls(): calls of the kind that was armed last, since then, or until it was cleared.
 * failure_hits(): those that failed. */
uint64_t failure_calls(void);
uint64_t failure_hits(void);

/* ---- Scenarios ---- */

extern bool injecting; /* calls may fail */
/* a driver was loaded meanwhile: a function that it did not find is TARN_ERROR_NOT_SUPPORTED from
 * then on */
extern bool found_less;

/* True if a call succeeded. If it failed, that must be explained by an injected failure, a lost
 * device or, with `may_be_full`, lack of memory. */
bool went_well(tarn_status status, bool may_be_full, const char *what);

#define TRY(call) went_well((call), false, #call)

/* True if a text about a shortage is complete, or is a beginning that says that it is cut, because
 * there was no memory for it. */
bool is_whole_shortage(const char *text);

struct scenario {
    const char *name;
    void (*run)(void);
};

/* What a list of scenarios shares. Each scenario runs in processes of its own, children of one that
 * never used tarn: one process, and another one after each failure that the device did not
 * survive. */
struct scenarios {
    void (*set_up)(void);
    /* runs after each run: checks what must hold whatever failed, and leaves nothing behind */
    void (*settle)(void);
    /* the same after a loss of the device: blocks can be freed. NULL: losses are not tried */
    void (*lost)(void);
    unsigned without; /* kinds that are not tried, as 1 << FAIL_... */
    /* about how many failures of a kind to try in a scenario; 0: as many as take a second */
    uint64_t most;
    /* the number of calls depends on threads in the background: half of it is enough */
    bool varies;
};

/* Sets the simulated library, from dlopen(), whose calls are of the kind "handle". */
void failure_library(void *library);

/* Runs the scenarios, and prints how many failures were injected. Fails if there were fewer than
 * the calls of the run without failures. */
void each_failure_of(const struct scenarios *scenarios, const struct scenario *list, size_t count);

/* Ends the failures. A scenario may call it where it must come to its end. What was lost stays
 * lost. */
void clear_injection(void);
bool device_is_lost(void);

/* ---- What a process does once ---- */

/* A scenario that a process can run only once. Each attempt is a process of its own, a child of one
 * that never used tarn. */
struct once {
    const char *name;
    void (*before)(void); /* runs without failures; may be NULL */
    void (*run)(void);
    void (*after)(void); /* runs without failures and checks what must hold; may be NULL */
    unsigned without;    /* kinds that are not tried, as 1 << FAIL_... */
    uint64_t most;       /* about how many failures of a kind to try */
    bool varies;         /* as in struct scenarios */
};

/* Does for it what each_failure_of() does. */
void each_failure_of_once(const struct once *once);

/* The failure that is being tried, or was until it was cleared. Its `nth` is UINT64_MAX while calls
 * are only counted. */
const struct failure *failure_tried(void);
bool failure_is_tried(void);

#endif
