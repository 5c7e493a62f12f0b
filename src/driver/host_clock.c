/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The virtual clock of driver time: what each call costs, never slept. Two tables, because what is published about CUDA
 * disagrees: A charges physical memory by the MiB as a first touch of zeroed pages does and access by the call; B takes
 * physical memory as nearly free of its size and access by the piece. A call that the tables do not name costs nothing.
 *
 * Sources: map, set_access, unmap, create of 2 MiB and reserve: kvcached's bench_vmm on an A100; event record: RMM
 * issue 448. This file keeps no state; the sums are atomic fields of the device. */
#include "driver/host.h"

#define EACH(ns) .call_ns = (ns)
#define PER_MIB(ns) .mib_ns = (ns)
#define PER_PIECE(ns) .piece_ns = (ns)

const struct host_cost host_costs[HOST_TABLES][DRIVER_CALLS] = {
    {
        [DRIVER_CALL_alloc] = {EACH(160000), PER_MIB(16000)},
        [DRIVER_CALL_create] = {EACH(160000), PER_MIB(16000)},
        [DRIVER_CALL_map] = {PER_PIECE(1500)},
        [DRIVER_CALL_set_access] = {EACH(36000)},
        [DRIVER_CALL_unmap] = {PER_PIECE(26000)},
        [DRIVER_CALL_release] = {EACH(50000)},
        [DRIVER_CALL_free] = {EACH(50000)},
        [DRIVER_CALL_reserve] = {EACH(19000)},
        [DRIVER_CALL_event_record] = {EACH(500)},
        [DRIVER_CALL_event_query] = {EACH(300)},
    },
    {
        [DRIVER_CALL_alloc] = {EACH(160000), PER_MIB(800)},
        [DRIVER_CALL_create] = {EACH(160000), PER_MIB(800)},
        [DRIVER_CALL_map] = {PER_PIECE(1500)},
        [DRIVER_CALL_set_access] = {PER_PIECE(36000)},
        [DRIVER_CALL_unmap] = {PER_PIECE(26000)},
        [DRIVER_CALL_release] = {EACH(50000)},
        [DRIVER_CALL_free] = {EACH(50000)},
        [DRIVER_CALL_reserve] = {EACH(19000)},
        [DRIVER_CALL_event_record] = {EACH(500)},
        [DRIVER_CALL_event_query] = {EACH(300)},
    },
};

void host_charge_wait(struct host_device *device, uint64_t ns)
{
    if (ns == 0)
        return;
    for (int table = 0; table < HOST_TABLES; table++)
        atomic_fetch_add_explicit(&device->time[table], ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&device->waited, ns, memory_order_relaxed);
}
