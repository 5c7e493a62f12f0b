/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The summary: a header per process and device, a line per library in the order of their peaks, and lines for what is not a library's. */
#include "launch/residue.h"
#include "launch/run_output.h"
#include "units.h"

#include <stdlib.h>
#include <string.h>

enum { PROCESSES_SHOWN = 8, LIBRARIES_SHOWN = 12, ROWS_MOST = 2 * BOOK_LIBRARIES };

/* A line of a table; bytes. */
struct row {
    uint32_t library;
    uint64_t live, peak, made;
    char kinds[96];
};

static const char *const kind_texts[RUN_KINDS] = {
#define X(name, text, counts) text,
    RUN_KIND_LIST(X)
#undef X
};

uint64_t run_made_bytes(const struct book *book)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < book->devices; i++)
        for (unsigned j = 0; j < BOOK_LIBRARIES; j++)
            for (unsigned k = 0; k < RUN_KINDS; k++)
                bytes += atomic_load(&book->account[i][j][k].made_bytes);
    return bytes;
}

/* Of the device's memory one row per library. */
static struct row row_of(const struct book *book, unsigned device, uint32_t library)
{
    const struct book_holder *holder = &book->holder[device][library];
    struct row row = {.library = library, .live = atomic_load(&holder->live), .peak = atomic_load(&holder->peak)};
    size_t used = 0;
    for (unsigned kind = 0; kind < RUN_KINDS; kind++) {
        uint64_t made = atomic_load(&book->account[device][library][kind].made);
        if (!made || !run_kind_counts(kind))
            continue;
        row.made += made;
        if (used < sizeof row.kinds)
            used +=
                (size_t)snprintf(row.kinds + used, sizeof row.kinds - used, "%s%s", used ? ", " : "", kind_texts[kind]);
    }
    return row;
}

/* Of what does not take memory of the device one per library and kind; of graph nodes only what was made is known. */
static struct row row_beside(const struct book *book, unsigned device, uint32_t library, unsigned kind)
{
    const struct book_account *account = &book->account[device][library][kind];
    struct row row = {.library = library,
                      .live = atomic_load(&account->live),
                      .peak = atomic_load(&account->peak),
                      .made = run_kind_counts(kind) ? 0 : atomic_load(&account->made)};
    if (kind == RUN_GRAPH)
        row.peak = atomic_load(&account->made_bytes);
    snprintf(row.kinds, sizeof row.kinds, "%s", kind_texts[kind]);
    return row;
}

static int by_peak(const void *a, const void *b)
{
    const struct row *left = a, *right = b;
    return left->peak < right->peak ? 1 : left->peak > right->peak ? -1 : 0;
}

static const char *library_name(const struct book *book, uint32_t library)
{
    const char *path = book->library[library].path, *slash = strrchr(path, '/');
    return !path[0] ? "(code of no file)" : slash ? slash + 1 : path;
}

static uint32_t library_count(const struct book *book)
{
    uint32_t count = atomic_load(&book->libraries);
    return count < BOOK_LIBRARIES ? count : BOOK_LIBRARIES;
}

static size_t rows_of(const struct book *book, unsigned device, struct row rows[static ROWS_MOST])
{
    size_t count = 0;
    for (uint32_t i = 0; i < library_count(book); i++) {
        rows[count] = row_of(book, device, i);
        count += rows[count].made > 0;
    }
    qsort(rows, count, sizeof *rows, by_peak);
    return count;
}

static size_t rows_beside(const struct book *book, unsigned device, struct row rows[static ROWS_MOST])
{
    size_t count = 0;
    for (uint32_t i = 0; i < library_count(book); i++)
        for (unsigned kind = 0; kind < RUN_KINDS && count < ROWS_MOST; kind++) {
            rows[count] = row_beside(book, device, i, kind);
            count += rows[count].made > 0;
        }
    qsort(rows, count, sizeof *rows, by_peak);
    return count;
}

static void print_line(FILE *out, const char *name, const char *live, const char *peak, const char *count,
                       const char *kinds)
{
    fprintf(out, "  %-44.44s %10s %10s %10s  %s\n", name, live, peak, count, kinds);
}

static void print_rows(const struct book *book, const struct row *rows, size_t count, FILE *out)
{
    for (size_t i = 0; i < count && i < LIBRARIES_SHOWN; i++)
        print_line(out, library_name(book, rows[i].library), units_bytes(rows[i].live).text,
                   units_bytes(rows[i].peak).text, units_count(rows[i].made).text, rows[i].kinds);
    if (count > LIBRARIES_SHOWN)
        fprintf(out, "  and %zu more\n", count - LIBRARIES_SHOWN);
}

/* What no hook saw: NVML's figure for the process less what was; where NVML does not know the process, what the device has in use less what
 * all processes of the run have, which is others' too. */
static void print_unseen(const struct books *books, const struct opened_book *opened, unsigned index, FILE *out)
{
    const struct book_device *device = &opened->book->device[index];
    if (opened->last_unseen[index] != UINT64_MAX) {
        print_line(out, "not seen: context, modules, driver's pools", units_bytes(opened->last_unseen[index]).text, "",
                   "", "");
        return;
    }
    uint64_t used = residue_device_used(device), seen = 0;
    for (size_t i = 0; i < books->count; i++)
        for (unsigned j = 0; j < books->list[i].book->devices; j++)
            if (memcmp(books->list[i].book->device[j].uuid, device->uuid, sizeof device->uuid) == 0)
                seen +=
                    atomic_load(&books->list[i].book->ended) ? 0 : atomic_load(&books->list[i].book->device[j].used);
    if (used == UINT64_MAX)
        fputs("  not seen: NVML, which would tell, is not there\n", out);
    else
        print_line(out, "others and residue (NVML named no process)", units_bytes(used > seen ? used - seen : 0).text,
                   "", "", "");
}

static void print_device(const struct books *books, const struct opened_book *opened, unsigned index, FILE *out)
{
    const struct book *book = opened->book;
    const struct book_device *device = &book->device[index];
    struct row rows[ROWS_MOST] = {{0}}, beside[ROWS_MOST] = {{0}};
    size_t count = rows_of(book, index, rows), beside_count = rows_beside(book, index, beside);
    uint64_t limit = atomic_load(&device->limit), refused = atomic_load(&device->refused);
    if (!count && !beside_count && !refused)
        return;
    fprintf(out, "GPU %u, %s, %s%s%s\n", index, device->name, units_bytes(device->total).text,
            limit == UINT64_MAX ? "" : ", limit ", limit == UINT64_MAX ? "" : units_bytes(limit).text);
    print_line(out, "library", "at the end", "peak", "count", "kinds");
    print_rows(book, rows, count, out);
    print_line(out, "all together", units_bytes(atomic_load(&device->used)).text,
               units_bytes(atomic_load(&device->peak)).text, "", "");
    print_unseen(books, opened, index, out);
    if (beside_count) {
        fputs("  beside the device's memory:\n", out);
        print_rows(book, beside, beside_count, out);
    }
    if (refused)
        fprintf(out, "  requests refused: %s, %s; the first: %.*s\n", units_count(refused).text,
                units_bytes(atomic_load(&device->refused_bytes)).text, BOOK_TEXT, device->refusal);
}

static void print_notes(const struct book *book, FILE *out)
{
    uint64_t unhooked = atomic_load(&book->unhooked), unfollowed = atomic_load(&book->unfollowed);
    if (unhooked)
        fprintf(out, "  partly seen: the program uses entry points that are newer than CUDA 13.5, the first %.63s\n",
                book->unhooked_name);
    if (unfollowed)
        fprintf(out, "  partly seen: %s allocations were not written down, for want of host memory\n",
                units_count(unfollowed).text);
    if (!atomic_load(&book->ended))
        fputs("  the process ended without exit(): what it had then is shown\n", out);
}

static int by_bytes(const void *a, const void *b)
{
    uint64_t left = run_made_bytes((*(const struct opened_book *const *)a)->book);
    uint64_t right = run_made_bytes((*(const struct opened_book *const *)b)->book);
    return left < right ? 1 : left > right ? -1 : 0;
}

void run_summary_print(const struct books *books, FILE *out)
{
    const struct opened_book *order[BOOKS_MOST] = {NULL};
    for (size_t i = 0; i < books->count; i++)
        order[i] = &books->list[i];
    qsort(order, books->count, sizeof *order, by_bytes);
    if (!books->count)
        fputs("tarn run: no process used the driver through this shim\n", out);
    for (size_t i = 0; i < books->count && i < PROCESSES_SHOWN; i++) {
        fprintf(out, "tarn run: process %u, %.100s\n", order[i]->book->process, order[i]->book->command);
        if (!run_made_bytes(order[i]->book))
            fputs("  allocated nothing\n", out);
        for (unsigned j = 0; j < order[i]->book->devices; j++)
            print_device(books, order[i], j, out);
        print_notes(order[i]->book, out);
    }
    if (books->count + books->left_out > PROCESSES_SHOWN)
        fprintf(out, "and %zu more processes\n", books->count + books->left_out - PROCESSES_SHOWN);
}
