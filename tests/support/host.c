/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "support/host.h"
#include "base/pages.h"
#include "device/stream.h"
#include "driver/host/host.h"
#include "memory/arena/map.h"
#include "memory/growth/ghost.h"
#include "memory/range/range.h"
#include "memory/watch/verify.h"

#include <dirent.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static bool is_child;

/* Declared by the leak sanitizer. A child that ends by exit() still has what its parent's program
 * allocated. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return is_child;
}

void check_at(bool condition, const char *text, const char *file, int line)
{
    if (condition)
        return;
    fprintf(stderr, "%s:%d: not so: %s (last error: %s)\n", file, line, text, tarn_last_error());
    if (is_child)
        _exit(1);
    _fail(file, line);
}

void status_at(tarn_status status, tarn_status wanted, const char *text, const char *file, int line)
{
    if (status == wanted)
        return;
    fprintf(stderr, "%s gave %s, not %s\n", text, tarn_status_name(status),
            tarn_status_name(wanted));
    check_at(false, text, file, line);
}

int child_status(void (*function)(void))
{
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        is_child = true;
        alarm(getenv("TARN_FAILURES") ? 1800 : 240);
        function();
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

void in_child_that_exits(void (*function)(void), int code)
{
    int status = child_status(function);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == code);
}

void in_child(void (*function)(void))
{
    in_child_that_exits(function, 0);
}

void run_child_test(void **state)
{
    const struct child_test *test = *state;
    in_child(test->function);
}

static const struct machine host_machine = {
    .ledger_get = tarn_host_ledger_get,
    .time = tarn_host_time_get,
    .advance = tarn_host_advance,
    .work = tarn_host_work,
    .fill = tarn_host_fill,
    .graph_launch = tarn_host_graph_launch,
    .graph_destroy = tarn_host_graph_destroy,
    .settle = host_workers_settle,
};
const struct machine *machine = &host_machine;

/* On a machine inside a simulated library, timed work ends when the clock moves, and the driver's
 * queries do not move it. Other work ends without being queried repeatedly, so that every run makes
 * the same number of driver calls. */
static void pause_there(uint64_t ns)
{
    uint64_t now = 0;
    machine->settle();
    if (machine->time(&now) == TARN_OK)
        (void)machine->advance(now + ns);
}

static void simulated_start_with(const char *library, int devices, size_t memory)
{
    char text[32];
    void *opened = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    CHECK(opened);
    machine = dlsym(opened, "tarn_sim_machine");
    CHECK(machine);
    marks_pause = pause_there;
    snprintf(text, sizeof text, "%d", devices);
    CHECK(setenv("TARN_HOST_DEVICES", text, 1) == 0);
    snprintf(text, sizeof text, "%zu", memory);
    CHECK(setenv("TARN_HOST_MEMORY", text, 1) == 0);
}

void host_start_with(int devices, size_t memory)
{
    const char *name = getenv("TARN_DRIVER");
    if (name && (strcmp(name, "cuda") == 0 || strcmp(name, "hip") == 0)) {
        simulated_start_with(strcmp(name, "cuda") == 0 ? "libcuda.so.1" : "libamdhip64.so.7",
                             devices, memory);
        return;
    }
    tarn_host_configuration config = {.size = sizeof config, .devices = devices, .memory = memory};
    OK(tarn_host_configuration_set(&config));
}

tarn_host_ledger ledger_of(int device)
{
    tarn_host_ledger ledger = {.size = sizeof ledger};
    OK(machine->ledger_get(device, &ledger));
    return ledger;
}

tarn_stats stats_of(int device)
{
    tarn_stats stats = {.size = sizeof stats};
    OK(tarn_device_stats_get(device, &stats));
    return stats;
}

int kind_of(const char *name)
{
    for (int kind = 0; tarn_host_call_name(kind); kind++)
        if (strcmp(tarn_host_call_name(kind), name) == 0)
            return kind;
    check_at(false, name, __FILE__, __LINE__);
    return -1;
}

uint64_t calls_of(int device, const char *kind)
{
    return ledger_of(device).calls[kind_of(kind)];
}

uint64_t all_calls(int device)
{
    tarn_host_ledger ledger = ledger_of(device);
    uint64_t sum = 0;
    for (int kind = 0; tarn_host_call_name(kind); kind++)
        sum += ledger.calls[kind];
    return sum;
}

uint64_t time_now(void)
{
    uint64_t now = 0;
    OK(machine->time(&now));
    return now;
}

void time_pass(uint64_t ns)
{
    OK(machine->advance(time_now() + ns));
}

void *native_of(tarn_stream stream)
{
    void *native = NULL;
    OK(tarn_stream_native_get(stream, &native));
    return native;
}

void *native_made(int device)
{
    driver_stream native = NULL;
    int count = 0;
    OK(tarn_device_count_get(&count)); /* this chooses the driver */
    OK(driver->stream_create(device, 0, false, &native));
    return native;
}

tarn_stream lease(int device)
{
    tarn_stream stream = 0;
    OK(tarn_stream_lease(device, 0, &stream));
    return stream;
}

void work_on(tarn_stream stream, const void *address, size_t size, uint64_t ns)
{
    tarn_stream_info info = {.size = sizeof info};
    OK(tarn_stream_info_get(stream, &info));
    OK(machine->work(info.device, native_of(stream), address, size, ns));
}

void *alloc_on(tarn_stream stream, size_t size)
{
    void *pointer = NULL;
    OK(tarn_alloc_on(stream, size, &pointer));
    return pointer;
}

tarn_pool *pool_with(tarn_pool_options options)
{
    tarn_pool *pool = NULL;
    options.size = sizeof options;
    OK(tarn_pool_create(&options, &pool));
    return pool;
}

void *alloc_in(tarn_pool *pool, tarn_stream stream, size_t size)
{
    void *pointer = NULL;
    OK(tarn_pool_alloc(pool, stream, size, &pointer));
    return pointer;
}

tarn_stats pool_stats_of(tarn_pool *pool)
{
    tarn_stats stats = {.size = sizeof stats};
    OK(tarn_pool_stats_get(pool, &stats));
    return stats;
}

tarn_pool_info pool_info_of(tarn_pool *pool)
{
    tarn_pool_info info = {.size = sizeof info};
    OK(tarn_pool_info_get(pool, &info));
    return info;
}

size_t usable_size(const void *pointer)
{
    size_t size = 0;
    OK(tarn_usable_size_get(pointer, &size));
    return size;
}

/* Bytes that are also mapped at an old address. */
static uint64_t ghost_bytes(struct arena *arena)
{
    uint64_t bytes = 0;
    (void)ranges_bytes(arena, &bytes);
    for (const struct heap *heap = arena->heaps.all; heap; heap = heap->lists.next)
        for (const struct ghost *ghost = heap->ghosts; ghost; ghost = ghost->next)
            bytes += ghost->size;
    return bytes;
}

/* Bytes in the stores of a device that are mapped nowhere. */
static uint64_t cached_bytes(const struct arena *arena)
{
    uint64_t bytes = arena->store.unmapped.bytes;
    for (const struct store *store = arena->pools.list; store; store = store->lists.next)
        bytes += store->unmapped.bytes;
    return bytes;
}

tarn_status default_heap(struct stream *stream, struct heap **heap)
{
    struct arena *arena = NULL;
    tarn_status status = arena_of(device_at(stream->device), &arena);
    return status ? status : heap_of(&arena->store, stream, heap);
}

/* Bytes of plain segments: those of the driver, rounded up to granules as in its ledger, and those
 * of callers' allocators. */
struct plain {
    uint64_t bytes, rounding, theirs, theirs_bytes;
};

static void add_segment(const struct run *run, struct plain *plain)
{
    uint64_t size = run->end - run->start, whole = (size + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
    if (run->store->allocator.alloc) {
        plain->theirs++;
        plain->theirs_bytes += size;
    } else {
        plain->bytes += whole;
        plain->rounding += whole - size;
    }
}

static struct plain plain_of(struct arena *arena)
{
    struct plain plain = {0};
    for (const struct heap *heap = arena->heaps.all; heap; heap = heap->lists.next)
        for (int zone = 0; !heap->store->kind.pieces && zone < ZONES; zone++)
            for (const struct run *run = heap->zones.of[zone].runs; run; run = run->next)
                add_segment(run, &plain);
    for (const struct run *run = arena->stuck_segments; run; run = run->next)
        add_segment(run, &plain);
    return plain;
}

void verify(int device)
{
    struct arena *arena = NULL;
    OK(arena_of(device_at(device), &arena));
    OK(arena_verify(arena));
    struct plain plain = plain_of(arena);
    tarn_stats stats = stats_of(device);
    tarn_host_ledger ledger = ledger_of(device);
    CHECK((uint64_t)stats.reserved_bytes[0].current + plain.rounding ==
          ledger.created + plain.theirs_bytes);
    CHECK((uint64_t)stats.segment[0].current == ledger.pieces + ledger.plain + plain.theirs);
    CHECK(ledger.mapped == ledger.created - plain.bytes - cached_bytes(arena) + ghost_bytes(arena) +
                               arena->imports.reserved - arena->imports.unmapped.bytes);
    CHECK(ledger.reports == 0);
}

void nothing_is_left(int device)
{
    OK(tarn_device_synchronize(device));
    OK(tarn_device_trim(device, 0));
    verify(device);
    tarn_host_ledger ledger = ledger_of(device);
    CHECK(ledger.created == 0);
    CHECK(ledger.mapped == 0);
    CHECK(ledger.mappings == 0);
    tarn_stats stats = stats_of(device);
#define X(name)                                              \
    for (int class = 0; class < TARN_STAT_CLASSES; class ++) \
        CHECK(stats.name[class].current == 0);
    TARN_STATS_CLASS_LIST(X)
#undef X
}

uint64_t metadata_bytes(void)
{
    return pages_bytes() - map_bytes();
}

int open_files(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder != NULL);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}
