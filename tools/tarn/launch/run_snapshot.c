/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A log as a snapshot in PyTorch's layout. Each block is a segment of its own, as each is the
 * driver's: an allocation is the entries segment_alloc and alloc, a free free_requested,
 * free_completed and segment_free. The frame is the library that asked, with the exported symbol
 * nearest to the call; the note, its kind. The log is read twice: for what is live at the end, then
 * for the traces. The program that wrote it may run on and write anything into it: each record is
 * used from a copy, and the second reading need not be as the first. */
#include "base/file.h"
#include "launch/run_output.h"
#include "report/snapshot/pickle_write.h"
#include "table.h"
#include "units.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tarn/core.h>
#include <unistd.h>

enum { RECORDS_AT_ONCE = 4096 };

struct writing {
    struct pickle_writer pickle;
    const struct book *book;
    int log;
    size_t count, written;
    struct book_record records[RECORDS_AT_ONCE]; /* a copy of those from `first` on */
    size_t first;
    uint32_t *stacks; /* a copy; NULL: none */
    size_t stack_words;
    uint32_t *stack_memos;       /* by a stack's number */
    uint32_t frames[BOOK_SITES]; /* memos */
};

static const char *const kind_texts[RUN_KINDS] = {
#define X(name, text, counts) text,
    RUN_KIND_LIST(X)
#undef X
};

static void key_number(struct writing *writing, const char *key, uint64_t value)
{
    pickle_text(&writing->pickle, key);
    pickle_unsigned(&writing->pickle, value);
}

static void key_text(struct writing *writing, const char *key, const char *value)
{
    pickle_text(&writing->pickle, key);
    pickle_text(&writing->pickle, value);
}

/* A record of the log, until the next call. One that the program has cut off is all 0, which counts
 * for nothing. */
static const struct book_record *record_at(struct writing *writing, size_t index)
{
    size_t first = index - index % RECORDS_AT_ONCE, there = writing->count - first;
    if (first != writing->first) {
        size_t bytes =
            (there < RECORDS_AT_ONCE ? there : RECORDS_AT_ONCE) * sizeof *writing->records;
        memset(writing->records, 0, sizeof writing->records);
        (void)file_read_at(writing->log, writing->records, bytes,
                           (off_t)(first * sizeof *writing->records));
        writing->first = first;
    }
    return &writing->records[index - first];
}

static void write_frame(struct writing *writing, uint32_t number)
{
    const struct book_site *site = &writing->book->site[number];
    char name[sizeof site->symbol + 24];
    if (number) {
        snprintf(name, sizeof name, site->symbol[0] ? "%s" : "%s0x%llx", site->symbol,
                 (unsigned long long)site->offset);
        pickle_dict_begin(&writing->pickle);
        key_text(writing, "name", name);
        key_text(writing, "filename",
                 writing->book->library[site->library < BOOK_LIBRARIES ? site->library : 0].path);
        key_number(writing, "line", 0);
        pickle_dict_end(&writing->pickle);
    }
}

/* The stack of a record, the caller first, as PyTorch has it; false where there is none. */
static bool key_stack(struct writing *writing, uint32_t number)
{
    if (!number || !writing->stack_memos || number >= writing->stack_words ||
        writing->stacks[number] > BOOK_FRAMES ||
        writing->stacks[number] >= writing->stack_words - number)
        return false;
    if (writing->stack_memos[number]) {
        pickle_again(&writing->pickle, writing->stack_memos[number]);
        return true;
    }
    pickle_list_begin(&writing->pickle);
    for (uint32_t i = 0; i < writing->stacks[number]; i++) {
        uint32_t site = writing->stacks[number + 1 + i];
        if (site && site < BOOK_SITES) {
            pickle_list_item(&writing->pickle, i);
            write_frame(writing, site);
        }
    }
    pickle_list_end(&writing->pickle);
    writing->stack_memos[number] = pickle_memoize(&writing->pickle);
    return true;
}

static void key_frames(struct writing *writing, const struct book_record *record)
{
    uint32_t number = record->site < BOOK_SITES ? record->site : 0;
    pickle_text(&writing->pickle, "frames");
    if (key_stack(writing, record->stack))
        return;
    if (writing->frames[number]) {
        pickle_again(&writing->pickle, writing->frames[number]);
        return;
    }
    pickle_list_begin(&writing->pickle);
    write_frame(writing, number);
    pickle_list_end(&writing->pickle);
    writing->frames[number] = pickle_memoize(&writing->pickle);
}

static const char *kind_text(const struct book_record *record)
{
    return record->kind < RUN_KINDS ? kind_texts[record->kind] : "not known";
}

static void write_entry(struct writing *writing, const struct book_record *record,
                        const char *action)
{
    struct pickle_writer *pickle = &writing->pickle;
    pickle_list_item(pickle, writing->written++);
    pickle_dict_begin(pickle);
    key_text(writing, "action", action);
    key_number(writing, record->is_free == BOOK_REFUSED ? "device_free" : "addr", record->address);
    key_number(writing, "size", record->size);
    key_number(writing, "stream", record->stream);
    key_number(writing, "time_us", (writing->book->start_ns + record->time_ns) / 1000);
    key_text(writing, "user_metadata", kind_text(record));
    key_number(writing, "thread", record->thread);
    key_frames(writing, record);
    pickle_dict_end(pickle);
}

/* Memory of the device: what else was logged (host memory, imports, nodes of graphs) has no place
 * among its segments. A record without an address was not written: there was no room for it, the
 * driver refused the free, or the process was killed before. */
static bool counts(const struct book_record *record)
{
    return (record->address || record->is_free == BOOK_REFUSED) && run_kind_counts(record->kind);
}

static bool is_of(const struct book_record *record, unsigned device)
{
    return record->device == device && counts(record);
}

static void write_trace(struct writing *writing, unsigned device)
{
    writing->written = 0;
    pickle_list_begin(&writing->pickle);
    for (size_t i = 0; i < writing->count; i++) {
        const struct book_record *record = record_at(writing, i);
        if (!is_of(record, device))
            continue;
        if (record->is_free == BOOK_REFUSED) {
            write_entry(writing, record, "oom");
        } else if (record->is_free == BOOK_FREE) {
            write_entry(writing, record, "free_requested");
            write_entry(writing, record, "free_completed");
            write_entry(writing, record, "segment_free");
        } else {
            write_entry(writing, record, "segment_alloc");
            write_entry(writing, record, "alloc");
        }
    }
    pickle_list_end(&writing->pickle);
}

static void write_segment(struct writing *writing, const struct book_record *record)
{
    struct pickle_writer *pickle = &writing->pickle;
    static const char *const sizes[] = {"total_size", "allocated_size", "active_size",
                                        "requested_size"};
    pickle_dict_begin(pickle);
    key_number(writing, "device", record->device);
    key_number(writing, "address", record->address);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        key_number(writing, sizes[i], record->size);
    key_number(writing, "stream", record->stream);
    key_text(writing, "segment_type", "large");
    pickle_text(pickle, "segment_pool_id");
    pickle_pair(pickle, 0, 0);
    pickle_text(pickle, "is_expandable");
    pickle_boolean(pickle, false);
    key_frames(writing, record);
    pickle_text(pickle, "blocks");
    pickle_list_begin(pickle);
    pickle_dict_begin(pickle);
    key_number(writing, "address", record->address);
    key_number(writing, "size", record->size);
    key_number(writing, "requested_size", record->size);
    key_text(writing, "state", "active_allocated");
    key_text(writing, "user_metadata", kind_text(record));
    key_frames(writing, record);
    pickle_dict_end(pickle);
    pickle_list_end(pickle);
    pickle_dict_end(pickle);
}

/* The last record of an address on a device says whether it is live. False without host memory. */
static bool write_segments(struct writing *writing)
{
    struct table last = {0};
    bool done = true;
    for (size_t i = 0; i < writing->count && done; i++) {
        const struct book_record *record = record_at(writing, i);
        bool names = record->is_free != BOOK_REFUSED; /* an address */
        uint32_t *slot =
            names ? table_add(&last, record->address, record->device, (uint32_t)i) : NULL;
        done = slot || !names;
        if (slot)
            *slot = (uint32_t)i;
    }
    writing->written = 0;
    pickle_list_begin(&writing->pickle);
    for (size_t i = 0; i < writing->count && done; i++) {
        const struct book_record *record = record_at(writing, i);
        if (record->is_free != BOOK_ALLOC || !counts(record))
            continue;
        const uint32_t *number = table_find(&last, record->address, record->device);
        if (!number || *number != i)
            continue;
        pickle_list_item(&writing->pickle, writing->written++);
        write_segment(writing, record);
    }
    pickle_list_end(&writing->pickle);
    table_finish(&last);
    return done;
}

static bool write_all(struct writing *writing, struct sink *sink)
{
    pickle_begin(&writing->pickle, sink);
    pickle_dict_begin(&writing->pickle);
    pickle_text(&writing->pickle, "segments");
    bool done = write_segments(writing);
    pickle_text(&writing->pickle, "device_traces");
    pickle_list_begin(&writing->pickle);
    for (unsigned i = 0; i < writing->book->devices; i++)
        write_trace(writing, i);
    pickle_list_end(&writing->pickle);
    pickle_text(&writing->pickle, "tarn_recorded");
    pickle_dict_begin(&writing->pickle);
    key_text(writing, "source", "tarn run");
    key_number(writing, "pooled", writing->book->pool);
    pickle_dict_end(&writing->pickle);
    pickle_dict_end(&writing->pickle);
    pickle_end(&writing->pickle);
    return done;
}

/* A file that the program has made: it may be no plain one by now, and have any length. -1 with
 * errno. */
static int open_plain(const char *path, size_t *bytes)
{
    struct stat about;
    int file = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0)
        return -1;
    if (fstat(file, &about) || !S_ISREG(about.st_mode)) {
        close(file);
        errno = EINVAL;
        return -1;
    }
    *bytes = (size_t)about.st_size;
    return file;
}

/* The file of stacks beside a log, where there is one. */
static void stacks_read(struct writing *writing, const char *log)
{
    char *path = strdup(log);
    size_t bytes = 0, words = atomic_load(&writing->book->stack_words);
    if (path)
        memcpy(path + strlen(path) - strlen(".log"), ".stk", sizeof ".stk");
    int file = path ? open_plain(path, &bytes) : -1;
    free(path);
    bytes = bytes < BOOK_STACKS_BYTES ? bytes : BOOK_STACKS_BYTES;
    words = words < bytes / sizeof(uint32_t) ? words : bytes / sizeof(uint32_t);
    if (file >= 0 && words) {
        writing->stacks = calloc(words, sizeof *writing->stacks);
        writing->stack_memos = calloc(words, sizeof *writing->stack_memos);
        if (writing->stacks && writing->stack_memos &&
            file_read_at(file, writing->stacks, words * sizeof *writing->stacks, 0))
            writing->stack_words = words;
    }
    if (file >= 0)
        close(file);
}

static bool write_records(const struct opened_book *opened, int log, size_t count, const char *path)
{
    struct writing *writing = calloc(1, sizeof *writing);
    struct sink *sink = malloc(sizeof *sink);
    tarn_status status = TARN_ERROR_OUT_OF_HOST_MEMORY;
    if (writing && sink) {
        writing->book = opened->book;
        writing->log = log;
        writing->count = count;
        writing->first = SIZE_MAX; /* nothing is read yet */
        stacks_read(writing, opened->log);
        status = sink_to_file(sink, path, 0600);
        if (!status) {
            bool done = write_all(writing, sink);
            status = sink_end(sink, !done);
            status = status || done ? status : TARN_ERROR_OUT_OF_HOST_MEMORY;
        }
    }
    if (status)
        fprintf(stderr, "tarn run: %s could not be written: %s\n", path,
                status == TARN_ERROR_OUT_OF_HOST_MEMORY ? "no host memory" : tarn_last_error());
    free(sink);
    if (writing) {
        free(writing->stacks);
        free(writing->stack_memos);
    }
    free(writing);
    return !status;
}

static bool write_log(const struct opened_book *opened, const char *path)
{
    const struct book *book = opened->book;
    size_t bytes = 0;
    int log = open_plain(opened->log, &bytes);
    if (log < 0 || bytes == 0) {
        fprintf(stderr, "tarn run: process %u has no log: %s\n", book->process,
                log < 0 ? strerror(errno)
                : run_made_bytes(book)
                    ? "there was no place for it, on the disk or among the addresses of the process"
                    : "it allocated nothing");
        if (log >= 0)
            close(log);
        return false;
    }
    bytes = bytes < BOOK_LOG_BYTES ? bytes : BOOK_LOG_BYTES;
    size_t room = bytes / sizeof(struct book_record), count = atomic_load(&book->log_count);
    bool done = write_records(opened, log, count < room ? count : room, path);
    close(log);
    if (atomic_load(&book->log_lost))
        fprintf(stderr, "tarn run: %s lacks %s events, for which there was no place on the disk\n",
                path, units_count(atomic_load(&book->log_lost)).text);
    return done;
}

/* The file of a process beside the one with most. Programs that one process was in turn, by exec(),
 * have a file each. NULL without host memory. */
static char *path_beside(const struct books *books, size_t index, size_t most, const char *path)
{
    uint32_t process = books->list[index].book->process;
    unsigned before = 0;
    char *text = NULL;
    for (size_t i = 0; i < index; i++)
        before += i != most && books->list[i].book->process == process;
    int length = before ? asprintf(&text, "%s.%u.%u", path, process, before)
                        : asprintf(&text, "%s.%u", path, process);
    return length < 0 ? NULL : text;
}

bool run_snapshots_write(const struct books *books, const char *path)
{
    size_t most = 0;
    bool done = true;
    for (size_t i = 1; i < books->count; i++)
        if (run_made_bytes(books->list[i].book) > run_made_bytes(books->list[most].book))
            most = i;
    for (size_t i = 0; i < books->count; i++) {
        if (i != most && !run_made_bytes(books->list[i].book))
            continue;
        char *other = i == most ? NULL : path_beside(books, i, most, path);
        if (i != most && !other) {
            done = false;
            continue;
        }
        if (write_log(&books->list[i], i == most ? path : other))
            fprintf(stderr, "tarn run: wrote %s\n", i == most ? path : other);
        else
            done = false;
        free(other);
    }
    return done;
}
