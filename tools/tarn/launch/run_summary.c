/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The summary: a header per process and device, a line per library in the order of their peaks, and
 * lines for what is not a library's. */
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
                bytes += books_account(book, i, j, k).made_bytes;
    return bytes;
}

/* Of the device's memory one row per library. */
static struct row row_of(const struct book *book, unsigned device, uint32_t library)
{
    struct books_sums sums = books_holder(book, device, library);
    struct row row = {.library = library, .live = sums.live, .peak = sums.peak, .made = sums.made};
    size_t used = 0;
    for (unsigned kind = 0; kind < RUN_KINDS; kind++)
        if (run_kind_counts(kind) && books_account(book, device, library, kind).made &&
            used < sizeof row.kinds)
            used += (size_t)snprintf(row.kinds + used, sizeof row.kinds - used, "%s%s",
                                     used ? ", " : "", kind_texts[kind]);
    return row;
}

/* A row for a kind that takes no memory of the device: one row per library and kind. Of graph nodes
 * only the allocations are known. */
static struct row row_beside(const struct book *book, unsigned device, uint32_t library,
                             unsigned kind)
{
    struct books_sums sums = books_account(book, device, library, kind);
    struct row row = {.library = library,
                      .live = sums.live,
                      .peak = kind == RUN_GRAPH ? sums.made_bytes : sums.peak,
                      .made = run_kind_counts(kind) ? 0 : sums.made};
    snprintf(row.kinds, sizeof row.kinds, "%s", kind_texts[kind]);
    return row;
}

static int by_peak(const void *a, const void *b)
{
    const struct row *left = a, *right = b;
    return left->peak < right->peak ? 1 : left->peak > right->peak ? -1 : 0;
}

static size_t rows_of(const struct book *book, unsigned device, struct row rows[static ROWS_MOST])
{
    size_t count = 0;
    for (uint32_t i = 0; i < books_libraries(book); i++) {
        rows[count] = row_of(book, device, i);
        count += rows[count].made > 0;
    }
    qsort(rows, count, sizeof *rows, by_peak);
    return count;
}

static size_t rows_beside(const struct book *book, unsigned device,
                          struct row rows[static ROWS_MOST])
{
    size_t count = 0;
    for (uint32_t i = 0; i < books_libraries(book); i++)
        for (unsigned kind = 0; kind < RUN_KINDS && count < ROWS_MOST; kind++) {
            rows[count] = row_beside(book, device, i, kind);
            count += rows[count].made > 0;
        }
    qsort(rows, count, sizeof *rows, by_peak);
    return count;
}

static void print_line(FILE *out, const char *name, const char *live, const char *peak,
                       const char *count, const char *kinds)
{
    fprintf(out, "  %-44.44s %10s %10s %10s  %s\n", name, live, peak, count, kinds);
}

static void print_rows(const struct book *book, const struct row *rows, size_t count, FILE *out)
{
    for (size_t i = 0; i < count && i < LIBRARIES_SHOWN; i++)
        print_line(out, books_library_name(book, rows[i].library), units_bytes(rows[i].live).text,
                   units_bytes(rows[i].peak).text, units_count(rows[i].made).text, rows[i].kinds);
    if (count > LIBRARIES_SHOWN)
        fprintf(out, "  and %zu more\n", count - LIBRARIES_SHOWN);
}

/* What no hook saw: NVML's figure for the process less what was; where NVML does not know the
 * process, what the device has in use less what all processes of the run have, which is others'
 * too. */
static void print_unseen(const struct books *books, const struct opened_book *opened,
                         unsigned index, FILE *out)
{
    const struct book_device *device = &opened->book->device[index];
    if (opened->last_unseen[index] != UINT64_MAX) {
        print_line(out, "not seen: context, modules, driver's pools",
                   units_bytes(opened->last_unseen[index]).text, "", "", "");
        return;
    }
    uint64_t used = residue_device_used(opened->book, device), seen = 0;
    for (size_t i = 0; i < books->count; i++)
        for (unsigned j = 0; j < books->list[i].book->devices; j++)
            if (memcmp(books->list[i].book->device[j].uuid, device->uuid, sizeof device->uuid) == 0)
                seen += books_has_ended(&books->list[i])
                            ? 0
                            : books_device_sums(books->list[i].book, j).used;
    if (strcmp(opened->book->driver, "cuda") != 0)
        fputs("  not seen: what HIP takes for itself, which nobody tells\n", out);
    else if (used == UINT64_MAX)
        fputs("  not seen: unknown, because NVML is not available\n", out);
    else
        print_line(out, "others and residue (NVML named no process)",
                   units_bytes(used > seen ? used - seen : 0).text, "", "", "");
}

static void print_group(const struct group_file *group, const struct book_device *device, FILE *out)
{
    char name[GROUP_NAME + 64];
    struct group_sum sum = group_file_sum(group, device->uuid);
    if (!sum.processes)
        return;
    snprintf(name, sizeof name, "others of group %.63s, %u processes", group->name, sum.processes);
    print_line(out, name, units_bytes(sum.used).text, "", "", "");
}

/* What segments have beside the blocks that are handed out. */
static void print_pools(const struct book *book, unsigned device, const struct row *rows,
                        size_t count, FILE *out)
{
    uint64_t used = books_device_sums(book, device).used, asked = 0;
    for (size_t i = 0; i < count; i++)
        asked += rows[i].live;
    print_line(out, "tarn's pools, beyond that", units_bytes(used > asked ? used - asked : 0).text,
               "", "", "");
}

static void print_device(const struct books *books, const struct opened_book *opened,
                         struct group_file *group, unsigned index, FILE *out)
{
    const struct book *book = opened->book;
    const struct book_device *device = &book->device[index];
    struct row rows[ROWS_MOST] = {{0}}, beside[ROWS_MOST] = {{0}};
    size_t count = rows_of(book, index, rows), beside_count = rows_beside(book, index, beside);
    struct books_device sums = books_device_sums(book, index);
    uint64_t limit = atomic_load(&device->limit), refused = atomic_load(&device->refused);
    if (!count && !beside_count && !refused)
        return;
    fprintf(out, "GPU %u, %s, %s%s%s\n", index, device->name, units_bytes(device->total).text,
            limit == UINT64_MAX ? "" : ", limit ",
            limit == UINT64_MAX ? "" : units_bytes(limit).text);
    print_line(out, "library", "at the end", "peak", "count", "kinds");
    print_rows(book, rows, count, out);
    if (book->pool)
        print_pools(book, index, rows, count, out);
    print_line(out, "all together", units_bytes(sums.used).text, units_bytes(sums.peak).text, "",
               "");
    print_unseen(books, opened, index, out);
    if (group->there)
        print_group(group, device, out);
    if (beside_count) {
        fputs("  beside the device's memory:\n", out);
        print_rows(book, beside, beside_count, out);
    }
    if (refused)
        fprintf(out, "  requests refused: %s, %s; the first: %.*s\n", units_count(refused).text,
                units_bytes(atomic_load(&device->refused_bytes)).text, BOOK_TEXT, device->refusal);
}

static void print_notes(const struct opened_book *opened, FILE *out)
{
    const struct book *book = opened->book;
    uint64_t unhooked = atomic_load(&book->unhooked), unfollowed = atomic_load(&book->unfollowed);
    if (unhooked)
        fprintf(out,
                "  partly seen: the program uses entry points that are newer than CUDA 13.5, the "
                "first %.63s\n",
                book->unhooked_name);
    if (unfollowed)
        fprintf(out,
                "  partly seen: %s allocations were not written down, for lack of host memory\n",
                units_count(unfollowed).text);
    if (atomic_load(&book->pool_ended))
        fprintf(out, "  --pool: nothing was pooled any more after %.95s\n", book->pool_why);
    if (book->limit_unmet[0])
        fprintf(out, "  --limit: the process has no device %.*s\n", (int)sizeof book->limit_unmet,
                book->limit_unmet);
    if (opened->replaced)
        fputs("  the process became another program by exec(): what it had then is shown\n", out);
    else if (!atomic_load(&book->ended))
        fputs(books_process_lives(opened)
                  ? "  the process runs on: what it has now is shown\n"
                  : "  the process ended without exit(): what it had then is shown\n",
              out);
}

static int by_bytes(const void *a, const void *b)
{
    uint64_t left = run_made_bytes((*(const struct opened_book *const *)a)->book);
    uint64_t right = run_made_bytes((*(const struct opened_book *const *)b)->book);
    return left < right ? 1 : left > right ? -1 : 0;
}

/* The verdict: the process and device with the highest peak, and who refused what anywhere. */
static void print_verdict(const struct books *books, FILE *out)
{
    const struct opened_book *opened = NULL;
    unsigned index = 0;
    uint64_t peak = 0, refused = 0;
    for (size_t i = 0; i < books->count; i++)
        for (unsigned j = 0; j < books->list[i].book->devices; j++) {
            struct books_device sums = books_device_sums(books->list[i].book, j);
            refused += atomic_load(&books->list[i].book->device[j].refused);
            if (sums.peak <= peak)
                continue;
            opened = &books->list[i];
            index = j;
            peak = sums.peak;
        }
    if (opened) {
        const struct book_device *device = &opened->book->device[index];
        struct row rows[ROWS_MOST] = {{0}};
        size_t count = rows_of(opened->book, index, rows);
        fprintf(out, "tarn run: at most %s of %s on GPU %u", units_bytes(peak).text,
                units_bytes(device->total).text, index);
        if (books->count > 1)
            fprintf(out, " by process %u", opened->book->process);
        if (count && !opened->book->pool)
            fprintf(out, ", %s of it by %s", units_bytes(rows[0].peak).text,
                    books_library_name(opened->book, rows[0].library));
    } else {
        fprintf(out, "tarn run: no memory of a device was allocated");
    }
    if (refused)
        fprintf(out, "; %s request%s refused", units_count(refused).text,
                refused == 1 ? " was" : "s were");
    fputc('\n', out);
}

void run_summary_print(const struct books *books, struct group_file *group, FILE *out)
{
    const struct opened_book *order[BOOKS_MOST] = {NULL};
    for (size_t i = 0; i < books->count; i++)
        order[i] = &books->list[i];
    qsort(order, books->count, sizeof *order, by_bytes);
    if (books->empty)
        fprintf(out,
                "tarn run: %zu process%s used the driver, and could not be recorded: the folder "
                "for temporary files "
                "has no room\n",
                books->empty, books->empty == 1 ? "" : "es");
    else if (!books->count)
        fputs("tarn run: no process used the driver through this shim. A program that opens the "
              "driver by an absolute path needs --audit; one that has become another user cannot "
              "be recorded\n",
              out);
    else
        print_verdict(books, out);
    for (size_t i = 0; i < books->count && i < PROCESSES_SHOWN; i++) {
        fprintf(out, "tarn run: process %u, %.100s\n", order[i]->book->process,
                order[i]->book->command);
        if (!run_made_bytes(order[i]->book))
            fputs("  allocated nothing\n", out);
        for (unsigned j = 0; j < order[i]->book->devices; j++)
            print_device(books, order[i], group, j, out);
        print_notes(order[i], out);
    }
    if (books->count + books->left_out > PROCESSES_SHOWN)
        fprintf(out, "and %zu more processes\n", books->count + books->left_out - PROCESSES_SHOWN);
}
