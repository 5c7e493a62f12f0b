/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Reads plans. Owns the loaded plans, which are never freed. Trusts no byte of a file: in a loaded
 * plan every place is in its arena, and every end is behind its request. Whether places of blocks
 * that live at the same time overlap is not checked, because code that uses a place checks that it
 * is free. */
#include "memory/settings/plan_file.h"
#include "base/pages.h"
#include "base/status.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Atomic(const struct plan *) plan_now;

/* The file that is read, for error texts, and the start of the present arena. */
struct reading {
    const char *source, *path;
    int file;
    uint64_t size, base; /* bytes: of the file; before the arena */
};

static __attribute__((format(printf, 2, 3))) tarn_status refuse(const struct reading *reading,
                                                                const char *format, ...)
{
    char what[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return failed(TARN_ERROR_CONFIGURATION, "%s: plan:%s: %s", reading->source, reading->path,
                  what);
}

/* FNV-1a (Fowler, Noll, Vo), 64 bits. */
static uint64_t hash(uint64_t value, const void *data, size_t size)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size; i++)
        value = (value ^ bytes[i]) * UINT64_C(0x100000001b3);
    return value;
}

uint64_t plan_checksum(const struct plan_header *header, const struct plan_request *requests)
{
    uint64_t value =
        hash(UINT64_C(0xcbf29ce484222325), header, offsetof(struct plan_header, checksum));
    return hash(value, requests, le32toh(header->count) * sizeof *requests);
}

static tarn_status read_all(const struct reading *reading, void *to, size_t size, uint64_t offset)
{
    char *at = to;
    while (size > 0) {
        ssize_t got = pread(reading->file, at, size, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return refuse(reading, "byte %llu: cannot read: %s", (unsigned long long)offset,
                          strerror(errno));
        if (got == 0)
            return refuse(reading,
                          "byte %llu: the file ends within what its header says; write it again "
                          "with tarn plan",
                          (unsigned long long)offset);
        at += got;
        offset += (uint64_t)got;
        size -= (size_t)got;
    }
    return TARN_OK;
}

static void header_decode(struct plan_header *header)
{
    header->version = le32toh(header->version);
    header->count = le32toh(header->count);
    header->arena = le64toh(header->arena);
    header->small = le64toh(header->small);
    header->bound = le64toh(header->bound);
    header->recorded = le64toh(header->recorded);
    header->behind = header->version == PLAN_VERSION ? 0 : le32toh(header->behind);
    header->pool = header->version == PLAN_VERSION_POOLS ? le32toh(header->pool) : 0;
    header->checksum = le64toh(header->checksum);
}

/* Refuses a wrong number in a header; `at` is its byte in the arena. */
static __attribute__((format(printf, 3, 4))) tarn_status
refuse_at(const struct reading *reading, uint64_t at, const char *format, ...)
{
    char what[224];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return refuse(reading, "byte %" PRIu64 ": %s", reading->base + at, what);
}

static bool is_of_version(const struct plan_header *header, const struct plan_header *before)
{
    return before ? header->version == before->version && before->version != PLAN_VERSION
                  : header->version >= PLAN_VERSION && header->version <= PLAN_VERSION_POOLS;
}

/* Checks a header by itself. `before` is the previous arena's header, or NULL. `pools` is the
 * number of private pools in the arenas before. */
static tarn_status header_check(const struct reading *reading, const struct plan_header *header,
                                const struct plan_header *before, uint32_t pools)
{
    uint64_t left = reading->size - reading->base;
    if (memcmp(header->magic, PLAN_MAGIC, sizeof header->magic) != 0)
        return refuse_at(reading, 0, "this is not a tarn plan; tarn plan writes one");
    if (before && is_of_version(header, NULL) && !is_of_version(header, before))
        return refuse_at(reading, 8, "version is %u, but that of the first arena is %u",
                         header->version, before->version);
    if (!is_of_version(header, before))
        return refuse_at(
            reading, 8,
            "version is %u, and this tarn reads %d to %d; write the plan again with its tarn plan",
            header->version, PLAN_VERSION, PLAN_VERSION_POOLS);
    if (header->count == 0 || header->count > PLAN_REQUESTS_MOST)
        return refuse_at(reading, 12, "requests is %u, but must be from 1 to %u", header->count,
                         PLAN_REQUESTS_MOST);
    uint64_t wanted = sizeof *header + header->count * sizeof(struct plan_request);
    if (header->behind ? left < wanted : left != wanted)
        return refuse_at(reading, 12,
                         "requests is %u, for which the file's %llu bytes are not right",
                         header->count, (unsigned long long)reading->size);
    if (header->arena == 0 || header->arena % TARN_BLOCK_UNIT ||
        header->arena / TARN_BLOCK_UNIT > UINT32_MAX)
        return refuse_at(reading, 16, "arena is %llu, but must be a multiple of %d up to 2 TiB",
                         (unsigned long long)header->arena, (int)TARN_BLOCK_UNIT);
    if (header->small > TARN_MAX_SIZE)
        return refuse_at(reading, 24, "small is %llu, but must be at most 1 EiB",
                         (unsigned long long)header->small);
    if (before && header->behind != before->behind - 1)
        return refuse_at(reading, 48, "arenas behind is %u, but must be %u", header->behind,
                         before->behind - 1);
    if (header->behind >= PLAN_ARENAS_MOST)
        return refuse_at(reading, 48, "arenas behind is %u, but must be below %d", header->behind,
                         PLAN_ARENAS_MOST);
    if (header->pool > pools + 1)
        return refuse_at(reading, 52, "pool is %u, but must be from 0 to %u", header->pool,
                         pools + 1);
    return TARN_OK;
}

static tarn_status requests_check(const struct reading *reading, const struct plan_header *header,
                                  struct plan_request *requests)
{
    const uint64_t units = header->arena / TARN_BLOCK_UNIT;
    for (uint32_t i = 0; i < header->count; i++) {
        struct plan_request *request = &requests[i];
        unsigned long long at = reading->base + sizeof *header + i * sizeof *request;
        request->size = le32toh(request->size);
        request->offset = le32toh(request->offset);
        request->end = le32toh(request->end);
        if (request->size <= PLAN_LEAST_REQUEST / TARN_BLOCK_UNIT)
            return refuse(reading,
                          "byte %llu: the size of request %u is %u units, but must be above %zu",
                          at, i, request->size, PLAN_LEAST_REQUEST / TARN_BLOCK_UNIT);
        if (request->offset > units || request->size > units - request->offset)
            return refuse(reading,
                          "byte %llu: the place of request %u, %u units from %u on, is not within "
                          "the arena's %llu",
                          at + 4, i, request->size, request->offset, (unsigned long long)units);
        if (request->end <= i || request->end > header->count)
            return refuse(reading,
                          "byte %llu: the end of request %u is %u, but must be from %u to %u",
                          at + 8, i, request->end, i + 1, header->count);
    }
    return TARN_OK;
}

/* One step of a heap sort of requests by offset. Heap sort needs no memory and has no bad case. */
static void sift_down(const struct plan_request *requests, uint32_t *order, size_t root,
                      size_t count)
{
    for (size_t child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && requests[order[child + 1]].offset > requests[order[child]].offset)
            child++;
        if (requests[order[root]].offset >= requests[order[child]].offset)
            return;
        uint32_t number = order[root];
        order[root] = order[child];
        order[child] = number;
    }
}

static void sort_by_offset(const struct plan_request *requests, uint32_t *order, size_t count)
{
    for (size_t i = 0; i < count; i++)
        order[i] = (uint32_t)i;
    for (size_t i = count / 2; i-- > 0;)
        sift_down(requests, order, i, count);
    for (size_t i = count; i-- > 1;) {
        uint32_t number = order[0];
        order[0] = order[i];
        order[i] = number;
        sift_down(requests, order, 0, i);
    }
}

static size_t groups_of(size_t count)
{
    return (count + PLAN_GROUP - 1) / PLAN_GROUP;
}

static void find_latest(const struct plan_request *requests, size_t count, uint32_t *latest)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t *end = &latest[i / PLAN_GROUP];
        *end = i % PLAN_GROUP == 0 || requests[i].end > *end ? requests[i].end : *end;
    }
}

static void plan_free(struct plan *plan)
{
    size_t count = plan->header.count;
    pages_free((void *)plan->requests, count * sizeof *plan->requests);
    pages_free((void *)plan->by_offset, count * sizeof *plan->by_offset);
    pages_free((void *)plan->rank, count * sizeof *plan->rank);
    pages_free((void *)plan->latest, groups_of(count) * sizeof *plan->latest);
    pages_free(plan, sizeof *plan);
}

/* Reads the arena at `reading->base`. */
static tarn_status read_arena(const struct reading *reading, const struct plan_header *before,
                              uint32_t pools, struct plan **result)
{
    struct plan_header header;
    if (reading->size - reading->base < sizeof header)
        return refuse_at(reading, 0, "%llu bytes are not a tarn plan; tarn plan writes one",
                         (unsigned long long)(reading->size - reading->base));
    tarn_status status = read_all(reading, &header, sizeof header, reading->base);
    if (status)
        return status;
    const struct plan_header raw = header;
    header_decode(&header);
    status = header_check(reading, &header, before, pools);
    if (status)
        return status;

    size_t bytes = header.count * sizeof(struct plan_request),
           order_bytes = header.count * sizeof(uint32_t);
    size_t latest_bytes = groups_of(header.count) * sizeof(uint32_t);
    struct plan *plan = pages_alloc(sizeof *plan);
    struct plan_request *requests = pages_alloc(bytes);
    uint32_t *order = pages_alloc(order_bytes), *rank = pages_alloc(order_bytes),
             *latest = pages_alloc(latest_bytes);
    if (plan && requests && order && rank && latest)
        status = read_all(reading, requests, bytes, reading->base + sizeof header);
    else
        status = failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a plan");
    if (!status && plan_checksum(&raw, requests) != header.checksum)
        status = refuse_at(reading, 56,
                           "the checksum is not that of the file, which was changed or cut; write "
                           "it again with tarn "
                           "plan");
    if (!status)
        status = requests_check(reading, &header, requests);
    if (status) {
        pages_free(plan, sizeof *plan);
        pages_free(requests, bytes);
        pages_free(order, order_bytes);
        pages_free(rank, order_bytes);
        pages_free(latest, latest_bytes);
        return status;
    }
    sort_by_offset(requests, order, header.count);
    for (uint32_t i = 0; i < header.count; i++)
        rank[order[i]] = i;
    find_latest(requests, header.count, latest);
    *plan = (struct plan){NULL, header, requests, order, rank, latest};
    *result = plan;
    return TARN_OK;
}

static tarn_status read_plan(struct reading *reading, const struct plan **result)
{
    struct stat about;
    if (fstat(reading->file, &about))
        return refuse(reading, "cannot read: %s", strerror(errno));
    if (!S_ISREG(about.st_mode))
        return refuse(reading, "this is not a file; tarn plan writes one");
    reading->size = (uint64_t)about.st_size;

    struct plan *arenas[PLAN_ARENAS_MOST], *plan = NULL;
    tarn_status status = TARN_OK;
    unsigned count = 0;
    uint32_t pools = 0;
    do {
        status = read_arena(reading, plan ? &plan->header : NULL, pools, &plan);
        if (!status) {
            arenas[count++] = plan;
            pools = plan->header.pool > pools ? plan->header.pool : pools;
            reading->base += sizeof plan->header + plan->header.count * sizeof *plan->requests;
        }
    } while (!status && plan->header.behind);
    for (unsigned i = 0; i < count; i++) {
        if (status)
            plan_free(arenas[i]);
        else
            arenas[i]->next = i + 1 < count ? arenas[i + 1] : NULL;
    }
    if (!status)
        *result = arenas[0];
    return status;
}

tarn_status plan_load(const char *source, const char *path, const struct plan **plan)
{
    struct reading reading = {.source = source, .path = path};
    /* O_NONBLOCK: does not wait for a pipe */
    reading.file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (reading.file < 0)
        return refuse(&reading, "cannot open: %s", strerror(errno));
    tarn_status status = read_plan(&reading, plan);
    close(reading.file);
    return status;
}
