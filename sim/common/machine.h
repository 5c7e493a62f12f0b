/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What a test asks of the machine below a driver: the host device itself, or the one inside a
 * simulated library, which exports its own as tarn_sim_machine. Streams and graphs are named as the
 * driver names them. */
#ifndef SIM_COMMON_MACHINE_H
#define SIM_COMMON_MACHINE_H

#include <tarn/host.h>

struct machine {
    tarn_status (*ledger_get)(int device, tarn_host_ledger *ledger);
    tarn_status (*time)(uint64_t *now);
    tarn_status (*advance)(uint64_t now);
    tarn_status (*work)(int device, void *native, const void *address, size_t size,
                        uint64_t duration);
    tarn_status (*fill)(int device, void *native, void *address, int value, size_t size);
    tarn_status (*graph_launch)(int device, void *graph, void *native);
    tarn_status (*graph_destroy)(void *graph);
    /* Returns when no real work can run before the clock moves or more is queued. */
    void (*settle)(void);
    /* The vendor's calls by anyone: the `nth` from now fails (1 is the next), and with `forever`
     * all after it, with `code`; 0 clears. How many there were since that was set, and how many
     * failed. NULL on the host device, which has tarn_host_fail_set(). */
    void (*fail)(uint64_t nth, bool forever, unsigned code);
    uint64_t (*fail_calls)(void);
    uint64_t (*fail_hits)(void);
};

#endif
