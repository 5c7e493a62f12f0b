/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Makes plans. Time in a plan is counted in planned requests, as the library counts them when it follows one: a block lives from its own
 * request to the first that comes after it was given back, with what other streams did to it. */
#include "replay/plan_make.h"
#include "replay/least.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t rounded(uint64_t size)
{
    return (size + TARN_BLOCK_UNIT - 1) / TARN_BLOCK_UNIT * TARN_BLOCK_UNIT;
}

/* The stream that asks for most bytes in the default pool. */
static bool find_stream(const struct workload *workload, uint32_t *stream)
{
    uint64_t *bytes = calloc(workload->stream_count + 1, sizeof *bytes);
    if (!bytes)
        return false;
    *stream = 0;
    for (size_t i = 0; i < workload->block_count; i++) {
        const struct workload_block *block = &workload->blocks[i];
        uint64_t *sum = &bytes[block->stream];
        if (block->pool == 0 && __builtin_add_overflow(*sum, block->size, sum))
            *sum = UINT64_MAX;
    }
    for (size_t i = 0; i < workload->stream_count; i++)
        if (bytes[i] > bytes[*stream])
            *stream = (uint32_t)i;
    free(bytes);
    return true;
}

/* The blocks that are planned, in the order of their requests. */
struct selection {
    const struct workload *workload;
    uint32_t stream, count;
    uint32_t *numbers;            /* by block of the workload: its request, or WORKLOAD_NO_BLOCK */
    struct packing_block *blocks; /* by request */
};

static bool is_rest(const struct selection *selection, uint32_t number)
{
    const struct workload_block *block = &selection->workload->blocks[number];
    return block->stream == selection->stream && block->pool == 0 && rounded(block->size) <= PLAN_LEAST_REQUEST;
}

static void select_block(struct selection *selection, uint32_t number)
{
    const struct workload_block *block = &selection->workload->blocks[number];
    if (block->stream != selection->stream || block->pool != 0 || rounded(block->size) <= PLAN_LEAST_REQUEST)
        return;
    selection->numbers[number] = selection->count;
    selection->blocks[selection->count] =
        (struct packing_block){.size = rounded(block->size), .start = selection->count, .end = UINT32_MAX};
    selection->count++;
}

static void select_blocks(struct selection *selection)
{
    const struct workload *workload = selection->workload;
    for (size_t i = 0; i < workload->block_count; i++)
        selection->numbers[i] = WORKLOAD_NO_BLOCK;
    for (size_t i = 0; i < workload->initial_count; i++)
        select_block(selection, (uint32_t)i);
    for (size_t i = 0; i < workload->op_count; i++) {
        const struct workload_op *op = &workload->ops[i];
        if (op->action == WORKLOAD_ALLOC)
            select_block(selection, op->block);
        else if (op->action == WORKLOAD_COMPLETED && selection->numbers[op->block] != WORKLOAD_NO_BLOCK)
            selection->blocks[selection->numbers[op->block]].end = selection->count;
    }
    for (uint32_t i = 0; i < selection->count; i++)
        if (selection->blocks[i].end > selection->count)
            selection->blocks[i].end = selection->count;
}

static bool make(struct selection *selection, uint64_t effort, const struct packing_limits *limits,
                 struct plan_draft *draft, char *error, size_t error_size)
{
    const uint64_t most = UINT32_MAX * (uint64_t)TARN_BLOCK_UNIT;
    struct packing_limits search = *limits;
    bool done = packing_solve(selection->blocks, selection->count, effort, &draft->found);
    search.goal = least_round_up(draft->found.bound); /* the arena is of granules */
    if (!done || !packing_improve(selection->blocks, selection->count, &search, &draft->found)) {
        snprintf(error, error_size, "there is not enough host memory");
        return false;
    }
    if (draft->found.height > most) {
        snprintf(error, error_size, "the blocks come to %" PRIu64 " bytes; a plan has at most %" PRIu64,
                 draft->found.height, most);
        return false;
    }
    for (uint32_t i = 0; i < selection->count; i++) {
        const struct packing_block *block = &selection->blocks[i];
        draft->requests[i] = (struct plan_request){(uint32_t)(block->size / TARN_BLOCK_UNIT),
                                                   (uint32_t)(block->offset / TARN_BLOCK_UNIT), block->end};
    }
    draft->header = (struct plan_header){.version = PLAN_VERSION,
                                         .count = selection->count,
                                         .arena = draft->found.height,
                                         .bound = draft->found.bound,
                                         .recorded = selection->workload->peak_requested};
    memcpy(draft->header.magic, PLAN_MAGIC, sizeof draft->header.magic);
    return true;
}

/* What the stream has of small blocks at most. */
static uint64_t rest_peak(const struct selection *selection)
{
    const struct workload *workload = selection->workload;
    uint64_t live = 0, peak = 0;
    for (size_t i = 0; i < workload->initial_count; i++)
        live += is_rest(selection, (uint32_t)i) ? rounded(workload->blocks[i].size) : 0;
    peak = live;
    for (size_t i = 0; i < workload->op_count; i++) {
        const struct workload_op *op = &workload->ops[i];
        bool begins = op->action == WORKLOAD_ALLOC;
        if ((!begins && op->action != WORKLOAD_COMPLETED) || !is_rest(selection, op->block))
            continue;
        uint64_t size = rounded(workload->blocks[op->block].size);
        live += begins ? size : -size;
        peak = live > peak ? live : peak;
    }
    return peak;
}

bool plan_draft_make(const struct workload *workload, uint64_t effort, const struct packing_limits *limits,
                     struct plan_draft *draft, char *error, size_t error_size)
{
    struct selection selection = {.workload = workload};
    *draft = (struct plan_draft){0};
    selection.numbers = calloc(workload->block_count + 1, sizeof *selection.numbers);
    selection.blocks = calloc(workload->block_count + 1, sizeof *selection.blocks);
    draft->requests = calloc(workload->block_count + 1, sizeof *draft->requests);
    bool done = selection.numbers && selection.blocks && draft->requests && find_stream(workload, &selection.stream);
    if (!done) {
        snprintf(error, error_size, "there is not enough host memory");
    } else {
        select_blocks(&selection);
        draft->stream = workload->stream_count ? workload->streams[selection.stream] : 0;
        done = selection.count > 0 && selection.count <= PLAN_REQUESTS_MOST;
        if (!done)
            snprintf(error, error_size,
                     "device %d has %" PRIu32 " requests above %zu bytes on one stream; a plan has 1 to %u",
                     workload->device, selection.count, PLAN_LEAST_REQUEST, PLAN_REQUESTS_MOST);
    }
    done = done && make(&selection, effort, limits, draft, error, error_size);
    draft->rest = done ? rest_peak(&selection) : 0;
    free(selection.numbers);
    free(selection.blocks);
    if (!done)
        plan_draft_finish(draft);
    return done;
}

void plan_draft_finish(struct plan_draft *draft)
{
    free(draft->requests);
    *draft = (struct plan_draft){0};
}

/* The plan as the file has it. */
static bool write_stream(const struct plan_draft *draft, FILE *out)
{
    const struct plan_header *header = &draft->header;
    struct plan_header encoded = {.version = htole32(header->version),
                                  .count = htole32(header->count),
                                  .arena = htole64(header->arena),
                                  .small = htole64(header->small),
                                  .bound = htole64(header->bound),
                                  .recorded = htole64(header->recorded)};
    struct plan_request *requests = calloc(header->count, sizeof *requests);
    if (!requests)
        return false;
    memcpy(encoded.magic, header->magic, sizeof encoded.magic);
    for (uint32_t i = 0; i < header->count; i++)
        requests[i] = (struct plan_request){htole32(draft->requests[i].size), htole32(draft->requests[i].offset),
                                            htole32(draft->requests[i].end)};
    encoded.checksum = htole64(plan_checksum(&encoded, requests));
    bool done = fwrite(&encoded, sizeof encoded, 1, out) == 1 &&
                fwrite(requests, sizeof *requests, header->count, out) == header->count && fflush(out) == 0;
    free(requests);
    return done;
}

bool plan_draft_write(const struct plan_draft *draft, const char *path, char made[PLAN_PATH_MOST], char *error,
                      size_t error_size)
{
    int length = snprintf(made, PLAN_PATH_MOST, "%s.XXXXXX", path);
    int file = length < PLAN_PATH_MOST ? mkstemp(made) : -1;
    FILE *out = file >= 0 ? fdopen(file, "wb") : NULL;
    mode_t mask = umask(0);
    umask(mask);
    bool done = out && fchmod(file, 0666 & ~mask) == 0 && write_stream(draft, out);
    int reason = errno;
    if (out && fclose(out) && done) {
        reason = errno;
        done = false;
    }
    if (!out && file >= 0)
        close(file);
    if (done)
        return true;
    snprintf(error, error_size, "%s cannot be written: %s", path,
             length < PLAN_PATH_MOST ? strerror(reason) : "its name is too long");
    if (file >= 0)
        unlink(made);
    return false;
}
