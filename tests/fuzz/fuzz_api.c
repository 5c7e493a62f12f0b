/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Random sequences of calls of the whole public API, on a small host device. Seeds: corpus/api. Two
 * bytes are a call: which header's and by which of two threads, and which function; the bytes
 * behind them choose its arguments, from what earlier calls gave, from what was given back since,
 * and from what never was any of these.
 *
 * Whatever is called: nothing crashes, a good argument among bad ones does no harm, and when
 * everything is given back nothing is left. The functions of no part are named in
 * tests/build/test_fuzz.sh, with the reason. */
#include "api/api.h"
#include "driver/driver.h"
#include "memory/watch/verify.h"
#include "support/clearing.h"

#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

extern const tarn_library_row api_library;

static const struct api_call *const parts[] = {api_memory,  api_pools,   api_streams,
                                               api_handles, api_reports, api_host};
#define PARTS (sizeof parts / sizeof *parts)

static const uint8_t *input, *input_end;

uint8_t take(void)
{
    return input < input_end ? *input++ : 0;
}

/* ---- The other thread: runs what it is given, while the first one waits ---- */

static struct {
    pthread_t thread;
    sem_t wanted, done;
    void (*call)(void); /* NULL: it ends */
} other;

static void *other_thread(void *argument)
{
    this_thread = 1;
    for (;;) {
        while (sem_wait(&other.wanted))
            ;
        if (!other.call)
            return argument;
        other.call();
        sem_post(&other.done);
    }
}

static void run_on_other(void (*call)(void))
{
    other.call = call;
    sem_post(&other.wanted);
    while (sem_wait(&other.done))
        ;
}

/* ---- The beginning ---- */

/* The other thread ends too: at the end of the process the leak sanitizer cannot read what
 * libraries that were opened since keep for it. */
static void finish(void)
{
    char command[128];
    other.call = NULL;
    sem_post(&other.wanted);
    pthread_join(other.thread, NULL);
    snprintf(command, sizeof command, "rm -rf '%s'", world.directory);
    (void)!system(command);
}

static void start(void)
{
    const tarn_host_configuration config = {
        .size = sizeof config, .devices = DEVICES, .memory = DEVICE_MEMORY};
    size_t free_bytes, total;
    DEMAND(tarn_host_configuration_set(&config) == TARN_OK);
    DEMAND(tarn_library_register(&api_library, &world.library) == TARN_OK);
    DEMAND(tarn_workspace_size_set(world.library, 4096) == TARN_OK);
    for (int i = 0; i < DEVICES; i++) {
        DEMAND(tarn_device_memory_get(i, &free_bytes, &total) == TARN_OK && total == DEVICE_MEMORY);
        DEMAND(driver->stream_create(i, 0, i == 1, &world.natives[i]) == TARN_OK);
    }
    strcpy(world.directory, "/tmp/tarn-fuzz-XXXXXX");
    DEMAND(mkdtemp(world.directory) != NULL);
    world.wrong_file = open("/dev/null", O_RDWR | O_CLOEXEC);
    DEMAND(world.wrong_file >= 0);
    DEMAND(sem_init(&other.wanted, 0, 0) == 0 && sem_init(&other.done, 0, 0) == 0);
    DEMAND(pthread_create(&other.thread, NULL, other_thread, NULL) == 0 && atexit(finish) == 0);
}

static void begin(void)
{
    static bool begun;
    if (!begun)
        start();
    begun = true;
    DEMAND(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, world.sockets) == 0);
    DEMAND(tarn_pinned_limit_set(DEVICE_MEMORY) == TARN_OK);
}

/* ---- The end: all is given back ---- */

static void end_captures(void)
{
    for (size_t i = 0; i < SLOTS; i++) {
        (void)tarn_capture_abort(world.streams[i].value);
        (void)tarn_capture_abort(world.leased_streams[i].value);
    }
    (void)tarn_capture_abort(TARN_STREAM_PER_THREAD);
}

static void clear_workspaces(void)
{
    for (size_t i = 0; i < SLOTS; i++) {
        (void)workspaces_clear_capture(world.captures[i].value, NULL);
        (void)workspaces_clear_stream(world.streams[i].value, NULL);
        (void)workspaces_clear_stream(world.leased_streams[i].value, NULL);
    }
    (void)workspaces_clear_stream(TARN_STREAM_PER_THREAD, NULL);
    (void)workspaces_clear_stream(TARN_STREAM_LEGACY, NULL);
    DEMAND(workspaces_clear_all(NULL) == TARN_OK);
}

void end_mine(void)
{
    struct mine *here = mine();
    end_captures();
    while (here->scope_count) {
        tarn_scope scope = here->scopes[--here->scope_count].value;
        (void)tarn_scope_end(scope); /* or of a kind that any thread ended */
    }
    for (size_t i = 0; i < 4; i++)
        (void)tarn_workspace_end(&here->calls[i]);
    for (; here->regions; here->regions--)
        DEMAND(tarn_region_pop() == TARN_OK);
    DEMAND(tarn_device_set(0) == TARN_OK);
    for (int i = 0; i < DEVICES; i++) {
        DEMAND(tarn_device_set(i) == TARN_OK && tarn_stream_set(TARN_STREAM_LEGACY) == TARN_OK);
        (void)tarn_handle_wait_limit_set(0, NULL);
    }
    DEMAND(tarn_device_set(0) == TARN_OK);
}

static void end_objects(void)
{
    for (size_t i = 0; i < SLOTS; i++) {
        if (world.leases[i].number)
            DEMAND(tarn_handle_return(&world.leases[i]) == TARN_OK);
        if (world.observers[i].live)
            DEMAND(tarn_observer_remove(world.observers[i].value) == TARN_OK);
        if (world.graphs[i].live)
            DEMAND(tarn_host_graph_destroy(world.graphs[i].object) == TARN_OK);
        if (world.events[i].live)
            DEMAND(tarn_event_destroy(world.events[i].object) == TARN_OK);
        if (world.checkpoints[i].live)
            DEMAND(tarn_checkpoint_destroy(world.checkpoints[i].object) == TARN_OK);
        if (world.shares[i].live)
            DEMAND(tarn_share_close(world.shares[i].object) == TARN_OK);
        if (world.imported[i].live)
            DEMAND(tarn_imported_pool_close(world.imported[i].object) == TARN_OK);
        if (world.pins[i].live)
            DEMAND(tarn_unanchor(world.pins[i].object, world.pins[i].value) == TARN_OK);
    }
}

static void end_blocks(void)
{
    for (size_t i = 0; i < BLOCKS; i++) {
        const struct block *block = &world.blocks[i];
        if (!block->live)
            continue;
        if (block->kind == IMPORTED_BLOCK)
            DEMAND(tarn_import_close(block->pointer) == TARN_OK);
        else
            DEMAND(tarn_free(block->pointer) == TARN_OK);
    }
}

static void end_pools_and_streams(void)
{
    fuzz_holds_end();
    fuzz_ranges_end();
    for (size_t i = 0; i < SLOTS; i++) {
        if (world.pools[i].live)
            DEMAND(tarn_pool_release(world.pools[i].object) == TARN_OK);
        if (world.streams[i].live)
            DEMAND(tarn_stream_retire(world.streams[i].value) == TARN_OK);
        if (world.leased_streams[i].live)
            DEMAND(tarn_stream_return(world.leased_streams[i].value) == TARN_OK);
    }
}

/* Of pools that nothing else counts any more: they end with the sleep, whatever room there is. */
static void end_sleep(void)
{
    tarn_sleep_state state;
    fuzz_sleepers_end();
    DEMAND(tarn_sleep_state_get(&state) == TARN_OK);
    if (state == TARN_SLEEP_PREPARED)
        DEMAND(tarn_sleep_cancel() == TARN_OK);
    else if (state == TARN_SLEEP_ASLEEP)
        DEMAND(tarn_wake() == TARN_OK);
}

static void end_settings(void)
{
    DEMAND(tarn_configuration_set("all:default") == TARN_OK);
    DEMAND(tarn_caching_set(true, NULL) == TARN_OK);
    DEMAND(tarn_trace_stop() == TARN_OK && tarn_trace_clear() == TARN_OK &&
           tarn_live_stop() == TARN_OK);
    DEMAND(tarn_workspace_policy_set(TARN_WORKSPACE_CACHED, NULL) == TARN_OK);
    DEMAND(tarn_workspace_size_set(world.library, 4096) == TARN_OK);
    DEMAND(tarn_pinned_limit_set(DEVICE_MEMORY) == TARN_OK);
    tarn_debug_callback_set(NULL, NULL);
    for (int i = 0; i < DEVICES; i++)
        DEMAND(tarn_device_limit_set(i, TARN_NO_LIMIT) == TARN_OK);
}

static void nothing_is_left(int device)
{
    tarn_stats stats = {.size = sizeof stats};
    tarn_host_ledger ledger = {.size = sizeof ledger};
    struct arena *arena = NULL;
    DEMAND(tarn_device_trim(device, 0) == TARN_OK);
    DEMAND(tarn_device_stats_get(device, &stats) == TARN_OK &&
           tarn_host_ledger_get(device, &ledger) == TARN_OK);
    DEMAND(stats.allocation[0].current == 0 && stats.allocated_bytes[0].current == 0);
    DEMAND(stats.requested_bytes[0].current == 0 && stats.active_bytes[0].current == 0);
    DEMAND(stats.reserved_bytes[0].current == 0);
    DEMAND(ledger.created == 0 && ledger.mapped == 0 && ledger.mappings == 0);
    DEMAND(arena_of(device_at(device), &arena) == TARN_OK && arena_verify(arena) == TARN_OK);
}

void end_all(void)
{
    tarn_pinned_stats pinned = {.size = sizeof pinned};
    DEMAND(tarn_host_fail_set(-1, 0, false, TARN_OK) == TARN_OK);
    run_on_other(end_mine);
    end_mine();
    end_settings();
    end_objects();
    for (int i = 0; i < DEVICES; i++)
        DEMAND(tarn_device_synchronize(i) == TARN_OK);
    end_blocks();
    run_on_other(clear_workspaces);
    clear_workspaces();
    end_pools_and_streams();
    end_sleep();
    for (int i = 0; i < DEVICES; i++)
        for (int j = 1; j < 3; j++)
            (void)tarn_handle_trim(world.library, i, NULL);
    DEMAND(tarn_pinned_forget_captures() == TARN_OK && tarn_pinned_trim(0) == TARN_OK);
    DEMAND(tarn_pinned_stats_get(&pinned) == TARN_OK && pinned.active_bytes.current == 0);
    for (int i = 0; i < DEVICES; i++)
        nothing_is_left(i);
    close(world.sockets[0]);
    close(world.sockets[1]);
}

/* What a sequence does not carry into the next: names of what is gone. */
static void forget(void)
{
    struct world fresh = {.wrong_file = world.wrong_file, .library = world.library};
    memcpy(fresh.natives, world.natives, sizeof fresh.natives);
    memcpy(fresh.directory, world.directory, sizeof fresh.directory);
    world = fresh;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool shows, asked;
    if (!asked)
        shows = getenv("TARN_FUZZ_SHOW") != NULL;
    asked = true;
    input = data;
    input_end = data + size;
    begin();
    while (input_end - input >= 2) {
        uint8_t part = take(), number = take();
        const struct api_call *call = parts[part % 128 % PARTS];
        for (; number && call->name; number--)
            call++;
        if (!call->name)
            continue;
        if (shows)
            fprintf(stderr, "%s%s\n", call->name, part < 128 ? "" : " by the other thread");
        if (part < 128)
            call->call();
        else
            run_on_other(call->call);
    }
    end_all();
    forget();
    return 0;
}
