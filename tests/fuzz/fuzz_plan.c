/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* libFuzzer's way into the reader of plans: clang -fsanitize=fuzzer,address,undefined. Seeds:
 * corpus/plan. A checksum that is wrong is put right, so that what it covers is met too, unless the
 * highest bit of the pool's number is set. Of less than two bytes something else is opened.
 * Whatever is read must be within its own numbers; whatever is not must say why.
 *
 * Reader: src/memory/settings/plan_file.c
 */
#include "base/status.h"
#include "memory/settings/plan_file.h"

#include <endian.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void demand(bool condition)
{
    if (!condition)
        abort();
}

static void check_arena(const struct plan *plan)
{
    const struct plan_header *header = &plan->header;
    demand(header->count > 0 && header->arena > 0 && header->arena % TARN_BLOCK_UNIT == 0);
    for (uint32_t i = 0; i < header->count; i++) {
        const struct plan_request *request = &plan->requests[i];
        demand(request->size * TARN_BLOCK_UNIT > PLAN_LEAST_REQUEST);
        demand((request->offset + (uint64_t)request->size) * TARN_BLOCK_UNIT <= header->arena);
        demand(request->end > i && request->end <= header->count);
        demand(request->end <= plan->latest[i / PLAN_GROUP]);
        demand(i == 0 || plan->requests[plan->by_offset[i - 1]].offset <=
                             plan->requests[plan->by_offset[i]].offset);
    }
}

static void check(const struct plan *plan)
{
    const uint32_t arenas = plan->header.behind + 1;
    uint32_t pools = 0;
    demand(arenas <= PLAN_ARENAS_MOST);
    for (uint32_t i = 0; i < arenas; i++, plan = plan->next) {
        demand(plan && plan->header.behind == arenas - 1 - i);
        demand(plan->header.pool <= pools + 1 &&
               (!plan->header.pool || plan->header.version == PLAN_VERSION_POOLS));
        pools = plan->header.pool > pools ? plan->header.pool : pools;
        check_arena(plan);
    }
    demand(!plan);
}

/* A copy with the checksums that belong there, of each arena that has room for one and for as many
 * requests as it says, except where the pool's number asks for none. */
static uint8_t *mend(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size + 1);
    struct plan_header header;
    if (!copy)
        return NULL;
    if (size)
        memcpy(copy, data, size);
    for (size_t at = 0; size - at >= sizeof header;) {
        memcpy(&header, copy + at, sizeof header);
        uint64_t bytes = le32toh(header.count) * sizeof(struct plan_request);
        if (le32toh(header.pool) >> 31 || bytes > size - at - sizeof header)
            break;
        struct plan_request *requests = malloc(bytes + 1);
        if (!requests)
            break;
        memcpy(requests, copy + at + sizeof header, bytes);
        header.checksum = htole64(plan_checksum(&header, requests));
        memcpy(copy + at, &header, sizeof header);
        free(requests);
        at += sizeof header + bytes;
    }
    return copy;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    const struct plan *plan = NULL;
    uint8_t *repaired = mend(data, size);
    int file = memfd_create("plan", MFD_CLOEXEC);
    if (repaired && file >= 0 && write(file, repaired, size) == (ssize_t)size) {
        snprintf(path, sizeof path,
                 size > 1 ? "/proc/self/fd/%d"
                 : size   ? "/proc/self/fd"
                          : "/nowhere/%d",
                 file);
        if (plan_load("here", path, &plan) == TARN_OK)
            check(plan);
        else
            demand(strncmp(tarn_last_error(), "here: plan:/", 12) == 0 && !plan);
    }
    close(file);
    free(repaired);
    return 0;
}
