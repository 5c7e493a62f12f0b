/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Every failure that there can be, one at a time: a scenario runs once clean, while its driver calls and the library's own
 * allocations are counted; then once for each of them, with that one failing, and with it and all later ones failing. */
#ifndef TESTS_SUPPORT_FAILURES_H
#define TESTS_SUPPORT_FAILURES_H

#include <stdbool.h>
#include <tarn/status.h>

extern bool injecting; /* calls may fail */

/* Whether a call succeeded; one that did not must be excused by an injected failure, or be out of memory. */
bool went_well(tarn_status status, bool may_be_full, const char *what);

#define TRY(call) went_well((call), false, #call)

struct scenario {
    const char *name;
    void (*run)(void);
    void (*settle)(void); /* checks what must hold after it, whatever failed in it, and leaves nothing behind */
};

/* Prints how many failures were injected; fails where they are fewer than the calls of the clean run. */
void each_failure_of(const struct scenario *scenario);

/* From here on nothing fails; a scenario may ask for that where it must come to its end. */
void clear_injection(void);

#endif
