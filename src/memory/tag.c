/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the texts of tags: an array of copies, in the order in which they came, and a hash table to find them by. Texts are
 * never forgotten, so that a reader needs no lock. */
#include "base/lock.h"
#include "base/pages.h"
#include "base/process.h"
#include "base/status.h"

#include <stdatomic.h>
#include <string.h>
#include <tarn/memory.h>

#define TAGS 65536
#define TEXT_BYTES 64
#define CHUNK_TAGS 1024
#define BUCKETS 1024

struct tag {
    char text[TEXT_BYTES];
    struct tag *next; /* tags_lock: of the bucket */
    tarn_tag number;
};

static mutex tags_lock = MUTEX_INITIALIZER;
static _Atomic(struct tag *) chunks[TAGS / CHUNK_TAGS];
static struct tag *buckets[BUCKETS]; /* tags_lock */
static atomic_uint tags_used = 1;    /* tags_lock to change; 0 is no tag */

static unsigned bucket_of(const char *text)
{
    unsigned hash = 2166136261u;
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 16777619u;
    return hash % BUCKETS;
}

static tarn_status tag_add_locked(const char *text, unsigned bucket, tarn_tag *tag)
{
    unsigned number = atomic_load_explicit(&tags_used, memory_order_relaxed);
    if (number == TAGS)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "tag \"%s\": all %d tags are in use", text, TAGS - 1);
    struct tag *chunk = atomic_load_explicit(&chunks[number / CHUNK_TAGS], memory_order_relaxed);
    if (!chunk) {
        chunk = pages_map(CHUNK_TAGS * sizeof *chunk);
        if (!chunk)
            return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for tags");
        atomic_store_explicit(&chunks[number / CHUNK_TAGS], chunk, memory_order_release);
    }
    struct tag *added = &chunk[number % CHUNK_TAGS];
    memcpy(added->text, text, strlen(text) + 1);
    added->number = (tarn_tag)number;
    added->next = buckets[bucket];
    buckets[bucket] = added;
    atomic_store_explicit(&tags_used, number + 1, memory_order_release);
    *tag = added->number;
    return TARN_OK;
}

tarn_status tarn_tag_intern(const char *text, tarn_tag *tag)
{
    if (!text || !tag)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "%s is NULL", text ? "tag" : "text");
    tarn_status status = process_check();
    if (status)
        return status;
    char cut[TEXT_BYTES] = "";
    memcpy(cut, text, strnlen(text, sizeof cut - 1));
    unsigned bucket = bucket_of(cut);

    mutex_lock(&tags_lock);
    struct tag *known = buckets[bucket];
    while (known && strcmp(known->text, cut) != 0)
        known = known->next;
    if (known)
        *tag = known->number;
    else
        status = tag_add_locked(cut, bucket, tag);
    mutex_unlock(&tags_lock);
    return status;
}

const char *tarn_tag_text(tarn_tag tag)
{
    if (tag == 0 || tag >= atomic_load_explicit(&tags_used, memory_order_acquire))
        return "";
    return atomic_load_explicit(&chunks[tag / CHUNK_TAGS], memory_order_acquire)[tag % CHUNK_TAGS].text;
}
