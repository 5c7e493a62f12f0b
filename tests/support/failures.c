/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "support/failures.h"
#include "base/pages.h"
#include "support/host.h"

#include <inttypes.h>
#include <stdio.h>

bool injecting;

bool went_well(tarn_status status, bool may_be_full, const char *what)
{
    if (!status)
        return true;
    if (!injecting && !(may_be_full && status == TARN_ERROR_OUT_OF_MEMORY))
        status_at(status, TARN_OK, what, __FILE__, __LINE__);
    return false;
}

static uint64_t hits; /* of this run, before what is cleared */

void clear_injection(void)
{
    hits += tarn_host_fail_hits() + pages_fail_hits();
    OK(tarn_host_fail(-1, 0, false, TARN_OK));
    pages_fail(0, false);
    injecting = false;
}

static void run_clean(const struct scenario *scenario)
{
    scenario->run();
    scenario->settle();
}

/* One failing run, a clean one after it. Gives how many calls were made to fail. */
static uint64_t run_injected(const struct scenario *scenario, bool driver_calls, uint64_t nth, bool forever,
                             tarn_status status)
{
    hits = 0;
    injecting = true;
    if (driver_calls)
        OK(tarn_host_fail(-1, nth, forever, status));
    else
        pages_fail(nth, forever);
    scenario->run();
    clear_injection();
    uint64_t failed = hits;
    scenario->settle();
    run_clean(scenario);
    return failed;
}

static void count_calls(const struct scenario *scenario, uint64_t *driver_calls, uint64_t *allocations)
{
    uint64_t before = all_calls(0);
    pages_fail(UINT64_MAX, false);
    scenario->run();
    *allocations = pages_fail_calls();
    pages_fail(0, false);
    *driver_calls = all_calls(0) - before;
    scenario->settle();
}

/* Fails the nth call of a kind in every way, where a clean run makes `calls`. */
static unsigned fail_nth(const struct scenario *scenario, bool driver_calls, uint64_t n, uint64_t calls)
{
    static const tarn_status statuses[] = {TARN_ERROR_DRIVER, TARN_ERROR_OUT_OF_MEMORY, TARN_ERROR_MAPPING_LIMIT};
    unsigned injections = 0;
    for (int variant = 0; variant < (driver_calls ? 6 : 2); variant++) {
        if (run_injected(scenario, driver_calls, n, variant % 2, statuses[variant / 2])) {
            injections++;
            continue;
        }
        /* What ran before may have left less to do, as a mark that was seen to have ended: then a clean run makes less now. */
        uint64_t now[2];
        count_calls(scenario, &now[1], &now[0]);
        CHECK(n > now[driver_calls] && calls - now[driver_calls] < 4);
    }
    return injections;
}

void each_failure_of(const struct scenario *scenario)
{
    uint64_t calls = 0, allocations = 0, injections = 0;
    for (int i = 0; i < 3; i++) /* until the state before each run is the same */
        run_clean(scenario);
    count_calls(scenario, &calls, &allocations);
    for (uint64_t n = 1; n <= calls; n++)
        injections += fail_nth(scenario, true, n, calls);
    for (uint64_t n = 1; n <= allocations; n++)
        injections += fail_nth(scenario, false, n, allocations);
    printf("%-36s %4" PRIu64 " driver calls, %4" PRIu64 " allocations: %5" PRIu64 " injections\n", scenario->name,
           calls, allocations, injections);
    CHECK(injections + 6 * 4 >= 6 * calls + 2 * allocations);
}
