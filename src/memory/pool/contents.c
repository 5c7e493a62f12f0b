/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The contents of suspended pools. Owns the host memory that keeps them, and the pinned memory that
 * they are copied through.
 *
 * A driver copies pageable memory through its own buffer, with one thread. Large contents are
 * copied faster in chunks through pinned memory: while the device copies one chunk, copiers copy
 * others between pinned memory and the place where they are saved. The driver copies small
 * contents, and all contents if there is no pinned memory or no thread. */
#include "memory/pool/contents.h"
#include "base/pages.h"
#include "base/status.h"
#include "base/thread/copiers.h"
#include "device/capture.h"

#define STAGES (2 * COPIERS_MOST) /* one chunk per thread, and as many for the device */

/* Allocating pinned memory takes about 0.25 ms per MiB, so small contents are copied without. */
struct contents_staging contents_staging = {.least = (size_t)64 << 20, .chunk = (size_t)4 << 20};

struct saved {
    struct saved *next;
    uintptr_t start;
    size_t size; /* 0: everything in it was left out */
    char *copy;
    /* The mapping that belongs to this entry; NULL: the copy is in another entry's mapping, or
     * the caller's. */
    void *mapping;
    size_t mapped; /* bytes */
};

/* A chunk's place in pinned memory, and an event at the end of the device's copy to or from it. */
struct stage {
    struct copiers_copy copy;
    driver_event copied;
    uintptr_t memory;
};

struct staging {
    uintptr_t memory; /* pinned */
    unsigned count;   /* stages that have an event */
    struct stage stages[STAGES];
};

static struct object_pool saved_objects = OBJECT_POOL(struct saved);
static struct object_pool staging_objects = OBJECT_POOL(struct staging);

tarn_status contents_place(struct contents *contents, uintptr_t start, size_t size, void *copy)
{
    struct saved *saved = object_alloc(&saved_objects);
    if (!saved)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY,
                      "no host memory to keep track of the contents of a pool");
    *saved = (struct saved){.next = contents->saved, .start = start, .size = size, .copy = copy};
    contents->saved = saved;
    return TARN_OK;
}

tarn_status contents_add(struct contents *contents, uintptr_t start, size_t size)
{
    void *copy = pages_map(size);
    if (!copy)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY,
                      "no host memory for %zu bytes of the contents of a pool", size);
    tarn_status status = contents_place(contents, start, size, copy);
    if (status) {
        pages_unmap(copy, size);
        return status;
    }
    pages_prefer_large(copy, size);
    contents->saved->mapping = copy;
    contents->saved->mapped = size;
    return TARN_OK;
}

/* Leaves a range out. What is behind it becomes another entry. */
static tarn_status saved_leave_out(struct saved *saved, uintptr_t start, uintptr_t end)
{
    uintptr_t saved_end = saved->start + saved->size;
    if (end < saved_end) {
        struct saved *behind = object_alloc(&saved_objects);
        if (!behind)
            return failed(TARN_ERROR_OUT_OF_HOST_MEMORY,
                          "no host memory to leave out a part of a pool's contents");
        *behind = (struct saved){.next = saved->next,
                                 .start = end,
                                 .size = saved_end - end,
                                 .copy = saved->copy + (end - saved->start)};
        saved->next = behind;
    }
    saved->size = start > saved->start ? start - saved->start : 0;
    return TARN_OK;
}

tarn_status contents_leave_out(struct contents *contents, uintptr_t start, size_t size)
{
    uintptr_t end = start + size;
    tarn_status status = TARN_OK;
    for (struct saved *saved = contents->saved; saved && !status; saved = saved->next)
        if (start < saved->start + saved->size && saved->start < end)
            status = saved_leave_out(saved, start, end);
    return status;
}

void contents_drop(struct contents *contents)
{
    for (struct saved *saved = contents->saved, *next; saved; saved = next) {
        next = saved->next;
        pages_unmap(saved->mapping, saved->mapped);
        object_free(&saved_objects, saved);
    }
    contents->saved = NULL;
}

size_t contents_bytes(const struct contents *contents)
{
    size_t bytes = 0;
    for (const struct saved *saved = contents->saved; saved; saved = saved->next)
        bytes += saved->size;
    return bytes;
}

/* Chunks --------------------------------------------------------------------------------------- */

/* The position of a walk over the contents. */
struct walk {
    const struct saved *saved;
    size_t offset;
};

struct chunk {
    uintptr_t start; /* on the device */
    char *copy;
    size_t size;
};

/* Moves on to the next chunk, of at most `most` bytes. False at the end. */
static bool walk_on(struct walk *walk, size_t most, struct chunk *chunk)
{
    while (walk->saved && walk->offset == walk->saved->size)
        *walk = (struct walk){walk->saved->next, 0};
    const struct saved *saved = walk->saved;
    if (!saved)
        return false;
    size_t left = saved->size - walk->offset;
    *chunk = (struct chunk){saved->start + walk->offset, saved->copy + walk->offset,
                            left < most ? left : most};
    walk->offset += chunk->size;
    return true;
}

/* Staging -------------------------------------------------------------------------------------- */

/* Frees the stages. No copies are in progress. Memory that the driver does not take back is freed
 * at the next attempt. */
static void staging_free(struct contents *contents, struct device *device)
{
    struct staging *staging = contents->staging;
    struct error_before before;
    if (!staging)
        return;
    error_attempt_begin(&before);
    while (staging->count)
        (void)device_note(device, driver->event_destroy(device->number,
                                                        staging->stages[--staging->count].copied));
    if (!staging->memory ||
        device_note(device, driver->host_free(device->number, staging->memory)) == TARN_OK) {
        object_free(&staging_objects, staging);
        contents->staging = NULL;
    }
    error_attempt_end(&before, TARN_OK);
}

/* Allocates pinned memory for `count` stages, and an event for each. */
static tarn_status staging_fill(struct staging *staging, struct device *device, unsigned wanted)
{
    tarn_status status =
        driver->host_alloc(device->number, wanted * contents_staging.chunk, &staging->memory);
    while (!status && staging->count < wanted) {
        struct stage *stage = &staging->stages[staging->count];
        stage->memory = staging->memory + staging->count * contents_staging.chunk;
        status = driver->event_create(device->number, &stage->copied);
        if (!status)
            staging->count++;
    }
    return device_note(device, status);
}

/* Allocates stages for `bytes`, at most two per thread. False if the driver has no pinned
 * memory. */
static bool staging_create(struct contents *contents, struct device *device, size_t bytes,
                           unsigned threads)
{
    struct error_before before;
    unsigned wanted = 2 * threads;
    staging_free(contents, device); /* stages of an earlier change */
    if (contents->staging)
        return false;
    contents->staging = object_alloc(&staging_objects);
    if (!contents->staging)
        return false;
    if (wanted > bytes / contents_staging.chunk)
        wanted = (unsigned)(bytes / contents_staging.chunk);
    error_attempt_begin(&before);
    tarn_status status = staging_fill(contents->staging, device, wanted);
    error_attempt_end(&before, TARN_OK);
    if (status)
        staging_free(contents, device);
    return !status;
}

/* Queues the device's copy of a chunk to its stage, or from it. */
static tarn_status stage_queue(struct contents *contents, struct device *device,
                               struct stage *stage, const struct chunk *chunk, bool back)
{
    tarn_status status =
        driver->copy(device->number, back ? chunk->start : stage->memory,
                     back ? stage->memory : chunk->start, chunk->size, device->legacy->native);
    if (status)
        return status;
    contents->copies = back ? COPIES_BACK : COPIES_OUT;
    return driver->event_record(device->number, stage->copied, device->legacy->native);
}

/* Copies out: the device copies a chunk into its stage while the copiers empty stages of earlier
 * chunks. */
static tarn_status staged_out(struct contents *contents, struct device *device,
                              struct staging *staging, struct copiers *copiers)
{
    struct walk walk = {contents->saved, 0};
    struct chunk chunk;
    struct stage *before = NULL; /* the stage that the device copies into */
    tarn_status status = TARN_OK;
    for (size_t n = 0; !status; n++) {
        struct stage *stage = NULL;
        if (walk_on(&walk, contents_staging.chunk, &chunk)) {
            stage = &staging->stages[n % staging->count];
            copiers_wait(copiers, &stage->copy);
            status = stage_queue(contents, device, stage, &chunk, false);
            stage->copy = (struct copiers_copy){
                .to = chunk.copy, .from = (void *)stage->memory, .size = chunk.size};
        }
        if (!status && before) {
            status = driver->event_synchronize(device->number, before->copied);
            if (!status)
                copiers_give(copiers, &before->copy);
        }
        if (!stage)
            break;
        before = stage;
    }
    return status;
}

/* Copies back: the copiers fill stages, up to half of them ahead of the device. */
static tarn_status staged_back(struct contents *contents, struct device *device,
                               struct staging *staging, struct copiers *copiers)
{
    struct walk filled = {contents->saved, 0}, queued = filled;
    struct chunk chunk;
    size_t ahead = staging->count / 2;
    tarn_status status = TARN_OK;
    for (size_t n = 0; !status; n++) {
        struct stage *stage = &staging->stages[n % staging->count];
        if (walk_on(&filled, contents_staging.chunk, &chunk)) {
            if (n >= staging->count)
                status = driver->event_synchronize(device->number, stage->copied);
            if (status)
                break;
            stage->copy = (struct copiers_copy){
                .to = (void *)stage->memory, .from = chunk.copy, .size = chunk.size};
            copiers_give(copiers, &stage->copy);
        }
        if (n < ahead)
            continue;
        if (!walk_on(&queued, contents_staging.chunk, &chunk))
            break;
        stage = &staging->stages[(n - ahead) % staging->count];
        copiers_wait(copiers, &stage->copy);
        status = stage_queue(contents, device, stage, &chunk, true);
    }
    return status;
}

/* Copies through stages. False if there is no pinned memory, or no thread. */
static bool copy_staged(struct contents *contents, struct device *device, bool back,
                        tarn_status *status)
{
    size_t bytes = contents_bytes(contents);
    struct copiers copiers;
    if (bytes < contents_staging.least || !copiers_start(&copiers, COPIERS_MOST))
        return false;
    bool staged = staging_create(contents, device, bytes, copiers.count);
    if (staged)
        *status = (back ? staged_back : staged_out)(contents, device, contents->staging, &copiers);
    copiers_end(&copiers);
    return staged;
}

static tarn_status copy_plainly(struct contents *contents, const struct device *device, bool back)
{
    struct walk walk = {contents->saved, 0};
    struct chunk chunk;
    tarn_status status = TARN_OK;
    while (!status && walk_on(&walk, SIZE_MAX, &chunk)) {
        uintptr_t copy = (uintptr_t)chunk.copy;
        status = driver->copy(device->number, back ? chunk.start : copy, back ? copy : chunk.start,
                              chunk.size, device->legacy->native);
        if (!status)
            contents->copies = back ? COPIES_BACK : COPIES_OUT;
    }
    return status;
}

/* The calls ------------------------------------------------------------------------------------ */

/* The copies are on the legacy stream. */
static const char what_copies[] = "a copy of a pool's contents";

static void copies_have_ended(struct contents *contents, struct device *device)
{
    contents->copies = COPIES_ENDED;
    staging_free(contents, device);
}

tarn_status contents_copy(struct contents *contents, struct device *device, bool back)
{
    tarn_status waited = TARN_OK, status = stream_refuse_capture(device->legacy, what_copies);
    if (status)
        return status;
    if (!copy_staged(contents, device, back, &status))
        status = copy_plainly(contents, device, back);
    if (contents->copies)
        waited = driver->stream_synchronize(device->number, device->legacy->native);
    if (!waited || device_wait(device, what_copies) == TARN_OK)
        copies_have_ended(contents, device);
    return device_note(device, status ? status : waited);
}

tarn_status contents_settle(struct contents *contents, struct device *device)
{
    if (!contents->copies)
        return TARN_OK;
    tarn_status status = stream_refuse_capture(device->legacy, what_copies);
    if (!status)
        status =
            device_note(device, driver->stream_synchronize(device->number, device->legacy->native));
    if (status)
        return status;
    if (contents->copies == COPIES_OUT)
        contents_drop(contents);
    copies_have_ended(contents, device);
    return TARN_OK;
}

bool contents_are_settled(struct contents *contents, struct device *device)
{
    struct error_before before;
    if (!contents->copies)
        return true;
    error_attempt_begin(&before);
    tarn_status status = captures_bar(device, what_copies);
    if (!status) {
        status = driver->stream_query(device->number, device->legacy->native);
        if (!status)
            copies_have_ended(contents, device);
        captures_unbar(device);
    }
    error_attempt_end(&before, TARN_OK);
    return !status;
}

void contents_end(struct contents *contents, struct device *device)
{
    contents_drop(contents);
    staging_free(contents, device);
}
