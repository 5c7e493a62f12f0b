/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What a call costs beside many pools, streams, scopes, captures and observers, on the host device:
 * with 100, 10,000 and 100,000 of each. Streams, and what begins on them, go up to 60,000, since
 * there are no more; those of a registrable pool and those with plain segments go up to 10,000.
 * Each column has processes of its own. Every pool has a block, and every stream had one. The
 * kernel limits the mappings of a process: so beyond the first 10,000, pools have the caller's
 * allocator, and streams give their memory back. Microseconds per call, the best of three times a
 * hundred calls; of listings, nanoseconds per object. Prints a table.
 *
 * usage: bench_costs [NUMBER...]     the numbers of objects, instead of those above */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tarn/host.h>
#include <tarn/tarn.h>
#include <time.h>
#include <unistd.h>

#define COLUMNS 3
#define ROWS 48
#define CALLS 100
#define TIMES 3
#define MAPPED 10000 /* pools whose memory is mapped, and streams that keep their blocks */
#define MOST_STREAMS 60000

/* What a child measures. */
struct result {
    char name[96];
    double value;
    bool listing;
};

static struct result results[ROWS];
static size_t result_count;
static size_t number; /* of objects */
static tarn_pool **pools;
static tarn_stream *streams, own;
static void **blocks;

static void must(tarn_status status)
{
    if (!status)
        return;
    fprintf(stderr, "bench_costs: %s: %s\n", tarn_status_name(status), tarn_last_error());
    exit(1);
}

static double now_us(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static void *room_for(size_t count, size_t size)
{
    void *room = calloc(count, size);
    if (!room)
        exit(1);
    return room;
}

/* Which of `count` objects a call takes. */
static size_t pick(size_t i, size_t count)
{
    return i * 7919 % count;
}

static void note(const char *name, double value, bool listing)
{
    snprintf(results[result_count].name, sizeof results->name, "%s", name);
    results[result_count].listing = listing;
    results[result_count++].value = value;
}

/* Calls a function a hundred times with other numbers, three times over. */
static void measure(const char *name, void (*call)(size_t i))
{
    double best = 0;
    for (size_t time = 0; time < TIMES; time++) {
        double start = now_us();
        for (size_t i = 0; i < CALLS; i++)
            call(time * CALLS + i);
        double each = (now_us() - start) / CALLS;
        best = time == 0 || each < best ? each : best;
    }
    note(name, best, false);
}

static void measure_listing(const char *name, void (*call)(size_t i), size_t objects)
{
    double start = now_us();
    call(0);
    note(name, (now_us() - start) * 1e3 / (double)objects, true);
}

/* Pools ---------------------------------------------------------------------------------------- */

static void *callers_alloc(size_t size, int device, void *stream, void *user)
{
    (void)device;
    (void)stream;
    (void)user;
    return aligned_alloc(4096, (size + 4095) / 4096 * 4096);
}

static void callers_free(void *pointer, size_t size, int device, void *stream, void *user)
{
    (void)size;
    (void)device;
    (void)stream;
    (void)user;
    free(pointer);
}

static tarn_pool *pool_of(bool mapped, bool helps)
{
    const tarn_pool_allocator allocator = {
        .size = sizeof allocator, .alloc = callers_alloc, .free = callers_free};
    const tarn_segment_sizes sizes = {
        .size = sizeof sizes, .small_segment = 65536, .large_segment = 65536};
    const tarn_pool_options options = {.size = sizeof options,
                                       .device = TARN_CURRENT_DEVICE,
                                       .use_on_oom = helps,
                                       .allocator = mapped ? NULL : &allocator,
                                       .sizes = mapped ? NULL : &sizes};
    tarn_pool *pool = NULL;
    must(tarn_pool_create(&options, &pool));
    return pool;
}

static tarn_pool *pool_make(bool mapped)
{
    return pool_of(mapped, false);
}

static tarn_pool *mapped_pool(size_t i)
{
    return pools[pick(i, number < MAPPED ? number : MAPPED)];
}

static void pool_lives(size_t i)
{
    void *block = NULL;
    (void)i;
    tarn_pool *pool = pool_make(true);
    must(tarn_pool_alloc(pool, own, 4096, &block));
    must(tarn_free(block));
    must(tarn_pool_release(pool));
}

static void pool_is_found(size_t i)
{
    tarn_pool_info info = {.size = sizeof info};
    tarn_pool *found = NULL;
    must(tarn_pool_info_get(pools[pick(i, number)], &info));
    must(tarn_pool_find(info.id, &found));
    must(tarn_pool_release(found));
}

static void pool_counts(size_t i)
{
    tarn_stats stats = {.size = sizeof stats};
    must(tarn_pool_stats_get(pools[pick(i, number)], &stats));
}

static void pool_lists(size_t i)
{
    size_t count = 0;
    must(tarn_pool_blocks_get(pools[pick(i, number)], NULL, 0, &count));
}

static void pool_is_trimmed(size_t i)
{
    must(tarn_pool_trim(mapped_pool(i), 0));
}

static void pool_sleeps(size_t i)
{
    must(tarn_pool_suspend(mapped_pool(i), false));
    must(tarn_pool_resume(mapped_pool(i)));
}

static void pool_is_restored(size_t i)
{
    tarn_checkpoint *checkpoint = NULL;
    must(tarn_pool_checkpoint(mapped_pool(i), &checkpoint));
    must(tarn_checkpoint_destroy(checkpoint));
}

static void thread_scope(size_t i)
{
    tarn_scope scope;
    must(tarn_scope_begin(pools[pick(i, number)], TARN_SCOPE_THREAD, 0, &scope));
    must(tarn_scope_end(scope));
}

static void block_is_looked_up(size_t i)
{
    tarn_block_info info = {.size = sizeof info};
    must(tarn_pointer_info_get(blocks[pick(i, number)], &info));
}

static void heap_grows(size_t i)
{
    void *block = NULL;
    (void)i;
    must(tarn_alloc_on(own, (size_t)32 << 20, &block));
}

static void device_counts(size_t i)
{
    tarn_stats stats = {.size = sizeof stats};
    (void)i;
    must(tarn_device_stats_get(0, &stats));
}

static void device_is_trimmed(size_t i)
{
    (void)i;
    must(tarn_device_trim(0, 0));
}

static void nothing(const tarn_memory_segment *segment, void *user)
{
    (void)segment;
    (void)user;
}

static void memory_is_listed(size_t i)
{
    (void)i;
    must(tarn_memory_list(nothing, NULL));
}

#define LACKING ((size_t)32 << 20) /* bytes that nothing serves */

/* Looks at what has changed since the last one that failed; then says what has the memory. */
static void memory_is_short(size_t i)
{
    void *block = NULL;
    (void)i;
    if (tarn_alloc_on(own, LACKING, &block) != TARN_ERROR_OUT_OF_MEMORY)
        exit(1);
}

static size_t reserved(void)
{
    tarn_stats stats = {.size = sizeof stats};
    must(tarn_device_stats_get(0, &stats));
    return (size_t)stats.reserved_bytes[0].current;
}

static void measure_shortage(const char *name, const char *first, size_t objects)
{
    must(tarn_device_trim(0, 0));
    must(tarn_device_limit_set(0, reserved()));
    measure_listing(first, memory_is_short, objects);
    measure(name, memory_is_short);
    must(tarn_device_limit_set(0, TARN_NO_LIMIT));
}

/* Into one pool, on a stream that has memory in all. */
static void capture_of_theirs(size_t i)
{
    void *graph = NULL;
    (void)i;
    must(tarn_pool_capture_begin(pools[0], own, TARN_CAPTURE_RELAXED));
    must(tarn_capture_end(own, &graph));
    must(tarn_host_graph_destroy(graph));
}

static void measure_pools(void)
{
    pools = room_for(number, sizeof *pools);
    blocks = room_for(number, sizeof *blocks);
    for (size_t i = 0; i < number; i++) {
        pools[i] = pool_make(i < MAPPED);
        must(tarn_pool_alloc(pools[i], own, 4096, &blocks[i]));
    }
    measure("pools: create one, first allocation, free, release", pool_lives);
    measure("`tarn_pool_info_get()`, `_find()`, `_release()`", pool_is_found);
    measure("`tarn_pool_stats_get()`", pool_counts);
    measure("`tarn_pool_blocks_get()`", pool_lists);
    measure("`tarn_pool_trim()`", pool_is_trimmed);
    measure("`tarn_pool_suspend()`, `tarn_pool_resume()`", pool_sleeps);
    measure("`tarn_pool_checkpoint()`", pool_is_restored);
    measure("a thread scope: begin, end", thread_scope);
    measure("`tarn_pointer_info_get()`", block_is_looked_up);
    measure("`tarn_pool_capture_begin()` on a stream of all pools, end", capture_of_theirs);
    measure("growth of the default pool", heap_grows);
    measure_listing("`tarn_device_stats_get()`", device_counts, number);
    measure_listing("`tarn_memory_list()`", memory_is_listed, number);
    measure_shortage("a request that no memory serves",
                     "the first such, after all pools have changed", number);
    measure_listing("`tarn_device_trim()`", device_is_trimmed, number);
}

/* Streams -------------------------------------------------------------------------------------- */

static size_t stream_count(void)
{
    return number < MOST_STREAMS ? number : MOST_STREAMS;
}

static tarn_stream extra[TIMES * CALLS];
static void *used;

static void stream_begins(size_t i)
{
    void *block = NULL;
    must(tarn_stream_lease(0, 0, &extra[i]));
    must(tarn_alloc_on(extra[i], 4096, &block));
    must(tarn_free(block));
}

static void stream_grows(size_t i)
{
    void *block = NULL;
    must(tarn_alloc_on(streams[pick(i, stream_count())], (size_t)32 << 20, &block));
}

static void stream_uses(size_t i)
{
    must(tarn_record_stream(used, streams[pick(i, stream_count())]));
}

static void stream_ends(size_t i)
{
    must(tarn_stream_return(extra[i]));
}

static tarn_pool *beside;

static void pool_sleeps_beside(size_t i)
{
    (void)i;
    must(tarn_pool_suspend(beside, false));
    must(tarn_pool_resume(beside));
}

static void measure_streams(void)
{
    void *its = NULL;
    beside = pool_make(true);
    must(tarn_pool_alloc(beside, own, 4096, &its));
    streams = room_for(stream_count(), sizeof *streams);
    void **each = room_for(stream_count(), sizeof *each);
    must(tarn_alloc_on(own, 100000, &used));
    for (size_t i = 0; i < stream_count(); i++) {
        must(tarn_stream_lease(0, 0, &streams[i]));
        must(tarn_alloc_on(streams[i], i < MAPPED ? 4096 : 100000, &each[i]));
        if (i >= MAPPED)
            must(tarn_free(each[i]));
        if (i >= MAPPED && i % 1000 == 0)
            must(tarn_device_trim(0, 0));
        must(tarn_record_stream(used, streams[i]));
    }
    measure_shortage("a request that no memory serves, beside streams",
                     "the first such, after all streams have changed", stream_count());
    must(tarn_device_limit_set(0, reserved()));
    must(tarn_configuration_set("compaction:on_oom"));
    measure("a request that no memory serves, with `compaction:on_oom`", memory_is_short);
    must(tarn_configuration_set("all:default"));
    must(tarn_device_limit_set(0, TARN_NO_LIMIT));
    measure("streams: lease one, first allocation, free", stream_begins);
    measure("`tarn_pool_suspend()`, `tarn_pool_resume()` beside streams", pool_sleeps_beside);
    measure("growth of a stream's memory", stream_grows);
    measure("`tarn_record_stream()` of a block that all use", stream_uses);
    measure("`tarn_stream_return()`", stream_ends);
    must(tarn_free(used));
    for (size_t i = 0; i < stream_count() && i < MAPPED; i++)
        must(tarn_free(each[i]));
    free(each);
}

/* What may help in a shortage ------------------------------------------------------------------ */

static tarn_pool *helper;

/* Only the last pool has so much, which was freed. */
static void pool_helps(size_t i)
{
    void *block = NULL;
    (void)i;
    must(tarn_alloc_on(own, LACKING, &block));
    must(tarn_free(block));
}

static void measure_helpers(void)
{
    void *block = NULL;
    pools = room_for(number, sizeof *pools);
    for (size_t i = 0; i < number; i++) {
        pools[i] = pool_of(i < MAPPED, true);
        must(tarn_pool_alloc(pools[i], own, 4096, &block));
    }
    must(tarn_device_limit_set(0, reserved()));
    memory_is_short(0); /* looks at all, once */
    measure("a request that no memory serves, beside pools with `use_on_oom`", memory_is_short);
    must(tarn_device_limit_set(0, TARN_NO_LIMIT));
    helper = pool_of(true, true);
    must(tarn_pool_alloc(helper, own, LACKING, &block));
    must(tarn_free(block));
    must(tarn_device_limit_set(0, reserved()));
    measure("the same, and one of them serves it; free", pool_helps);
}

static tarn_pool *registered;

static void registered_is_short(size_t i)
{
    void *block = NULL;
    (void)i;
    if (tarn_pool_alloc(registered, own, LACKING, &block) != TARN_ERROR_OUT_OF_MEMORY)
        exit(1);
}

static size_t segment_count;

static void segments_are_listed(size_t i)
{
    tarn_mapping *segments = room_for(segment_count, sizeof *segments);
    (void)i;
    must(tarn_pool_segments_get(registered, segments, segment_count, &segment_count));
    free(segments);
}

/* Streams of one registrable pool, each with a segment that is free. */
static void measure_registrable(void)
{
    const tarn_pool_options options = {
        .size = sizeof options, .device = TARN_CURRENT_DEVICE, .registrable = true};
    tarn_stats stats = {.size = sizeof stats};
    void *block = NULL;
    must(tarn_pool_create(&options, &registered));
    segment_count = number < MAPPED ? number : MAPPED;
    for (size_t i = 0; i < segment_count; i++) {
        tarn_stream stream;
        must(tarn_stream_lease(0, 0, &stream));
        must(tarn_pool_stats_get(registered, &stats)); /* no room for a large segment */
        must(tarn_pool_limit_set(registered,
                                 (size_t)stats.reserved_bytes[0].current + ((size_t)4 << 20)));
        must(tarn_pool_alloc(registered, stream, 4096, &block));
        must(tarn_free(block));
    }
    measure("a request that no memory of a registrable pool serves, beside its streams",
            registered_is_short);
    measure_listing("`tarn_pool_segments_get()`", segments_are_listed, segment_count);
}

/* Segments of other streams, none of which is garbage. */
static void measure_garbage(void)
{
    void *block = NULL;
    size_t count = number < MAPPED ? number : MAPPED;
    must(tarn_configuration_set("segments:plain,garbage_collection_threshold:0.01"));
    for (size_t i = 0; i < count; i++) {
        tarn_stream stream;
        must(tarn_stream_lease(0, 0, &stream));
        must(tarn_alloc_on(stream, 4096, &block));
    }
    must(tarn_device_limit_set(0, reserved() + ((size_t)16 << 30)));
    heap_grows(0); /* looks at all, once */
    measure("growth above `garbage_collection_threshold`", heap_grows);
}

/* Scopes, captures, observers ------------------------------------------------------------------ */

static tarn_pool *shared;
static tarn_stream idle;

static void stream_scope(size_t i)
{
    tarn_scope scope;
    (void)i;
    must(tarn_scope_begin(shared, TARN_SCOPE_STREAM, idle, &scope));
    must(tarn_scope_end(scope));
}

static void scoped_pair(size_t i)
{
    void *block = NULL;
    must(tarn_alloc_on(streams[pick(i, stream_count())], 4096, &block));
    must(tarn_free(block));
}

static void capture(size_t i)
{
    void *graph = NULL, *block = NULL;
    (void)i;
    must(tarn_pool_capture_begin(shared, idle, TARN_CAPTURE_RELAXED));
    must(tarn_alloc_on(idle, 4096, &block));
    must(tarn_free(block));
    must(tarn_capture_end(idle, &graph));
    must(tarn_host_graph_destroy(graph));
}

static void measure_scopes(void)
{
    tarn_scope *scopes = room_for(stream_count(), sizeof *scopes);
    must(tarn_pool_create(NULL, &shared));
    must(tarn_stream_lease(0, 0, &idle));
    for (size_t i = 0; i < stream_count(); i++)
        must(tarn_scope_begin(shared, TARN_SCOPE_STREAM, streams[i], &scopes[i]));
    measure("stream scopes: begin one, end", stream_scope);
    measure("an allocation on a stream with one, free", scoped_pair);
    for (size_t i = 0; i < stream_count(); i++)
        must(tarn_scope_end(scopes[i]));
    free(scopes);
}

static void measure_captures(void)
{
    for (size_t i = 0; i < stream_count(); i++)
        must(tarn_pool_capture_begin(shared, streams[i], TARN_CAPTURE_RELAXED));
    measure("captures: begin one, allocation, free, end, destroy the graph", capture);
    measure("an allocation in an open one, free", scoped_pair);
}

static bool ignore(const tarn_shortage *shortage, void *user)
{
    (void)shortage;
    (void)user;
    return false;
}

static void observer(size_t i)
{
    const tarn_observer_options options = {
        .size = sizeof options, .device = TARN_ALL_DEVICES, .out_of_memory = ignore};
    tarn_observer added;
    (void)i;
    must(tarn_observer_add(&options, &added));
    must(tarn_observer_remove(added));
}

static void measure_observers(void)
{
    const tarn_observer_options options = {
        .size = sizeof options, .device = TARN_ALL_DEVICES, .out_of_memory = ignore};
    tarn_observer added;
    for (size_t i = 0; i < number; i++)
        must(tarn_observer_add(&options, &added));
    measure("observers: add one, remove", observer);
}

/* The table ------------------------------------------------------------------------------------ */

static void child(int to, void (*measures)(void))
{
    must(tarn_host_configuration_set(&(tarn_host_configuration){
        .size = sizeof(tarn_host_configuration), .devices = 1, .memory = (size_t)400 << 30}));
    must(tarn_device_set(0));
    must(tarn_stream_lease(0, 0, &own));
    measures();
    size_t bytes = result_count * sizeof *results;
    _exit(write(to, results, bytes) == (ssize_t)bytes ? 0 : 1);
}

static void with_streams(void)
{
    measure_streams();
    measure_scopes();
    measure_captures();
    measure_observers();
}

/* Runs some measures in a process, since its objects stay. Gives the number of rows. */
static size_t run(void (*measures)(void), struct result *rows)
{
    int ends[2], status = 0;
    if (pipe(ends))
        exit(1);
    pid_t pid = fork();
    if (pid == 0)
        child(ends[1], measures);
    close(ends[1]);
    size_t bytes = 0;
    ssize_t more;
    while ((more = read(ends[0], (char *)rows + bytes, ROWS * sizeof *rows - bytes)) > 0)
        bytes += (size_t)more;
    close(ends[0]);
    if (pid < 0 || waitpid(pid, &status, 0) < 0 || status)
        exit(1);
    return bytes / sizeof *rows;
}

int main(int count, char **arguments)
{
    static struct result rows[COLUMNS][ROWS];
    size_t numbers[COLUMNS] = {100, 10000, 100000}, columns = COLUMNS, lines = 0;
    if (count > 1)
        for (columns = 0; columns < COLUMNS && columns + 1 < (size_t)count; columns++)
            numbers[columns] = strtoul(arguments[columns + 1], NULL, 10);
    for (size_t i = 0; i < columns; i++) {
        number = numbers[i];
        lines = run(measure_pools, rows[i]);
        lines += run(with_streams, rows[i] + lines);
        lines += run(measure_helpers, rows[i] + lines);
        lines += run(measure_registrable, rows[i] + lines);
        lines += run(measure_garbage, rows[i] + lines);
    }
    printf("| call |");
    for (size_t i = 0; i < columns; i++)
        printf(" beside %zu |", numbers[i]);
    printf("\n|---|");
    for (size_t i = 0; i < columns; i++)
        printf("---|");
    for (size_t line = 0; line < lines; line++) {
        printf("\n| %s |", rows[0][line].name);
        for (size_t i = 0; i < columns; i++)
            printf(rows[i][line].listing ? " %.0f ns per object |" : " %.1f us |",
                   rows[i][line].value);
    }
    putchar('\n');
    return 0;
}
