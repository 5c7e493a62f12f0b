/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Every failure that there can be, one at a time: a scenario runs once clean, while the calls of
 * each kind in it are counted; then once for each of them, with that one failing, and with it and
 * all later ones failing, in every way that matters.
 *
 * How many calls each scenario makes is printed, and held: injections.txt has the numbers, by the
 * name of the test (TARN_TEST, which CTest sets), and one that makes notably fewer is red.
 * `scripts/injections --write` writes it. Where a run of all would be long, it takes only every
 * n-th call, unless TARN_FAILURES=all. */
#ifndef TESTS_SUPPORT_FAILURES_H
#define TESTS_SUPPORT_FAILURES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tarn/status.h>

/* ---- One failure ---- */

/* What can be made to fail:
 *   driver  calls of the host device, or, where the driver is CUDA or HIP, of the simulated
 *           vendor's library
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
    int way; /* which error: 0 to failure_ways() - 1; or FAILURE_LOSS, of the driver alone: the
                device is lost */
};

/* How many ways a call of a kind can fail in; 0 where there is no such call. */
int failure_ways(enum failure_kind kind);
/* The nth call from now on fails, counted over all threads; UINT64_MAX only counts. */
void failure_arm(const struct failure *failure);
void failure_clear(void);
/* Of the kind that was armed last, since then, or until it was cleared. */
uint64_t failure_calls(void);
uint64_t failure_hits(void);

/* ---- Scenarios ---- */

extern bool injecting;  /* calls may fail */
extern bool found_less; /* a driver was loaded while they did: what it did not find is
                           TARN_ERROR_NOT_SUPPORTED from then on */

/* Whether a call succeeded; one that did not must be excused by an injected failure, a device that
 * was lost, or be out of memory. */
bool went_well(tarn_status status, bool may_be_full, const char *what);

#define TRY(call) went_well((call), false, #call)

/* Whether a text of a shortage is all of it; or, where there was no memory for it, the beginning,
 * and a sign that there is more. */
bool is_whole_shortage(const char *text);

struct scenario {
    const char *name;
    void (*run)(void);
};

/* What scenarios share. Each runs in processes of its own, children of one that never used tarn:
 * one, and one more after each failure that the device did not survive. */
struct scenarios {
    void (*set_up)(void);
    void (*settle)(void); /* after each run: checks what must hold, whatever failed in it, and
                             leaves nothing behind */
    void (*lost)(void);   /* the same where the device was lost: blocks can be freed. NULL: losses
                             are not tried */
    unsigned without;     /* 1 << FAIL_...: of kinds that are not tried */
    uint64_t most;        /* failures of a kind in a scenario, or about so many; 0: as many as take
                             a second */
    bool varies; /* how many calls there are depends on what threads in the background are about:
                    half is enough */
};

/* The simulated library, as dlopen() gave it, whose calls are of the kind "handle". */
void failure_library(void *library);

/* Prints how many failures were injected; fails where they are fewer than the calls of the clean
 * run. */
void each_failure_of(const struct scenarios *scenarios, const struct scenario *list, size_t count);

/* From here on nothing fails; a scenario may ask for that where it must come to its end: but what
 * was lost stays so. */
void clear_injection(void);
bool device_is_lost(void);

/* ---- What a process does once ---- */

/* Each attempt is a process of its own, child of one that never used tarn. */
struct once {
    const char *name;
    void (*before)(void); /* nothing fails yet; or NULL */
    void (*run)(void);
    void (*after)(void); /* nothing fails any more: checks what must hold; or NULL */
    unsigned without;    /* 1 << FAIL_...: of kinds that are not tried */
    uint64_t most;       /* failures of a kind, or about so many */
    bool varies;         /* as above */
};

/* The same as each_failure_of() for it. */
void each_failure_of_once(const struct once *once);

/* The failure that is tried, or was until it was cleared; its nth is UINT64_MAX where calls are
 * only counted. */
const struct failure *failure_tried(void);
bool failure_is_tried(void);

#endif
