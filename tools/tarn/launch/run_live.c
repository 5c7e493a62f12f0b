/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A survey is made of a book: what the driver has given to the process is what it has reserved,
 * allocated and asked for, all at once, as nothing is pooled. Pages are those of the processes'
 * numbers, with the lock of `tarn run`. */
#include "launch/run_live.h"
#include "launch/residue.h"
#include "report/metrics.h"
#include "report/page.h"
#include "units.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tarn/tarn.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_MS UINT64_C(1000000)
enum { PAGES_MOST = 64, PAGE_INTERVAL_MS = 200, METRICS_S = 15, METRICS_S_MOST = 86400 };

static struct {
    bool pages;
    char *metrics; /* the path as it was given; NULL: none */
    uint64_t metrics_every, metrics_next;
    bool metrics_fail;
    struct page_file *files[PAGES_MOST]; /* of the first books; NULL: none yet */
    bool gone[PAGES_MOST];               /* the process has ended, or no page can be made */
    struct survey survey;
    uint64_t number;
} live;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* Settings ------------------------------------------------------------------------------------- */

static const char *wish(const char *variable)
{
    const char *text = getenv(variable);
    return text && *text ? text : NULL;
}

/* Whether each % is followed by p or another %; and whether a %p is there. */
static bool is_pattern(const char *path, bool *per_process)
{
    *per_process = false;
    for (; *path; path++)
        if (*path == '%') {
            path++;
            if (*path != 'p' && *path != '%')
                return false;
            *per_process |= *path == 'p';
        }
    return true;
}

bool run_live_begin(void)
{
    const char *wanted = wish("TARN_LIVE"), *metrics = wish("TARN_METRICS"),
               *every = wish("TARN_METRICS_INTERVAL");
    uint64_t seconds = METRICS_S;
    bool per_process;
    live.pages = !wanted || strcmp(wanted, "0") != 0;
    if (metrics && !is_pattern(metrics, &per_process)) {
        fputs("tarn run: TARN_METRICS: % must be followed by p (the process id) or by another %\n",
              stderr);
        return false;
    }
    if (every && !units_parse_count(every, 1, METRICS_S_MOST, &seconds)) {
        fprintf(stderr, "tarn run: TARN_METRICS_INTERVAL=%.64s is not a number from 1 to %d\n",
                every, METRICS_S_MOST);
        return false;
    }
    live.metrics_every = seconds * 1000 * NS_PER_MS;
    if (metrics)
        live.metrics = strdup(metrics);
    (void)unsetenv("TARN_METRICS");
    return !metrics || live.metrics;
}

/* Surveys -------------------------------------------------------------------------------------- */

static void name_of(const struct book *book, char *name, size_t size)
{
    size_t length = strcspn(book->command, " ");
    const char *start = book->command;
    for (size_t i = 0; i < length; i++)
        if (book->command[i] == '/')
            start = book->command + i + 1;
    length -= (size_t)(start - book->command);
    snprintf(name, size, "%.*s", length ? (int)length : 1, length ? start : "?");
}

static void uuid_text(const struct book_device *device, char *text, size_t size)
{
    size_t at = (size_t)snprintf(text, size, "GPU");
    for (int i = 0; i < 16 && at < size; i++)
        at += (size_t)snprintf(text + at, size - at,
                               i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
                               (unsigned char)device->uuid[i]);
}

static tarn_stat stat_of(uint64_t current, uint64_t peak, uint64_t made)
{
    return (tarn_stat){.current = (int64_t)current,
                       .peak = (int64_t)peak,
                       .allocated = (int64_t)made,
                       .freed = (int64_t)(made > current ? made - current : 0)};
}

/* Fills in the statistics. Everything counts as the class of large blocks, because programs that
 * ask the driver themselves rarely ask for little. */
static void fill_stats(tarn_stats *stats, struct books_device sums)
{
    *stats = (tarn_stats){.size = sizeof *stats, .max_split_size = -1};
    for (int class = TARN_STAT_ALL; class <= TARN_STAT_LARGE_POOL; class ++) {
        if (class == TARN_STAT_SMALL_POOL)
            continue;
        stats->reserved_bytes[class] = stats->allocated_bytes[class] = stats->active_bytes[class] =
            stats->requested_bytes[class] = stat_of(sums.used, sums.peak, sums.made_bytes);
        stats->allocation[class] = stats->active[class] = stats->segment[class] =
            stat_of(sums.blocks, sums.blocks, sums.made);
    }
    stats->num_device_alloc = (int64_t)sums.made;
    stats->num_device_free = (int64_t)(sums.made - sums.blocks);
    stats->num_ooms = stats->num_oom_rejections = (int64_t)sums.refused;
}

static void add_libraries(const struct book *book, unsigned index, struct survey *survey)
{
    uint32_t count = books_libraries(book);
    for (uint32_t i = 0; i < count; i++) {
        struct books_sums sums = books_holder(book, index, i);
        if (!sums.made)
            continue;
        survey->library_count.there++;
        if (survey->library_count.here == SURVEY_LIBRARIES)
            continue;
        struct survey_library *library = &survey->libraries[survey->library_count.here++];
        *library = (struct survey_library){
            .device = (int32_t)index, .live = sums.live, .peak = sums.peak, .made = sums.made};
        snprintf(library->name, sizeof library->name, "%s", books_library_name(book, i));
    }
}

static void make_survey(const struct opened_book *opened, struct survey *survey)
{
    const struct book *book = opened->book;
    survey->taken_ns = now_ns();
    survey->number = ++live.number;
    survey->metadata = (int64_t)sizeof *book;
    survey->has_pinned = 0;
    survey->device_count = survey->pool_count = survey->stream_count = survey->handle_count =
        survey->library_count = (struct survey_count){0, 0};
    survey->device_count = (struct survey_count){book->devices, book->devices};
    for (unsigned i = 0; i < book->devices; i++) {
        const struct book_device *from = &book->device[i];
        struct survey_device *device = &survey->devices[i];
        struct books_device sums = books_device_sums(book, i);
        uint64_t limit = atomic_load(&from->limit);
        *device = (struct survey_device){
            .number = (int32_t)i,
            .used = sums.made > 0,
            .total = from->total,
            .free = SURVEY_UNKNOWN,
            .limit = limit == UINT64_MAX ? SURVEY_UNKNOWN : limit,
            .unseen =
                opened->last_unseen[i] == UINT64_MAX ? SURVEY_UNKNOWN : opened->last_unseen[i],
        };
        snprintf(device->name, sizeof device->name, "%.*s", (int)sizeof device->name - 1,
                 from->name);
        snprintf(device->pci, sizeof device->pci, "%.*s", (int)sizeof device->pci - 1,
                 from->address);
        uuid_text(from, device->uuid, sizeof device->uuid);
        uint64_t used = sums.made ? residue_device_used(book, from) : UINT64_MAX;
        if (used != UINT64_MAX)
            device->free = from->total > used ? from->total - used : 0;
        fill_stats(&device->stats, sums);
        add_libraries(book, i, survey);
    }
}

/* Pages ---------------------------------------------------------------------------------------- */

static void page_begin(const struct book *book, struct page_file **file)
{
    struct page_head head = {.pid = book->process,
                             .interval_ns = PAGE_INTERVAL_MS * NS_PER_MS,
                             .started = book->start_ns / UINT64_C(1000000000),
                             .rank = -1};
    name_of(book, head.name, sizeof head.name);
    snprintf(head.library, sizeof head.library, "%s", tarn_version());
    snprintf(head.driver, sizeof head.driver, "%.7s, run", book->driver);
    *file = malloc(sizeof **file);
    if (*file && page_create(page_directory(NULL), &head, *file)) {
        free(*file);
        *file = NULL;
    }
}

static void page_end(size_t index)
{
    if (live.files[index]) {
        page_remove(live.files[index]);
        free(live.files[index]);
        live.files[index] = NULL;
    }
    live.gone[index] = true;
}

static void show_page(const struct opened_book *opened, size_t index)
{
    if (live.gone[index])
        return;
    if (!books_process_lives(opened)) {
        page_end(index);
        return;
    }
    if (!live.files[index])
        page_begin(opened->book, &live.files[index]);
    live.gone[index] = !live.files[index];
    if (live.gone[index])
        return;
    make_survey(opened, &live.survey);
    page_write(live.files[index], &live.survey);
}

/* Metrics -------------------------------------------------------------------------------------- */

/* The path for one process. */
static void expand(const char *pattern, uint32_t process, char *path, size_t size)
{
    size_t at = 0;
    for (; *pattern && at + 24 < size; pattern++) {
        if (*pattern == '%' && *++pattern == 'p')
            at += (size_t)snprintf(path + at, size - at, "%u", process);
        else
            path[at++] = *pattern;
    }
    path[at] = '\0';
}

static bool write_file(const char *path, const struct metrics_source *sources, size_t count)
{
    struct sink sink;
    if (sink_to_file(&sink, path, 0644)) /* who collects them may be another user */
        return false;
    metrics_print(&sink, sources, count);
    metrics_end(&sink);
    return sink_end(&sink, false) == TARN_OK;
}

static void fill_source(const struct opened_book *opened, struct survey *survey,
                        struct metrics_source *source)
{
    make_survey(opened, survey);
    *source = (struct metrics_source){.library = tarn_version(),
                                      .driver = opened->book->driver,
                                      .survey = survey,
                                      .process.rank = -1};
    name_of(opened->book, source->process.name, sizeof source->process.name);
    snprintf(source->process.number, sizeof source->process.number, "%u", opened->book->process);
}

/* Writes one file per process if the path has %p, otherwise one file of all processes. */
static bool write_metrics(const struct books *books, bool ended)
{
    bool per_process, done = true;
    (void)is_pattern(live.metrics, &per_process);
    size_t room = per_process ? 1 : books->count, count = 0;
    struct survey *surveys = calloc(room ? room : 1, sizeof *surveys);
    struct metrics_source *sources = calloc(room ? room : 1, sizeof *sources);
    char path[4096];
    for (size_t i = 0; surveys && sources && i < books->count; i++) {
        const struct opened_book *opened = &books->list[i];
        if (opened->replaced || (!ended && !books_process_lives(opened)))
            continue;
        fill_source(opened, &surveys[count], &sources[count]);
        if (!per_process) {
            count++;
            continue;
        }
        expand(live.metrics, opened->book->process, path, sizeof path);
        done = write_file(path, sources, 1) && done;
    }
    expand(live.metrics, 0, path, sizeof path);
    if (!per_process && surveys && sources)
        done = write_file(path, sources, count);
    done = done && surveys && sources;
    free(surveys);
    free(sources);
    return done;
}

static void show_metrics(const struct books *books, bool ended)
{
    uint64_t now = now_ns();
    if (!live.metrics || !books->count || (!ended && now < live.metrics_next))
        return;
    live.metrics_next = now + live.metrics_every;
    bool done = write_metrics(books, ended);
    if (!done && !live.metrics_fail)
        fprintf(stderr, "tarn run: TARN_METRICS: %s\n", tarn_last_error());
    live.metrics_fail = !done;
}

void run_live_show(const struct books *books)
{
    for (size_t i = 0; live.pages && i < books->count && i < PAGES_MOST; i++)
        show_page(&books->list[i], i);
    show_metrics(books, false);
}

void run_live_end(const struct books *books)
{
    show_metrics(books, true);
    for (size_t i = 0; i < PAGES_MOST; i++)
        page_end(i);
    free(live.metrics);
    live.metrics = NULL;
}
