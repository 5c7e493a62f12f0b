/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The calls of a step. Each must return a status that its header names. A failure is armed around
 * the one call that is to fail, so that the test's own calls do not fail. */
#include "driver/host/host.h"
#include "mixed/model/mixed.h"

static bool quiet, armed, hit, lasting, beside_unknown;

void call_quiet(void)
{
    quiet = true;
}

static void arm(void)
{
    unsigned way = m.inject % 4, nth = 1 + m.inject / 4 % 6;
    bool forever = m.inject / 24 % 2;
    hit = false;
    lasting = forever && way;
    armed = m.inject && !quiet;
    quiet = false;
    if (!armed)
        return;
    if (way == 0)
        pages_fail(nth, forever);
    else if (machine->fail)
        machine->fail(nth, forever, 304); /* an error of the operating system */
    else if (way == 1) /* as on hardware: an event has not finished just after its record */
        MINE(tarn_host_fail_set(kind_of("event_query"), nth % 3 + 1, true, TARN_ERROR_NOT_READY));
    else if (way == 2)
        MINE(tarn_host_fail_set(-1, nth, forever, TARN_ERROR_DRIVER));
    else
        MINE(tarn_host_fail_set(kind_of(nth % 2 ? "create" : "alloc"), nth, forever,
                                TARN_ERROR_OUT_OF_MEMORY));
}

static void disarm(void)
{
    if (!armed)
        return;
    hit = pages_fail_hits() > 0;
    pages_fail(0, false);
    if (machine->fail) {
        hit |= machine->fail_hits() > 0;
        machine->fail(0, false, 0);
    } else {
        hit |= host_fail_hits() > 0;
        MINE(tarn_host_fail_set(-1, 0, false, TARN_OK));
    }
    m.count.injected += hit;
    m.injected_now |= hit;
    m.may_be_lost |= hit && lasting;
    armed = false;
}

void ask_begin(const char *name)
{
    beside_unknown = unknown_open(-1) || (m.waits_for_all && any_open(-1));
    settle();
    if (getenv("TARN_MIXED_SHOW"))
        fprintf(stderr, "    %s", name);
    arm();
}

tarn_status ask_end(const char *name, tarn_status status)
{
    disarm();
    if (getenv("TARN_MIXED_SHOW"))
        fprintf(stderr, " %s%s\n", tarn_status_name(status), hit ? " (injected)" : "");
    uint64_t promised = 0;
    SO(promised_statuses(name, &promised), "a function without a promise", "%s is in no header",
       name);
    SO(promised & BIT(status), "a status that the header does not name", "%s gave %s: %s", name,
       tarn_status_name(status), tarn_last_error());
    if (status == TARN_ERROR_DEVICE_LOST && m.may_be_lost)
        run_over(); /* only a new process can use the device again */
    captures_look();
    return status;
}

bool was_injected(void)
{
    return hit;
}

bool well(const char *name, tarn_status status, uint64_t reasons)
{
    if (status == TARN_OK)
        return true;
    m.count.refused++;
    m.count.shortages += status == TARN_ERROR_OUT_OF_MEMORY;
    if (beside_unknown) /* a wait that is forbidden by a capture that tarn does not know */
        reasons |= BIT(TARN_ERROR_CAPTURE);
    if (owner_is_missed())
        reasons |= BIT(TARN_ERROR_SYSTEM);
    SO(hit || (reasons & BIT(status)), "a call failed without a reason", "%s gave %s: %s", name,
       tarn_status_name(status), tarn_last_error());
    return false;
}

void sure(const char *name, tarn_status status)
{
    SO(status == TARN_OK, "a call failed without a reason", "%s gave %s: %s", name,
       tarn_status_name(status), tarn_last_error());
}
