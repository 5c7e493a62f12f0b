/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A log as a snapshot in PyTorch's layout. Each block is a segment of its own, as each is the driver's: an allocation is the entries
 * segment_alloc and alloc, a free free_requested, free_completed and segment_free. The frame is the library that asked, with the exported
 * symbol nearest to the call; the note, its kind. The log is read twice: for what is live at the end, then for the traces. */
#include "launch/run_output.h"
#include "report/pickle_write.h"
#include "table.h"
#include "units.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <tarn/status.h>
#include <unistd.h>

struct writing {
    struct pickle_writer pickle;
    const struct book *book;
    const struct book_record *records;
    size_t count, written;
    const uint32_t *stacks; /* NULL: none */
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

static void write_frame(struct writing *writing, uint32_t number)
{
    const struct book_site *site = &writing->book->site[number];
    char name[sizeof site->symbol + 24];
    if (number) {
        snprintf(name, sizeof name, site->symbol[0] ? "%s" : "%s0x%llx", site->symbol,
                 (unsigned long long)site->offset);
        pickle_dict_begin(&writing->pickle);
        key_text(writing, "name", name);
        key_text(writing, "filename", writing->book->library[site->library < BOOK_LIBRARIES ? site->library : 0].path);
        key_number(writing, "line", 0);
        pickle_dict_end(&writing->pickle);
    }
}

/* The stack of a record, the caller first, as PyTorch has it; false where there is none. */
static bool key_stack(struct writing *writing, uint32_t number)
{
    if (!number || !writing->stack_memos || number >= writing->stack_words ||
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

static void write_entry(struct writing *writing, const struct book_record *record, const char *action)
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

/* Memory of the device: what else was logged (host memory, imports, nodes of graphs) has no place among its segments. A record without an
 * address was not written: there was no room for it, the driver refused the free, or the process was killed before. */
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
        const struct book_record *record = &writing->records[i];
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
    static const char *const sizes[] = {"total_size", "allocated_size", "active_size", "requested_size"};
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
        const struct book_record *record = &writing->records[i];
        bool names = record->is_free != BOOK_REFUSED; /* an address */
        uint32_t *slot = names ? table_add(&last, record->address, record->device, (uint32_t)i) : NULL;
        done = slot || !names;
        if (slot)
            *slot = (uint32_t)i;
    }
    writing->written = 0;
    pickle_list_begin(&writing->pickle);
    for (size_t i = 0; i < writing->count && done; i++) {
        const struct book_record *record = &writing->records[i];
        if (record->is_free != BOOK_ALLOC || !counts(record) ||
            *table_find(&last, record->address, record->device) != i)
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
    pickle_dict_end(&writing->pickle);
    pickle_dict_end(&writing->pickle);
    pickle_end(&writing->pickle);
    return done;
}

/* The file of stacks beside a log, where there is one. */
static void stacks_open(struct writing *writing, const char *log)
{
    char *path = strdup(log);
    struct stat about;
    if (path)
        memcpy(path + strlen(path) - strlen(".log"), ".stk", sizeof ".stk");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    free(path);
    if (file >= 0 && fstat(file, &about) == 0 && about.st_size > 0) {
        size_t room = (size_t)about.st_size / sizeof(uint32_t), words = atomic_load(&writing->book->stack_words);
        void *memory = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, file, 0);
        if (memory != MAP_FAILED) {
            writing->stacks = memory;
            writing->stack_words = words < room ? words : room;
            writing->stack_memos = calloc(room, sizeof *writing->stack_memos);
        }
    }
    if (file >= 0)
        close(file);
}

static bool write_records(const struct opened_book *opened, const struct book_record *records, size_t count,
                          const char *path)
{
    struct writing *writing = calloc(1, sizeof *writing);
    struct sink *sink = malloc(sizeof *sink);
    tarn_status status = TARN_ERROR_OUT_OF_HOST_MEMORY;
    if (writing && sink) {
        *writing = (struct writing){.book = opened->book, .records = records, .count = count};
        stacks_open(writing, opened->log);
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
    if (writing)
        free(writing->stack_memos);
    free(writing); /* the stacks stay mapped: the program ends soon */
    return !status;
}

static bool write_log(const struct opened_book *opened, const char *path)
{
    struct stat about;
    const struct book *book = opened->book;
    int file = open(opened->log, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &about) || about.st_size == 0) {
        fprintf(stderr, "tarn run: process %u has no log: %s\n", book->process,
                file < 0               ? strerror(errno)
                : run_made_bytes(book) ? "there was no place for it, on the disk or among the addresses of the process"
                                       : "it allocated nothing");
        if (file >= 0)
            close(file);
        return false;
    }
    size_t room = (size_t)about.st_size / sizeof(struct book_record), count = atomic_load(&book->log_count);
    void *records = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    if (records == MAP_FAILED) {
        fprintf(stderr, "tarn run: the log of process %u cannot be read: %s\n", book->process, strerror(errno));
        return false;
    }
    bool done = write_records(opened, records, count < room ? count : room, path);
    if (atomic_load(&book->log_lost))
        fprintf(stderr, "tarn run: %s lacks %s events, for which there was no place on the disk\n", path,
                units_count(atomic_load(&book->log_lost)).text);
    munmap(records, (size_t)about.st_size);
    return done;
}

bool run_snapshots_write(const struct books *books, const char *path)
{
    size_t most = 0;
    bool done = true;
    for (size_t i = 1; i < books->count; i++)
        if (run_made_bytes(books->list[i].book) > run_made_bytes(books->list[most].book))
            most = i;
    for (size_t i = 0; i < books->count; i++) {
        char *other = NULL;
        if (i != most &&
            (!run_made_bytes(books->list[i].book) || asprintf(&other, "%s.%u", path, books->list[i].book->process) < 0))
            continue;
        if (write_log(&books->list[i], i == most ? path : other))
            fprintf(stderr, "tarn run: wrote %s\n", i == most ? path : other);
        else
            done = false;
        free(other);
    }
    return done;
}
