/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Reads live pages (src/report/page.h). A page is read, not mapped: of a file that somebody cuts
 * short a read gives less, where a mapping would end the reader. */
#include "base/file.h"
#include "base/text.h"
#include "top/top.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* How long to wait while the page that was asked for is being written. */
#define WAIT_NS UINT64_C(200000000)
#define TRY_NS 1000000
#define NS_PER_MS UINT64_C(1000000)
#define SILENT_INTERVALS 8 /* without a change, after which the process counts as silent */
#define SILENT_LEAST 2.0   /* seconds */

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static enum top_result bad(struct top_why *why, const char *path, const char *text)
{
    snprintf(why->text, sizeof why->text, "%s: %s", path, text);
    return TOP_BAD;
}

/* Whatever comes of it, the texts of the head end and can be shown. */
static enum top_result read_head(int file, struct page_head *head, struct top_why *why)
{
    memset(head, 0, sizeof *head);
    bool there = file_read_at(file, head, sizeof *head, 0);
    text_end_plain(head->name, sizeof head->name);
    text_end_plain(head->library, sizeof head->library);
    text_end_plain(head->driver, sizeof head->driver);
    if (!there || memcmp(head->magic, "\0\0\0\0\0\0\0", sizeof head->magic) == 0)
        return TOP_NONE; /* it is being made */
    if (memcmp(head->magic, PAGE_MAGIC, sizeof head->magic) != 0)
        return bad(why, "the page", "it is not a page of tarn");
    if (head->version == PAGE_VERSION && head->size == sizeof(struct page))
        return TOP_OK;
    snprintf(why->text, sizeof why->text,
             "process %llu runs tarn %s, whose page has layout %u of %u bytes; this program reads "
             "layout %u of %zu: use "
             "the `tarn` of that version",
             (unsigned long long)head->pid, head->library, head->version, head->size, PAGE_VERSION,
             sizeof(struct page));
    return TOP_BAD;
}

enum top_result top_open(const char *path, int *file, struct top_why *why)
{
    struct stat info;
    struct page_head head;
    int opened = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (opened < 0 && errno == ENOENT)
        return TOP_NONE;
    if (opened < 0 && errno == EACCES)
        return TOP_FOREIGN;
    if (opened < 0)
        return bad(why, path, strerror(errno));
    enum top_result result = TOP_OK;
    if (fstat(opened, &info) || !S_ISREG(info.st_mode))
        result = bad(why, path, "it is not a plain file");
    else if (info.st_uid != geteuid() && geteuid() != 0)
        result = TOP_FOREIGN;
    else if (!page_is_shown(opened))
        result = TOP_ENDED;
    else
        result = read_head(opened, &head, why);
    if (result == TOP_OK)
        *file = opened;
    else
        close(opened);
    return result;
}

/* A list says no more than it has room for. */
static bool count_fits(struct survey_count count, uint32_t room)
{
    return count.here <= room && count.here <= count.there;
}

static bool is_sound(struct survey *survey)
{
    if (!count_fits(survey->device_count, SURVEY_DEVICES) ||
        !count_fits(survey->pool_count, SURVEY_POOLS) ||
        !count_fits(survey->stream_count, SURVEY_STREAMS) ||
        !count_fits(survey->handle_count, SURVEY_HANDLES) ||
        !count_fits(survey->library_count, SURVEY_LIBRARIES) ||
        !count_fits(survey->graph_count, SURVEY_GRAPHS) || survey->has_pinned > 1)
        return false;
    for (uint32_t i = 0; i < survey->device_count.here; i++) {
        text_end_plain(survey->devices[i].name, sizeof survey->devices[i].name);
        text_end_plain(survey->devices[i].uuid, sizeof survey->devices[i].uuid);
        text_end_plain(survey->devices[i].pci, sizeof survey->devices[i].pci);
    }
    for (uint32_t i = 0; i < survey->handle_count.here; i++)
        text_end_plain(survey->handles[i].name, sizeof survey->handles[i].name);
    for (uint32_t i = 0; i < survey->library_count.here; i++)
        text_end_plain(survey->libraries[i].name, sizeof survey->libraries[i].name);
    return true;
}

static bool read_sequence(int file, uint64_t *sequence)
{
    bool done = file_read_at(file, sequence, sizeof *sequence, offsetof(struct page, sequence));
    atomic_thread_fence(memory_order_seq_cst);
    return done;
}

/* Copies the survey. False where it was written to meanwhile, or is not there. */
static bool copy(int file, struct top_reading *reading)
{
    uint64_t after;
    if (!read_sequence(file, &reading->sequence) || reading->sequence == 0 || reading->sequence % 2)
        return false;
    if (!file_read_at(file, &reading->survey, sizeof reading->survey,
                      offsetof(struct page, survey)))
        return false;
    atomic_thread_fence(memory_order_seq_cst);
    return read_sequence(file, &after) && after == reading->sequence;
}

/* Tries at least once, and waits no longer than until `deadline`. */
static enum top_result read_until(int file, struct top_reading *reading, uint64_t deadline,
                                  struct top_why *why)
{
    enum top_result result = read_head(file, &reading->head, why);
    if (result != TOP_OK)
        return result;
    for (;;) {
        if (copy(file, reading))
            return is_sound(&reading->survey) ? TOP_OK
                                              : bad(why, "the page", "its counts make no sense");
        if (!page_is_shown(file))
            return TOP_ENDED;
        if (now_ns() >= deadline)
            return TOP_NONE;
        nanosleep(&(struct timespec){.tv_nsec = TRY_NS}, NULL);
    }
}

enum top_result top_read(int file, struct top_reading *reading, struct top_why *why)
{
    return read_until(file, reading, now_ns() + WAIT_NS, why);
}

double top_patience(const struct top_reading *reading)
{
    double patience = SILENT_INTERVALS * (double)reading->head.interval_ns / 1e9;
    return patience > SILENT_LEAST ? patience : SILENT_LEAST;
}

bool top_read_newer(int file, const struct top_reading *before, struct top_reading *reading)
{
    struct top_why why;
    uint64_t end = now_ns() + (uint64_t)(top_patience(before) * 1e9);
    while (top_read(file, reading, &why) != TOP_OK || reading->sequence == before->sequence) {
        if (now_ns() > end || !page_is_shown(file))
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 10 * TRY_NS}, NULL);
    }
    return true;
}

/* Lists ---------------------------------------------------------------------------------------- */

enum { USERS_MOST = 64 };

struct search {
    const char *directory;
    struct top_list *list;
    uint64_t deadline;
    struct user {
        uid_t number;
        size_t pages;
        uint64_t waited_ns;
    } users[USERS_MOST]; /* those beyond share the last one */
    size_t user_count;
    bool failed;
};

static struct user *user_of(struct search *search, uid_t number)
{
    for (size_t i = 0; i < search->user_count; i++)
        if (search->users[i].number == number)
            return &search->users[i];
    if (search->user_count == USERS_MOST)
        return &search->users[USERS_MOST - 1];
    search->users[search->user_count] = (struct user){.number = number};
    return &search->users[search->user_count++];
}

static struct top_entry *entry_add(struct top_list *list)
{
    struct top_entry *entries = realloc(list->entries, (list->count + 1) * sizeof *entries);
    if (!entries)
        return NULL;
    list->entries = entries;
    entries[list->count] = (struct top_entry){.path = ""};
    return &entries[list->count++];
}

/* What the page's name has behind its prefix, made another than that of each entry of the same
 * name: two directories may have pages of the same number, of processes in two PID namespaces. */
static void name_entry(const struct top_list *list, struct top_entry *entry, const char *file)
{
    unsigned same = 0;
    snprintf(entry->number, sizeof entry->number, "%.20s", file + strlen(PAGE_PREFIX));
    text_make_plain(entry->number);
    for (size_t i = 0; i < list->count; i++) {
        const struct top_entry *other = &list->entries[i];
        same += other != entry && !other->foreign &&
                strcmp(other->head.name, entry->head.name) == 0 &&
                strncmp(other->number, entry->number, strlen(entry->number)) == 0 &&
                (other->number[strlen(entry->number)] == '\0' ||
                 other->number[strlen(entry->number)] == '+');
    }
    if (same) {
        size_t length = strlen(entry->number);
        snprintf(entry->number + length, sizeof entry->number - length, "+%u", same);
    }
}

static void read_entry(struct search *search, struct user *user, struct top_entry *entry, int file)
{
    struct top_why why = {""};
    struct top_reading *reading = malloc(sizeof *reading);
    if (!reading) {
        search->failed = true;
        return;
    }
    uint64_t start = now_ns(), most = TOP_WAIT_OF_USER_MS * NS_PER_MS;
    uint64_t left = user->waited_ns < most ? most - user->waited_ns : 0;
    enum top_result result = read_until(file, reading, start + left, &why);
    user->waited_ns += now_ns() - start;
    entry->head = reading->head; /* not read again: the two would not be of one moment */
    if (result == TOP_OK) {
        entry->reading = reading;
        entry->devices = reading->survey.device_count.here;
        for (uint32_t i = 0; i < entry->devices; i++)
            entry->reserved +=
                (uint64_t)reading->survey.devices[i].stats.reserved_bytes[TARN_STAT_ALL].current;
    } else {
        free(reading);
    }
}

static void look_at(void *argument, const char *name)
{
    struct search *search = argument;
    struct top_why why = {""};
    char path[4096];
    int file = -1;
    int length = snprintf(path, sizeof path, "%s/%s", search->directory, name);
    if (length < 0 || (size_t)length >= sizeof path)
        return;
    struct stat info;
    if (lstat(path, &info))
        return;
    struct user *user = user_of(search, info.st_uid);
    if (user->pages == TOP_PAGES_OF_USER || now_ns() >= search->deadline) {
        search->list->left_out++;
        return;
    }
    enum top_result result = top_open(path, &file, &why);
    if (result == TOP_ENDED)
        page_remove_left(path);
    if (result != TOP_OK && result != TOP_FOREIGN)
        return;
    user->pages++;
    struct top_entry *entry = entry_add(search->list);
    if (entry) {
        memcpy(entry->path, path, sizeof path);
        entry->foreign = result == TOP_FOREIGN;
        search->list->foreign += entry->foreign;
    } else {
        search->failed = true;
    }
    if (entry && result == TOP_OK) {
        read_entry(search, user, entry, file);
        name_entry(search->list, entry, name);
    }
    if (file >= 0)
        close(file);
}

static int by_process(const void *a, const void *b)
{
    uint64_t x = ((const struct top_entry *)a)->head.pid,
             y = ((const struct top_entry *)b)->head.pid;
    return (x > y) - (x < y);
}

static void search_in(struct search *search, const char *directory, char (*seen)[4096],
                      size_t *count)
{
    for (size_t i = 0; i < *count; i++)
        if (strcmp(seen[i], directory) == 0)
            return;
    snprintf(seen[(*count)++], sizeof seen[0], "%s", directory);
    search->directory = directory;
    (void)page_each(directory, look_at, search); /* a directory that does not exist has no pages */
}

static void search_of_user(struct search *search, uid_t user, char (*seen)[4096], size_t *count)
{
    char directory[64];
    snprintf(directory, sizeof directory, "/run/user/%lu", (unsigned long)user);
    search_in(search, directory, seen, count);
}

bool top_list_make(const char *directory, long pid, struct top_list *list)
{
    enum { MOST_DIRECTORIES = 4 };
    *list = (struct top_list){0};
    char(*seen)[4096] = calloc(MOST_DIRECTORIES, sizeof *seen);
    struct search search = {.list = list, .deadline = now_ns() + TOP_LIST_MS * NS_PER_MS};
    size_t count = 0;
    struct stat info;
    char process[64];
    snprintf(process, sizeof process, "/proc/%ld", pid);
    if (seen) {
        search_in(&search, page_directory(directory), seen, &count);
        if (!directory) {
            search_in(&search, "/dev/shm", seen, &count);
            search_of_user(&search, geteuid(), seen, &count);
        }
        if (!directory && pid && stat(process, &info) == 0)
            search_of_user(&search, info.st_uid, seen, &count);
    }
    bool done = seen && !search.failed;
    free(seen);
    if (list->count)
        qsort(list->entries, list->count, sizeof *list->entries, by_process);
    return done;
}

void top_list_finish(struct top_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->entries[i].reading);
    free(list->entries);
    *list = (struct top_list){0};
}
