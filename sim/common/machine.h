/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What a test can ask the machine below a driver. That is the host device itself, or the one inside
 * a simulated library, which exports its own as tarn_sim_machine. Streams and graphs are named as
 * the driver names them. */
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
    /* Returns when no queued work can run until the clock moves or more work is queued. */
    void (*settle)(void);
    /* Makes the library's calls fail, in any thread: the `nth` from now (1 is the next), and with
     * `forever` all after it, return `code`. 0 clears. calls() and hits(): how many calls there
     * were since then, and how many of them failed. NULL on the host device, which has
     * tarn_host_fail_set(). */
    void (*fail)(uint64_t nth, bool forever, unsigned code);
    uint64_t (*fail_calls)(void);
    uint64_t (*fail_hits)(void);
};

#endif
