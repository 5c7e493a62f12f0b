/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Memory that grows, is mapped anew, and goes back to the last byte: what the driver calls free is
 * the same before and after. A block that grows in place. Failures that are real: a request larger
 * than the device, and a limit. What a first growth by 1 GiB takes, beside the driver's own calls
 * for one piece. */
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS 24 /* even */
/* More than the smallest piece that tarn makes, so that a free one has whole pieces. */
#define BLOCK (32 * MIB)
#define LARGE (64 * MIB)
#define SLACK (4 * MIB) /* what the driver itself may take meanwhile */
#define WHOLE (1024 * MIB)
#define ROUNDS 15
/* A device of this many times WHOLE has WHOLE as one piece, also when other programs have some of
 * it. */
#define WHOLE_PART 72

static int64_t reserved(void)
{
    tarn_stats stats = {.size = sizeof stats};
    return OK("memory", tarn_device_stats_get(0, &stats))
               ? stats.reserved_bytes[TARN_STAT_ALL].current
               : -1;
}

static bool patterns(const char *name, tarn_stream stream, void **blocks, size_t count, size_t size)
{
    bool well = true;
    for (size_t i = 0; well && i < count; i++)
        well = gpu_fill(stream, blocks[i], size, (uint32_t)i + 1, 0);
    return well && gpu_holds(name, stream, blocks, count, size, 1);
}

/* Three blocks side by side: the first grows as far as the second was, whose memory has work of the
 * stream before it, and no further. */
static void extend(tarn_stream stream)
{
    const char *name = "memory: a block that grows in place";
    void *blocks[3] = {NULL};
    bool well = true;
    for (size_t i = 0; well && i < COUNT(blocks); i++)
        well = OK(name, tarn_alloc_on(stream, BLOCK, &blocks[i]));
    well = well && patterns(name, stream, blocks, COUNT(blocks), BLOCK);
    bool adjacent = (char *)blocks[1] == (char *)blocks[0] + BLOCK &&
                    (char *)blocks[2] == (char *)blocks[1] + BLOCK;
    well = well && adjacent && tarn_extend(blocks[0], 2 * BLOCK) == TARN_ERROR_NO_ROOM &&
           gpu_fill(stream, blocks[1], BLOCK, 50, 1000000) && OK(name, tarn_free(blocks[1])) &&
           tarn_extend(blocks[0], 2 * BLOCK + 1) == TARN_ERROR_NO_ROOM &&
           OK(name, tarn_extend(blocks[0], 2 * BLOCK)) &&
           gpu_fill(stream, blocks[1], BLOCK, 2, 0) &&
           gpu_holds(name, stream, blocks, COUNT(blocks), BLOCK, 1) &&
           tarn_extend(blocks[0], 2 * BLOCK + 1) == TARN_ERROR_NO_ROOM &&
           OK(name, tarn_free(blocks[0]));
    blocks[1] = NULL;
    void *again = NULL; /* it went back as a whole */
    well = well && OK(name, tarn_alloc_on(stream, 2 * BLOCK, &again)) && again == blocks[0] &&
           OK(name, tarn_free(again)) && OK(name, tarn_free(blocks[2]));
    gpu_verdict(well, name,
                adjacent ? "from 32 to 64 MiB, with its contents; refused where a block follows"
                         : "blocks are not side by side");
}

/* Every second block goes, and larger ones come that fit nowhere between: their memory must be
 * mapped anew. */
static void remap(tarn_stream stream, void **blocks)
{
    const char *name = "memory: mapped anew";
    void *large[BLOCKS * BLOCK / LARGE / 2] = {NULL};
    char text[160];
    int64_t before = reserved();
    bool well = OK(name, tarn_device_limit_set(0, (size_t)before + 2 * LARGE));
    for (size_t i = 0; well && i < BLOCKS; i += 2) {
        well = OK(name, tarn_free(blocks[i]));
        blocks[i] = NULL;
    }
    for (size_t i = 0; well && i < COUNT(large); i++)
        well = OK(name, tarn_alloc_on(stream, LARGE, &large[i]));
    well = well && patterns(name, stream, large, COUNT(large), LARGE);
    snprintf(
        text, sizeof text,
        "%zu blocks of %zu MiB where every second one of 32 MiB was; reserved %lld, then %lld MiB",
        COUNT(large), LARGE / MIB, (long long)(before >> 20), (long long)(reserved() >> 20));
    gpu_verdict(well, name, text);
    for (size_t i = 0; i < COUNT(large); i++)
        (void)OK(name, tarn_free(large[i]));
    (void)OK(name, tarn_device_limit_set(0, TARN_NO_LIMIT));
}

static void too_much(tarn_stream stream)
{
    const char *name = "memory: more than there is";
    void *block = NULL;
    tarn_status status = tarn_alloc_on(stream, gpu_properties.memory + LARGE, &block);
    gpu_verdict(status == TARN_ERROR_OUT_OF_MEMORY && !block, name, tarn_status_name(status));
    if (OK(name, tarn_alloc_on(stream, LARGE, &block)))
        (void)OK(name, tarn_free(block));

    name = "memory: a limit";
    if (!OK(name, tarn_device_trim(0, 0)) || !OK(name, tarn_device_limit_set(0, LARGE)))
        return;
    status = tarn_alloc_on(stream, 2 * LARGE, &block);
    gpu_verdict(status == TARN_ERROR_OUT_OF_MEMORY, name, tarn_status_name(status));
    (void)OK(name, tarn_device_limit_set(0, TARN_NO_LIMIT));
}

/* The least time that creating, mapping and opening one piece of WHOLE takes. */
static bool own_calls(const char *name, uint64_t *least)
{
    const struct cu_allocation_properties properties = {
        .type = CU_ALLOCATION_PINNED, .location = {.type = CU_LOCATION_DEVICE, .id = 0}};
    const struct cu_access access = {.location = {.type = CU_LOCATION_DEVICE, .id = 0},
                                     .flags = CU_ACCESS_READ_WRITE};
    cu_address range = 0;
    cu_piece piece = 0;
    if (!CU(name, gpu.cuMemAddressReserve(&range, WHOLE, 0, 0, 0)))
        return false;
    uint64_t from = gpu_ns();
    bool well = CU(name, gpu.cuMemCreate(&piece, WHOLE, &properties, 0)) &&
                CU(name, gpu.cuMemMap(range, WHOLE, 0, piece, 0)) &&
                CU(name, gpu.cuMemSetAccess(range, WHOLE, &access, 1));
    uint64_t took = gpu_ns() - from;
    *least = took < *least ? took : *least;
    return well && CU(name, gpu.cuMemUnmap(range, WHOLE)) && CU(name, gpu.cuMemRelease(piece)) &&
           CU(name, gpu.cuMemAddressFree(range, WHOLE));
}

/* The same of tarn, from nothing. */
static bool first_growth(const char *name, tarn_stream stream, uint64_t *least)
{
    void *block = NULL;
    uint64_t from = gpu_ns();
    bool well = OK(name, tarn_alloc_on(stream, WHOLE, &block));
    uint64_t took = gpu_ns() - from;
    *least = took < *least ? took : *least;
    return well && OK(name, tarn_free(block)) && OK(name, tarn_device_synchronize(0)) &&
           OK(name, tarn_device_trim(0, 0));
}

static void whole(tarn_stream stream)
{
    const char *name = "memory: first growth by 1 GiB";
    uint64_t own = UINT64_MAX, tarn = UINT64_MAX;
    char text[160];
    bool well = gpu_properties.memory > 2 * WHOLE;
    if (!well) {
        gpu_say(GPU_SKIP, name, "the device has too little memory");
        return;
    }
    for (int i = 0; well && i < ROUNDS; i++)
        well = own_calls(name, &own) && first_growth(name, stream, &tarn);
    if (!well)
        return;
    snprintf(text, sizeof text, "tarn %.1f us; one piece created, mapped and opened %.1f us; %.2f",
             (double)tarn / 1e3, (double)own / 1e3, (double)tarn / (double)own);
    if (gpu_properties.memory / WHOLE_PART < WHOLE)
        gpu_say(GPU_NOTE, name, "%s", text);
    else
        gpu_verdict((double)tarn <= 1.3 * (double)own, name, text);
}

int main(void)
{
    int status = gpu_start();
    if (status)
        return status;
    tarn_stream stream = 0;
    void *blocks[BLOCKS] = {NULL}, *first = NULL;
    char text[160];
    gpu_say(GPU_NOTE, "memory", "%s, %zu MiB, granule %zu KiB, virtual memory %s",
            gpu_properties.name, gpu_properties.memory / MIB, gpu_properties.granule / 1024,
            gpu_properties.virtual_memory ? "yes" : "no");

    /* The driver's own first-time costs are not ours. */
    if (!OK("memory", tarn_stream_lease(0, 0, &stream)) ||
        !OK("memory", tarn_alloc_on(stream, LARGE, &first)) ||
        !patterns("memory", stream, &first, 1, LARGE) || !OK("memory", tarn_free(first)) ||
        !OK("memory", tarn_device_trim(0, 0)))
        return gpu_end();
    size_t before = gpu_free_bytes();
    gpu_verdict(reserved() == 0, "memory: trim to zero", "after the first block");

    bool well = true;
    for (size_t i = 0; well && i < BLOCKS; i++)
        well = OK("memory: growth", tarn_alloc_on(stream, BLOCK, &blocks[i]));
    well = well && patterns("memory: growth", stream, blocks, BLOCKS, BLOCK);
    size_t grown = before - gpu_free_bytes();
    snprintf(text, sizeof text,
             "%d blocks of 32 MiB: tarn reserved %lld MiB, the driver says %zu MiB", BLOCKS,
             (long long)(reserved() >> 20), grown / MIB);
    gpu_verdict(well && grown >= BLOCKS * BLOCK && grown <= (size_t)reserved() + SLACK,
                "memory: growth", text);

    remap(stream, blocks);
    for (size_t i = 0; i < BLOCKS; i++)
        (void)OK("memory", tarn_free(blocks[i]));
    (void)OK("memory", tarn_device_trim(0, 0));
    whole(stream);
    extend(stream);
    too_much(stream);

    (void)OK("memory", tarn_device_synchronize(0));
    (void)OK("memory", tarn_device_trim(0, 0));
    size_t after = gpu_free_bytes();
    snprintf(text, sizeof text, "reserved %lld; free before %zu, after %zu bytes",
             (long long)reserved(), before, after);
    gpu_verdict(reserved() == 0 && after + SLACK >= before, "memory: all goes back", text);
    (void)OK("memory", tarn_stream_return(stream));
    (void)OK("memory", tarn_shutdown());
    return gpu_end();
}
