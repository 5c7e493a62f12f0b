/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* cuGetProcAddress() of the simulated libcuda. Of the prototypes with a name it returns the newest
 * one that is neither newer than the version asked for nor newer than the driver that it claims to
 * be. */
#include "cuda/sim_cuda.h"

#include <stdatomic.h>
#include <string.h>

static const struct {
    const char *name;
    int version;
    void (*function)(void);
} entries[] = {
#define X(name, version, symbol, needed, parameters) {#name, version, (void (*)(void))symbol},
    CUDA_CALL_LIST(X) CUDA_LOADER_LIST(X) SIM_CUDA_CALL_LIST(X)
#undef X
};

static atomic_uint refused;

/* How many requests were errors of the caller, which compute-sanitizer would report. */
SIM_EXPORT unsigned tarn_sim_refused_lookups(void);
unsigned tarn_sim_refused_lookups(void)
{
    return atomic_load(&refused);
}

cu_result cuGetProcAddress_v2(const char *name, void **address, int version, uint64_t flags,
                              cu_lookup_status *status)
{
    int claimed = (int)sim_cuda_version();
    bool exists = false;
    size_t best = sizeof entries / sizeof *entries;
    if (!name || !address || version > claimed || flags > 3) {
        atomic_fetch_add(&refused, 1);
        return CU_INVALID_VALUE;
    }
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        if (strcmp(entries[i].name, name) != 0)
            continue;
        exists = true;
        if (entries[i].version <= version && (best == sizeof entries / sizeof *entries ||
                                              entries[i].version > entries[best].version))
            best = i;
    }
    bool found = best != sizeof entries / sizeof *entries;
    *address = NULL;
    if (found)
        memcpy(address, &entries[best].function, sizeof *address);
    if (status)
        *status = found ? CU_LOOKUP_FOUND : exists ? CU_LOOKUP_TOO_OLD : CU_LOOKUP_NO_SYMBOL;
    return found || status ? CU_OK : CU_NOT_FOUND;
}

cu_result cuGetProcAddress(const char *name, void **address, int version, uint64_t flags)
{
    return cuGetProcAddress_v2(name, address, version, flags, NULL);
}
