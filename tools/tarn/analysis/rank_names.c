/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Names of files that are shown beside each other. If each file has a different number behind
 * "rank" in its name, the files are ranks. Otherwise they are named by the part of their paths in
 * which they differ. */
#include "analysis/ranks.h"

#include "name.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* columns: a longer name loses its beginning, as far as it still has what differs */
#define NAME_SHORT 24

/* Reads the number behind the last "rank" of names such as "rank0.pickle",
 * "snapshot_rank_12.pickle" and "trainer-rank-3.zst". */
static bool number_of(const char *name, uint64_t *number)
{
    const char *at = NULL;
    for (const char *next = strstr(name, "rank"); next; next = strstr(next + 1, "rank"))
        at = next + strlen("rank");
    if (!at)
        return false;
    at += strspn(at, "-_. ");
    size_t digits = strspn(at, "0123456789");
    *number = digits ? strtoull(at, NULL, 10) : 0;
    return digits > 0 && digits < 10;
}

/* True if each file has a number that no other has. */
static bool are_ranks(const struct report_file *files, size_t count)
{
    uint64_t number, other;
    for (size_t i = 0; i < count; i++) {
        if (!number_of(report_base_name(files[i].path), &number))
            return false;
        for (size_t j = 0; j < i; j++)
            if (number_of(report_base_name(files[j].path), &other) && other == number)
                return false;
    }
    return true;
}

static size_t device_count(const struct report_file *file)
{
    size_t count = file->count;
    for (size_t i = 0; i < file->count; i++)
        count -= analysis_is_of_host(&file->analyses[i]);
    return count;
}

bool ranks_are_compared(const struct report_file *files, size_t count)
{
    return count > 2 || (count == 1 ? device_count(files) > 1 : are_ranks(files, count));
}

static size_t common_begin(const char *a, const char *b)
{
    size_t length = 0;
    while (a[length] && a[length] == b[length])
        length++;
    return length;
}

static size_t common_end(const char *a, size_t a_length, const char *b, size_t b_length)
{
    size_t length = 0;
    while (length < a_length && length < b_length &&
           a[a_length - length - 1] == b[b_length - length - 1])
        length++;
    return length;
}

/* Names a file by whole parts of its path, from the first to the last in which another file
 * differs. */
static void name_file(const struct report_file *files, size_t count, size_t own, char *name,
                      size_t size)
{
    const char *path = report_base_name(files[own].path);
    path = count > 1 ? files[own].path : path;
    size_t length = strlen(path), begin = length, end = length, same = 0;
    for (size_t i = 0; i < count; i++) {
        size_t other = strlen(files[i].path), start = common_begin(path, files[i].path);
        if (!path[start] && other == length) {
            same += i < own; /* the same file was named twice */
            continue;
        }
        size_t rest = common_end(path, length, files[i].path, other);
        begin = start < begin ? start : begin;
        end = rest < end ? rest : end;
    }
    if (begin == length && end == length) { /* none differs */
        path = report_base_name(path);
        length = strlen(path);
        begin = end = 0;
    }
    size_t from = begin, to = length - end > begin ? length - end : begin;
    while (from > 0 && path[from - 1] != '/')
        from--;
    to += strcspn(path + to, "/");
    for (size_t at = from; to - from > NAME_SHORT && at < begin; at++)
        if (strchr("_-. ", path[at]) && to - at - 1 >= 3)
            from = at + 1;
    char part[1024];
    snprintf(part, sizeof part, "%.*s",
             (int)(to - from < sizeof part ? to - from : sizeof part - 1), path + from);
    int written = snprintf(name, size, "%.120s", name_shown(part).text);
    if (same)
        snprintf(name + written, size - (size_t)written, " (%zu)", same + 1);
}

bool rank_names_make(struct rank *ranks, size_t rank_count, const struct report_file *files,
                     size_t count)
{
    bool numbered = count > 1 && are_ranks(files, count);
    for (size_t i = 0; count == 1 && i < rank_count; i++) {
        ranks[i].numbered = true;
        ranks[i].number = (uint64_t)ranks[i].analysis->device;
        snprintf(ranks[i].name, sizeof ranks[i].name, "device %d", ranks[i].analysis->device);
    }
    if (count == 1)
        return true;
    for (size_t i = 0; i < rank_count; i++) {
        struct rank *rank = &ranks[i];
        rank->numbered = numbered && number_of(report_base_name(rank->file->path), &rank->number);
        if (rank->numbered)
            snprintf(rank->name, sizeof rank->name, "rank %" PRIu64, rank->number);
        else
            name_file(files, count, rank->place, rank->name, sizeof rank->name - 16);
        size_t length = strlen(rank->name);
        if (device_count(rank->file) > 1)
            snprintf(rank->name + length, sizeof rank->name - length, ", device %d",
                     rank->analysis->device);
    }
    return numbered;
}
