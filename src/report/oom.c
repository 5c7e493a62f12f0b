/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Writes the files of an out-of-memory error, if TARN_OOM_SNAPSHOT names a folder:
 * tarn-oom-<process>-<n>.pickle, a snapshot, and then .txt, the error with the largest holders. The
 * thread whose request fails writes them. At most MOST attempts per process, also those that fail,
 * so that a program that handles such errors does not fill the disk. Owns the count. If the first
 * file fails, there is none; if the second fails, the first stays. That is reported at the end of
 * the error's text and in the log, and changes nothing else. */
#include "base/log.h"
#include "base/pages.h"
#include "base/status.h"
#include "base/text.h"
#include "base/thread/cancel.h"
#include "base/variable.h"
#include "memory/pressure/shortage.h"
#include "report/snapshot/notes.h"
#include "report/snapshot/snapshot.h"
#include "report/start.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MOST 16
#define LISTED 20 /* holders */

/* Live blocks that belong to the same region and tag, on a device. */
struct holder_sum {
    uint64_t key;
    uint32_t region;
    uint16_t tag;
    size_t bytes, blocks;
};

static atomic_uint files;

static int by_key(const void *a, const void *b)
{
    uint64_t x = ((const struct holder_sum *)a)->key, y = ((const struct holder_sum *)b)->key;
    return x < y ? -1 : x > y;
}

static int by_bytes(const void *a, const void *b)
{
    size_t x = ((const struct holder_sum *)a)->bytes, y = ((const struct holder_sum *)b)->bytes;
    return x > y ? -1 : x < y;
}

/* Adds up neighbours with the same key; gives how many are left. */
static size_t add_up(struct holder_sum *sums, size_t count)
{
    size_t made = 0;
    for (size_t i = 0; i < count; i++) {
        if (made && sums[made - 1].key == sums[i].key) {
            sums[made - 1].bytes += sums[i].bytes;
            sums[made - 1].blocks++;
        } else {
            sums[made++] = sums[i];
        }
    }
    return made;
}

static size_t collect(const struct picture *picture, int device, struct holder_sum *sums)
{
    size_t count = 0;
    for (size_t i = 0; i < picture->runs.count; i++) {
        const struct picture_run *run = &picture_runs(picture)[i];
        for (size_t j = 0; place_of(run->place)->device == device && j < run->block_count; j++) {
            const struct picture_block *block = &picture_blocks(picture)[run->first_block + j];
            const struct trace_record *record =
                block->record ? &picture->trace.records[block->record - 1] : NULL;
            uint32_t region = record ? record->region : 0;
            if (block->state == PICTURE_LIVE)
                sums[count++] = (struct holder_sum){(uint64_t)region << 16 | block->tag, region,
                                                    block->tag, block->size, 1};
        }
    }
    return count;
}

static void print_holders(struct sink *sink, const struct picture *picture, int device)
{
    size_t bytes = (picture->blocks.count + 1) * sizeof(struct holder_sum);
    struct holder_sum *sums = pages_alloc(bytes);
    if (!sums) {
        sink_print(sink, "\nThere is no host memory to add up the live blocks with.\n");
        return;
    }
    size_t count = collect(picture, device, sums);
    qsort(sums, count, sizeof *sums, by_key);
    count = add_up(sums, count);
    qsort(sums, count, sizeof *sums, by_bytes);
    sink_print(sink, "\nLive blocks, by region and tag%s:\n\n%16s  %10s  of\n",
               picture->trace.count ? "" : " (with TARN_TRACE=1 the regions would be known)",
               "bytes", "blocks");
    for (size_t i = 0; i < count && i < LISTED; i++) {
        char note[NOTE_BYTES];
        note_text(sums[i].region, sums[i].tag, note);
        sink_print(sink, "%16zu  %10zu  %s\n", sums[i].bytes, sums[i].blocks,
                   *note ? note : "(no region, no tag)");
    }
    if (count > LISTED)
        sink_print(sink, "%16s  %10s  %zu more\n", "", "", count - LISTED);
    pages_free(sums, bytes);
}

static void print_pools(struct sink *sink, const struct picture *picture, int device)
{
    const struct picture_pool *pools = picture->pools.items;
    if (picture->pools.count)
        sink_print(sink, "\nPrivate pools:\n\n%16s  %16s  %16s  of\n", "reserved", "allocated",
                   "waiting");
    for (size_t i = 0; i < picture->pools.count; i++)
        if (pools[i].device == device)
            sink_print(sink, "%16zu  %16zu  %16zu  (%llu, %llu)%s%s\n", pools[i].reserved,
                       pools[i].allocated, pools[i].waiting, (unsigned long long)pools[i].id[0],
                       (unsigned long long)pools[i].id[1],
                       pools[i].held ? ", held by a graph or capture" : "",
                       pools[i].suspended ? ", suspended" : "");
}

/* Writes one of the two files: with `text` the report, else the snapshot. */
static tarn_status leave(struct sink *sink, const struct picture *picture, const char *path,
                         int device, const char *text)
{
    tarn_status status = sink_to_file(sink, path, 0600);
    if (status)
        return status;
    if (text) {
        sink_print(sink, "%s\n", "Out of memory");
        sink_write(sink, text, strlen(text));
        sink_print(sink, "\n");
        print_holders(sink, picture, device);
        print_pools(sink, picture, device);
        sink_print(sink, "\nThe whole picture: tarn report %.*s.pickle -o report.html\n",
                   (int)(strlen(path) - 4), path);
    } else {
        status = snapshot_write_pickle(picture, sink, TARN_NO_LIMIT);
    }
    tarn_status ended = sink_end(sink, status != TARN_OK);
    return status ? status : ended;
}

/* `snapshot`: whether that file is complete, also if the text fails. */
static tarn_status leave_both(const char *base, int device, const char *text, bool *snapshot)
{
    char path[4096];
    struct sink *sink = pages_alloc(sizeof *sink);
    struct picture *picture = pages_alloc(sizeof *picture);
    tarn_status status = TARN_OK;
    if (sink && picture)
        status = picture_take(picture);
    else
        status = failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a snapshot");
    snprintf(path, sizeof path, "%s.pickle", base);
    if (!status)
        status = leave(sink, picture, path, device, NULL);
    *snapshot = !status;
    snprintf(path, sizeof path, "%s.txt", base);
    if (!status)
        status = leave(sink, picture, path, device, text);
    if (picture)
        picture_finish(picture);
    pages_free(picture, sizeof *picture);
    pages_free(sink, sizeof *sink);
    return status;
}

void oom_leave(int device, const char *text, char *where, size_t size)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    char base[3072];
    struct error_before before;
    const char *folder = variable_get("TARN_OOM_SNAPSHOT");
    if (!folder || atomic_load(&files) >= MOST)
        return;
    unsigned number = atomic_fetch_add(&files, 1);
    if (number >= MOST)
        return;
    snprintf(base, sizeof base, "%.2900s/tarn-oom-%ld-%u", folder, (long)getpid(), number + 1);
    error_attempt_begin(&before);
    bool snapshot;
    tarn_status status = leave_both(base, device, text, &snapshot);
    int length;
    if (!snapshot)
        length = snprintf(where, size, " No snapshot was left: %s", tarn_last_error());
    else if (status)
        length = snprintf(where, size, " A snapshot is in %s.pickle, with no text beside it: %s",
                          base, tarn_last_error());
    else
        length = snprintf(where, size,
                          " A snapshot is in %s.pickle, the largest holders in .txt beside it%s.",
                          base, number + 1 == MOST ? "; no more are left by this process" : "");
    (void)text_was_cut(where, size, length);
    error_attempt_end(&before, TARN_OK);
    if (status)
        log_write(LOG_ERRORS, "TARN_OOM_SNAPSHOT:%s", where);
}
