/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What ends pooling: libraries that export or register memory without the driver's knowledge, and
 * processes that MPI has started. The loader counts what it loads, so the list of libraries is read
 * only when that count has changed. */
#include "pool.h"

#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const libraries[] = {
    "libmpi",     "libucp.so",     "libuct.so",    "libucm.so",    "libnccl",
    "libnvshmem", "libibverbs.so", "libfabric.so", "libgdrapi.so", "libcufile.so"};
static const char *const variables[] = {"OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMIX_RANK",
                                        "MPI_LOCALRANKID", "MV2_COMM_WORLD_SIZE"};

static int count_of(struct dl_phdr_info *info, size_t size, void *adds)
{
    (void)size;
    *(unsigned long long *)adds = info->dlpi_adds;
    return 1;
}

static int find(struct dl_phdr_info *info, size_t size, void *found)
{
    const char *slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    const char *name = slash ? slash + 1 : info->dlpi_name;
    (void)size;
    for (size_t i = 0; name && i < sizeof libraries / sizeof *libraries; i++)
        if (strncmp(name, libraries[i], strlen(libraries[i])) == 0) {
            snprintf(found, sizeof book->pool_why, "%.60s was loaded", name);
            return 1;
        }
    return 0;
}

static void look_at_variables(void)
{
    char why[sizeof book->pool_why];
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        if (getenv(variables[i])) {
            snprintf(why, sizeof why, "MPI started the process (%s)", variables[i]);
            pool_end(why);
            return;
        }
}

/* If two threads see a change, both read the list. */
bool pool_may_go_on(void)
{
    static _Atomic unsigned long long known;
    unsigned long long adds = 0;
    char why[sizeof book->pool_why];
    (void)dl_iterate_phdr(count_of, &adds);
    unsigned long long before = atomic_load_explicit(&known, memory_order_relaxed);
    if (adds == before)
        return true;
    if (!before)
        look_at_variables();
    if (dl_iterate_phdr(find, why))
        pool_end(why);
    atomic_store(&known, adds);
    return !atomic_load(&book->pool_ended);
}
