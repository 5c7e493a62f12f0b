/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "launch/books.h"
#include "base/file.h"
#include "base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_open(const struct books *books, const char *log)
{
    for (size_t i = 0; i < books->count; i++)
        if (strcmp(books->list[i].log, log) == 0)
            return true;
    return false;
}

/* Reading -------------------------------------------------------------------------------------- */

/* Copies a part of the book by a read, not by a mapping. If the process cuts the file short, a read
 * returns less, but an access to a mapping would end this program. */
static bool copy(const struct opened_book *opened, size_t from, size_t to)
{
    return file_read_at(opened->file, (char *)opened->book + from, to - from, (off_t)from);
}

static uint32_t at_most(uint32_t count, uint32_t most)
{
    return count < most ? count : most;
}

/* What the process wrote of itself and its devices. */
static void bound(struct book *book)
{
    book->devices = at_most(book->devices, BOOK_DEVICES);
    atomic_store(&book->libraries, at_most(atomic_load(&book->libraries), BOOK_LIBRARIES));
    atomic_store(&book->sites, at_most(atomic_load(&book->sites), BOOK_SITES));
    text_end_plain(book->driver, sizeof book->driver);
    text_end_plain(book->group, sizeof book->group);
    text_end_plain(book->command, sizeof book->command);
    text_end_plain(book->unhooked_name, sizeof book->unhooked_name);
    text_end_plain(book->limit_unmet, sizeof book->limit_unmet);
    text_end_plain(book->pool_why, sizeof book->pool_why);
    for (unsigned i = 0; i < BOOK_DEVICES; i++) {
        text_end_plain(book->device[i].address, sizeof book->device[i].address);
        text_end_plain(book->device[i].name, sizeof book->device[i].name);
        text_end_plain(book->device[i].refusal, sizeof book->device[i].refusal);
    }
}

void books_read_devices(struct opened_book *opened)
{
    (void)copy(opened, 0, offsetof(struct book, library));
    bound(opened->book);
}

/* Only what is in use, so that the copy of a process that does little is small. */
void books_read(struct opened_book *opened)
{
    struct book *book = opened->book;
    books_read_devices(opened);
    uint32_t libraries = atomic_load(&book->libraries), sites = atomic_load(&book->sites),
             devices = book->devices;
    (void)copy(opened, offsetof(struct book, library), offsetof(struct book, library[libraries]));
    (void)copy(opened, offsetof(struct book, site), offsetof(struct book, site[sites]));
    (void)copy(opened, offsetof(struct book, holder), offsetof(struct book, holder[devices]));
    (void)copy(opened, offsetof(struct book, account), offsetof(struct book, account[devices]));
    (void)copy(opened, offsetof(struct book, desk), sizeof *book);
    for (uint32_t i = 0; i < libraries; i++)
        text_end_plain(book->library[i].path, sizeof book->library[i].path);
    for (uint32_t i = 0; i < sites; i++)
        text_end_plain(book->site[i].symbol, sizeof book->site[i].symbol);
}

static void write_at(const struct opened_book *opened, size_t offset, const void *value,
                     size_t size)
{
    (void)!pwrite(opened->file, value, size, (off_t)offset);
}

void books_write_residue(struct opened_book *opened, unsigned device, uint64_t bytes)
{
    atomic_store(&opened->book->device[device].residue, bytes);
    write_at(opened, offsetof(struct book, device[device].residue), &bytes, sizeof bytes);
}

void books_write_looked(struct opened_book *opened, unsigned device)
{
    const uint32_t looked = 1;
    atomic_store(&opened->book->device[device].looked, looked);
    write_at(opened, offsetof(struct book, device[device].looked), &looked, sizeof looked);
}

/* Opening -------------------------------------------------------------------------------------- */

static void book_close(struct opened_book *opened)
{
    close(opened->file);
    free(opened->book);
    free(opened->log);
}

/* False where it is not a book, or not one yet; then *empty says whether the file has nothing in
 * it. */
static bool book_open(const char *path, struct opened_book *opened, bool *empty)
{
    struct stat about = {0};
    *opened =
        (struct opened_book){.file = open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)};
    if (opened->file < 0)
        return false;
    bool is_file = fstat(opened->file, &about) == 0 && S_ISREG(about.st_mode);
    *empty = is_file && about.st_size == 0;
    if (is_file && (size_t)about.st_size >= sizeof *opened->book)
        opened->book = calloc(1, sizeof *opened->book);
    if (opened->book && copy(opened, 0, offsetof(struct book, start_ns)) &&
        opened->book->magic == BOOK_MAGIC && opened->book->version == BOOK_VERSION) {
        books_read(opened);
        memset(opened->least_unseen, 0xff, sizeof opened->least_unseen);
        memset(opened->last_unseen, 0xff, sizeof opened->last_unseen);
        return true;
    }
    book_close(opened);
    return false;
}

/* Of several books of one process number only the latest is of what runs now. */
static void replace(struct books *books, struct opened_book *added)
{
    for (struct opened_book *other = books->list; other < added; other++)
        if (other->book->process == added->book->process) {
            bool is_later = added->book->start_ns >= other->book->start_ns;
            (is_later ? other : added)->replaced = true;
        }
}

static void look_at(struct books *books, const char *folder, const char *name)
{
    char *path = NULL, *log = NULL;
    bool empty = false;
    int stem = (int)(strlen(name) - strlen(".book"));
    if (asprintf(&path, "%s/%s", folder, name) < 0)
        return;
    if (asprintf(&log, "%s/%.*s.log", folder, stem, name) >= 0 && !is_open(books, log)) {
        struct opened_book opened;
        books->left_out += books->count == BOOKS_MOST;
        if (books->count < BOOKS_MOST && book_open(path, &opened, &empty)) {
            opened.log = log;
            log = NULL;
            books->list[books->count] = opened;
            replace(books, &books->list[books->count++]);
        }
        books->empty += empty;
    }
    free(log);
    free(path);
}

void books_look(struct books *books, const char *folder)
{
    DIR *entries = opendir(folder);
    struct dirent *entry;
    books->left_out = books->empty = 0;
    while (entries && (entry = readdir(entries))) {
        const char *end = strrchr(entry->d_name, '.');
        if (end && strcmp(end, ".book") == 0)
            look_at(books, folder, entry->d_name);
    }
    if (entries)
        closedir(entries);
}

bool books_has_ended(const struct opened_book *opened)
{
    return opened->replaced || atomic_load(&opened->book->ended);
}

bool books_process_lives(const struct opened_book *opened)
{
    const struct book *book = opened->book;
    char path[40], text[512] = "";
    if (opened->replaced || (kill((pid_t)book->process, 0) && errno != EPERM))
        return false;
    snprintf(path, sizeof path, "/proc/%u/stat", book->process);
    FILE *in = fopen(path, "re");
    /* It went just now, if there is /proc at all. */
    if (!in && errno == ENOENT)
        return access("/proc/self/stat", R_OK) != 0;
    size_t length = in ? fread(text, 1, sizeof text - 1, in) : 0;
    if (in)
        fclose(in);
    /* Behind the name, which may have anything in it */
    const char *state = length ? strrchr(text, ')') : NULL;
    return !state || (strncmp(state, ") Z", 3) != 0 && strncmp(state, ") X", 3) != 0);
}

uint32_t books_libraries(const struct book *book)
{
    uint32_t count = atomic_load(&book->libraries);
    return count < BOOK_LIBRARIES ? count : BOOK_LIBRARIES;
}

const char *books_library_name(const struct book *book, uint32_t library)
{
    const char *path = book->library[library].path, *slash = strrchr(path, '/');
    return !path[0] ? "(code of no file)" : slash ? slash + 1 : path;
}

/* The highest of the noted peak, the highest that one thread's unsettled changes reached, and the
 * value now. */
static uint64_t peak_of(uint64_t peak, uint64_t settled, int64_t high, uint64_t live)
{
    uint64_t reached = book_positive(settled + (uint64_t)high);
    peak = reached > peak ? reached : peak;
    return live > peak ? live : peak;
}

struct books_sums books_account(const struct book *book, unsigned device, uint32_t library,
                                unsigned kind)
{
    const struct book_account *account = &book->account[device][library][kind];
    struct book_unsettled desks = book_unsettled(book, device, library, kind);
    uint64_t settled = atomic_load(&account->live);
    struct books_sums sums = {.live = book_positive(settled + desks.live),
                              .made = atomic_load(&account->made) + desks.made,
                              .made_bytes = atomic_load(&account->made_bytes) + desks.made_bytes};
    sums.peak = peak_of(atomic_load(&account->peak), settled, desks.high, sums.live);
    return sums;
}

struct books_sums books_holder(const struct book *book, unsigned device, uint32_t library)
{
    const struct book_holder *holder = &book->holder[device][library];
    struct book_unsettled desks = book_unsettled(book, device, library, RUN_KINDS);
    uint64_t settled = atomic_load(&holder->live);
    struct books_sums sums = {.live = book_positive(settled + desks.live),
                              .made = desks.made,
                              .made_bytes = desks.made_bytes};
    sums.peak = peak_of(atomic_load(&holder->peak), settled, desks.high, sums.live);
    for (unsigned kind = 0; kind < RUN_KINDS; kind++)
        if (run_kind_counts(kind)) {
            sums.made += atomic_load(&book->account[device][library][kind].made);
            sums.made_bytes += atomic_load(&book->account[device][library][kind].made_bytes);
        }
    uint64_t most = book->exact ? atomic_load(&book->device[device].peak) : UINT64_MAX;
    /* A library's is not exact, and may not pass a limit. */
    sums.peak = sums.peak < most ? sums.peak : most;
    return sums;
}

struct books_device books_device_sums(const struct book *book, unsigned device)
{
    const struct book_device *from = &book->device[device];
    struct book_unsettled desks = book_unsettled(book, device, BOOK_LIBRARIES, RUN_KINDS);
    uint64_t settled = atomic_load(&from->used);
    struct books_device sums = {
        .used = settled, .peak = atomic_load(&from->peak), .refused = atomic_load(&from->refused)};
    if (!book->exact) {
        sums.used = book_positive(settled + desks.live);
        sums.peak = peak_of(sums.peak, settled, desks.high, sums.used);
    }
    uint32_t libraries = books_libraries(book);
    for (uint32_t i = 0; i < libraries; i++) {
        struct books_sums holder = books_holder(book, device, i);
        sums.made += holder.made;
        sums.made_bytes += holder.made_bytes;
    }
    uint64_t blocks = book_positive(atomic_load(&from->blocks) + desks.blocks);
    sums.blocks = blocks < sums.made ? blocks : sums.made;
    return sums;
}

void books_close(struct books *books)
{
    for (size_t i = 0; i < books->count; i++)
        book_close(&books->list[i]);
    books->count = 0;
}
