/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A program that was built before: what a release promises not to break. scripts/abi-baseline
 * preprocesses it with the headers of a release into baseline/program-<version>.i, which has that
 * release's structures, constants and prototypes in it and needs no header; the test build.abi
 * compiles that file and runs it with today's library.
 *
 * So it must see what a change of the library would do to such a program. Each structure that the
 * library fills lies between bytes that must stay as they were, for one that has grown; what is
 * read back is compared with what was asked for, for a field that has moved. It includes no header
 * but tarn's, so that the file is the same whatever C library it was made on and runs with. */
#include <tarn/debug.h>
#include <tarn/host.h>
#include <tarn/live.h>
#include <tarn/metrics.h>
#include <tarn/tarn.h>

extern int printf(const char *format, ...);
extern void exit(int status);
extern void *memset(void *to, int value, size_t size);
extern int strcmp(const char *one, const char *other);

#define MIB ((size_t)1 << 20)

static void check_at(bool holds, const char *what, int line)
{
    if (holds)
        return;
    printf("%d: not so: %s\n   the last error: %s\n", line, what, tarn_last_error());
    exit(1);
}
#define CHECK(condition) check_at(condition, #condition, __LINE__)
#define OK(call) check_at((call) == TARN_OK, #call, __LINE__)

/* A structure with what lies behind it. */
enum { BEHIND = 256, UNTOUCHED = 0xA5 };
#define FRAMED(type, name)            \
    struct {                          \
        type value;                   \
        unsigned char behind[BEHIND]; \
    } name;                           \
    memset(&name, UNTOUCHED, sizeof name)

static bool is_untouched(const unsigned char *behind)
{
    for (int i = 0; i < BEHIND; i++) {
        if (behind[i] != UNTOUCHED)
            return false;
    }
    return true;
}
#define UNTOUCHED_BEHIND(name) \
    check_at(is_untouched((name).behind), "nothing was written behind " #name, __LINE__)

static tarn_stream first_stream, second_stream;

static void devices_and_streams(void)
{
    FRAMED(tarn_device_properties, properties);
    FRAMED(tarn_guard, guard);
    FRAMED(tarn_guard, stream_guard);
    FRAMED(tarn_stream_info, info);
    tarn_stream stream, current;
    tarn_event *event;
    void *native;
    size_t unused, total;
    int device, count;

    OK(tarn_device_count_get(&count));
    CHECK(count == 2);
    properties.value.size = sizeof properties.value;
    OK(tarn_device_properties_get(1, &properties.value));
    UNTOUCHED_BEHIND(properties);
    CHECK(strcmp(properties.value.driver, "host") == 0);
    CHECK(properties.value.memory == 256 * MIB && properties.value.granule == 2 * MIB);
    CHECK(properties.value.virtual_memory && properties.value.exportable &&
          properties.value.capability_major == 0 && !properties.value.integrated &&
          !properties.value.paged && properties.value.address_bits > 0);
    OK(tarn_device_memory_get(0, &unused, &total));
    CHECK(total == 256 * MIB);

    OK(tarn_device_guard_set(&guard.value, 1));
    UNTOUCHED_BEHIND(guard);
    CHECK(guard.value.previous_device == 0 && guard.value.device == -1 && guard.value.active);
    OK(tarn_device_get(&device));
    CHECK(device == 1);
    OK(tarn_guard_restore(&guard.value));

    OK(tarn_stream_lease(0, 0, &first_stream));
    OK(tarn_stream_lease(0, 0, &second_stream));
    OK(tarn_stream_get(0, &stream));
    OK(tarn_stream_guard_set(&stream_guard.value, first_stream));
    UNTOUCHED_BEHIND(stream_guard);
    CHECK(stream_guard.value.device == 0 && stream_guard.value.active);
    OK(tarn_stream_get(0, &current));
    CHECK(current == first_stream);
    OK(tarn_guard_restore(&stream_guard.value));
    OK(tarn_stream_get(0, &current));
    CHECK(current == stream);

    OK(tarn_stream_native_get(first_stream, &native));
    OK(tarn_stream_find(0, native, &stream));
    CHECK(stream == first_stream);
    info.value.size = sizeof info.value;
    OK(tarn_stream_info_get(stream, &info.value));
    UNTOUCHED_BEHIND(info);
    CHECK(info.value.device == 0 && info.value.priority == 0);

    OK(tarn_stream_native_get(second_stream, &native));
    OK(tarn_event_create(0, &event));
    OK(tarn_host_work(0, native, NULL, 0, 1000));
    OK(tarn_event_record(event, second_stream));
    CHECK(tarn_event_query(event) == TARN_ERROR_NOT_READY);
    OK(tarn_stream_wait(first_stream, event));
    OK(tarn_stream_synchronize(first_stream));
    OK(tarn_event_destroy(event));
}

static void memory(void)
{
    FRAMED(tarn_block_info, info);
    FRAMED(tarn_stats, stats);
    tarn_alloc_options options;
    tarn_tag tag;
    size_t bytes;
    bool caches;
    void *block;

    OK(tarn_tag_intern("weights", &tag));
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.device = TARN_CURRENT_DEVICE;
    options.stream = first_stream;
    options.alignment = 64 << 10;
    options.tag = tag;
    OK(tarn_alloc(&options, 3 * MIB + 1, &block));
    CHECK(((uintptr_t)block & 0xFFFF) == 0);

    info.value.size = sizeof info.value;
    OK(tarn_pointer_info_get((char *)block + MIB, &info.value));
    UNTOUCHED_BEHIND(info);
    CHECK(info.value.base == block && info.value.requested == 3 * MIB + 1 &&
          info.value.usable_size >= 3 * MIB + 1);
    CHECK(info.value.device == 0 && info.value.stream == first_stream && info.value.tag == tag);
    CHECK(info.value.pool.first == 0 && info.value.pool.second == 0 && !info.value.imported);

    stats.value.size = sizeof stats.value;
    OK(tarn_device_stats_get(0, &stats.value));
    UNTOUCHED_BEHIND(stats);
    CHECK(stats.value.requested_bytes[TARN_STAT_ALL].current == (int64_t)(3 * MIB + 1));
    CHECK(stats.value.allocation[TARN_STAT_LARGE_POOL].peak == 1 &&
          stats.value.allocation[TARN_STAT_SMALL_POOL].peak == 0);
    CHECK(stats.value.reserved_bytes[TARN_STAT_ALL].current >= (int64_t)(4 * MIB));
    CHECK(stats.value.metadata_bytes > 0 && stats.value.max_split_size == -1);
    CHECK(stats.value.num_ooms == 0 && stats.value.num_device_alloc > 0);
    CHECK(tarn_alloc_on(first_stream, 300 * MIB, &block) == TARN_ERROR_OUT_OF_MEMORY);
    OK(tarn_device_stats_get(0, &stats.value));
    CHECK(stats.value.num_ooms == 1);

    OK(tarn_record_stream(info.value.base, second_stream));
    OK(tarn_free(info.value.base));
    CHECK(tarn_free(info.value.base) == TARN_ERROR_DOUBLE_FREE);
    CHECK(tarn_free(&options) == TARN_ERROR_INVALID_POINTER);
    block = tarn_malloc(100);
    CHECK(block != NULL);
    OK(tarn_free(block));
    OK(tarn_device_trim(0, 0));
    OK(tarn_device_stats_reset(0, TARN_STATS_ACCUMULATED));
    OK(tarn_device_stats_get(0, &stats.value));
    CHECK(stats.value.num_ooms == 0);

    OK(tarn_device_limit_get(0, &bytes));
    CHECK(bytes == TARN_NO_LIMIT);
    OK(tarn_device_limit_set(0, 0));
    CHECK(tarn_alloc_on(first_stream, 100, &block) == TARN_ERROR_OUT_OF_MEMORY);
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    OK(tarn_caching_set(false, &caches));
    CHECK(caches);
    OK(tarn_caching_set(true, &caches));
    CHECK(!caches);
}

/* Blocks whose pool is named, the device's own among them. */
static void named_pools(void)
{
    FRAMED(tarn_stats, stats);
    FRAMED(tarn_block_info, info);
    tarn_alloc_options options;
    tarn_pool *everybodys, *pool;
    FRAMED(tarn_pool_info, known);
    void *block;

    OK(tarn_pool_default(0, &everybodys));
    known.value.size = sizeof known.value;
    OK(tarn_pool_info_get(everybodys, &known.value));
    UNTOUCHED_BEHIND(known);
    CHECK(known.value.use_count == 1 && known.value.id.first == 0 && known.value.id.second == 0);
    OK(tarn_pool_create(NULL, &pool));
    OK(tarn_pool_info_get(pool, &known.value));
    CHECK(known.value.device == 0);
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.device = TARN_CURRENT_DEVICE;
    options.stream = first_stream;
    options.pool = pool;
    OK(tarn_alloc(&options, MIB, &block));
    info.value.size = sizeof info.value;
    OK(tarn_pointer_info_get(block, &info.value));
    UNTOUCHED_BEHIND(info);
    CHECK(info.value.pool.first == known.value.id.first &&
          info.value.pool.second == known.value.id.second);
    stats.value.size = sizeof stats.value;
    OK(tarn_pool_stats_get(pool, &stats.value));
    UNTOUCHED_BEHIND(stats);
    CHECK(stats.value.requested_bytes[TARN_STAT_ALL].current == (int64_t)MIB);
    OK(tarn_pool_stats_get(everybodys, &stats.value));
    CHECK(stats.value.requested_bytes[TARN_STAT_ALL].current == 0);
    OK(tarn_free(block));
    OK(tarn_pool_trim(pool, 0));
    OK(tarn_pool_trim(everybodys, 0));
    OK(tarn_pool_release(pool));
}

static int changes;
static void changed(const tarn_pool_block *block, bool live, void *user)
{
    if (user == &changes && block->requested == MIB && !live)
        changes++;
}

/* A capture that the program begins and ends itself (here it does not come to be), and a pool that
 * is set back. */
static void announced_and_restored(void)
{
    tarn_checkpoint *checkpoint;
    tarn_pool *pool;
    void *block, *graph = NULL;

    OK(tarn_pool_create(NULL, &pool));
    OK(tarn_pool_capture_announce(pool, first_stream));
    CHECK(tarn_capture_end(first_stream, &graph) == TARN_ERROR_INVALID_ARGUMENT);
    OK(tarn_capture_end_announced(first_stream, NULL));
    CHECK(tarn_capture_end_announced(first_stream, NULL) == TARN_ERROR_INVALID_ARGUMENT);

    OK(tarn_pool_checkpoint(pool, &checkpoint));
    OK(tarn_pool_alloc(pool, first_stream, MIB, &block));
    OK(tarn_pool_restore(pool, checkpoint, changed, &changes));
    CHECK(changes == 1);
    OK(tarn_checkpoint_destroy(checkpoint));
    OK(tarn_pool_release(pool));
}

static int segments_alive;
static char segment[8 << 20] __attribute__((aligned(512)));
static void *segment_alloc(size_t size, int device, void *stream, void *user)
{
    (void)stream;
    if (size > sizeof segment || device != 0 || user != &segments_alive || segments_alive)
        return NULL;
    segments_alive++;
    return segment;
}
static void segment_free(void *pointer, size_t size, int device, void *stream, void *user)
{
    (void)size, (void)device, (void)stream;
    if (pointer == segment && user == &segments_alive)
        segments_alive--;
}

static void pools(void)
{
    FRAMED(tarn_pool_block, blocks);
    tarn_pool_options options;
    tarn_pool_allocator allocator;
    tarn_segment_sizes sizes;
    FRAMED(tarn_pool_info, info);
    tarn_pool *pool;
    tarn_scope scope;
    size_t count;
    void *block, *graph;

    memset(&allocator, 0, sizeof allocator);
    allocator.size = sizeof allocator;
    allocator.alloc = segment_alloc;
    allocator.free = segment_free;
    allocator.user = &segments_alive;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.allocator = &allocator;
    memset(&sizes, 0, sizeof sizes);
    sizes.size = sizeof sizes;
    sizes.small_segment = 4 * MIB;
    options.sizes = &sizes;
    OK(tarn_pool_create(&options, &pool));
    info.value.size = sizeof info.value;
    OK(tarn_pool_info_get(pool, &info.value));
    UNTOUCHED_BEHIND(info);
    CHECK(info.value.allocator->alloc == segment_alloc &&
          info.value.allocator->free == segment_free &&
          info.value.allocator->user == &segments_alive);
    CHECK(info.value.id.first == 0 && info.value.id.second != 0 &&
          info.value.limit == TARN_NO_LIMIT);
    CHECK(info.value.tag == 0 && info.value.state == TARN_POOL_RUNS);
    OK(tarn_pool_limit_set(pool, 16 * MIB));
    OK(tarn_pool_info_get(pool, &info.value));
    CHECK(info.value.limit == 16 * MIB);

    OK(tarn_scope_begin(pool, TARN_SCOPE_THREAD, 0, &scope));
    OK(tarn_alloc_on(first_stream, 1000, &block));
    OK(tarn_scope_end(scope));
    CHECK(tarn_scope_end(scope) == TARN_ERROR_SCOPE);
    CHECK((char *)block >= segment && (char *)block < segment + sizeof segment);
    OK(tarn_pool_blocks_get(pool, &blocks.value, 1, &count));
    UNTOUCHED_BEHIND(blocks);
    CHECK(count == 1 && blocks.value.address == block && blocks.value.requested == 1000);
    CHECK(blocks.value.usable_size == 1024 && blocks.value.stream == first_stream);
    OK(tarn_free(block));
    OK(tarn_pool_release(pool));
    CHECK(segments_alive == 0);

    OK(tarn_pool_create(NULL, &pool));
    OK(tarn_pool_alloc(pool, first_stream, 2 * MIB, &block));
    OK(tarn_pool_suspend(pool, true));
    OK(tarn_pool_info_get(pool, &info.value));
    CHECK(info.value.state == TARN_POOL_SAVED);
    CHECK(tarn_pool_alloc(pool, first_stream, 2 * MIB, &graph) == TARN_ERROR_SUSPENDED);
    OK(tarn_pool_resume(pool));
    OK(tarn_free(block));

    OK(tarn_pool_capture_begin(pool, first_stream, TARN_CAPTURE_RELAXED));
    OK(tarn_alloc_on(first_stream, MIB, &block));
    OK(tarn_free(block));
    tarn_capture_state capture;
    OK(tarn_capture_state_get(first_stream, &capture, NULL, &graph));
    CHECK(capture == TARN_CAPTURE_ACTIVE && graph);
    OK(tarn_capture_end(first_stream, &graph));
    FRAMED(tarn_graph_summary, summary);
    uint64_t number = 0;
    summary.value.size = sizeof summary.value;
    OK(tarn_graph_remember(graph, &number));
    OK(tarn_graph_check(graph, NULL, NULL, NULL, &summary.value));
    OK(tarn_graph_launch(graph, number, first_stream, NULL, NULL));
    OK(tarn_stream_synchronize(first_stream));
    UNTOUCHED_BEHIND(summary);
    OK(tarn_host_graph_destroy(graph));
    OK(tarn_pool_release(pool));
}

static void pinned_memory(void)
{
    FRAMED(tarn_pinned_stats, stats);
    void *block;

    OK(tarn_pinned_alloc(TARN_STREAM_CURRENT, MIB, &block));
    CHECK(tarn_pinned_contains((char *)block + 1));
    stats.value.size = sizeof stats.value;
    OK(tarn_pinned_stats_get(&stats.value));
    UNTOUCHED_BEHIND(stats);
    CHECK(stats.value.requested_bytes.current == (int64_t)MIB && stats.value.num_host_alloc == 1);
    CHECK(stats.value.active_requests.current == 1 && stats.value.num_ooms == 0 &&
          stats.value.graph_bytes == 0);
    CHECK(stats.value.host_alloc_time.count == 1);
    OK(tarn_free(block));
    OK(tarn_pinned_trim(0));
}

static int told, shortages;
static void mapped(const tarn_mapping *range, void *user)
{
    if (user == &told && range->device == 0 && range->bytes >= 2 * MIB && range->generation > 0)
        told++;
}
static bool out_of_memory(const tarn_shortage *shortage, void *user)
{
    if (user == &told && shortage->requested >= 300 * MIB && shortage->total == 256 * MIB &&
        shortage->device == 0 && shortage->limit == TARN_NO_LIMIT)
        shortages++;
    return 0;
}

static void observed_and_shared(void)
{
    tarn_observer_options options;
    FRAMED(tarn_mapping, range);
    FRAMED(tarn_share_info, info);
    tarn_observer observer;
    tarn_share *share;
    void *block, *none;

    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.device = TARN_ALL_DEVICES;
    options.user = &told;
    options.mapped = mapped;
    options.out_of_memory = out_of_memory;
    OK(tarn_observer_add(&options, &observer));
    OK(tarn_device_trim(0, 0));
    OK(tarn_export_enable(0));
    OK(tarn_alloc_on(first_stream, 4 * MIB, &block));
    CHECK(told > 0);
    CHECK(tarn_alloc_on(first_stream, 300 * MIB, &none) == TARN_ERROR_OUT_OF_MEMORY &&
          shortages == 1);
    OK(tarn_observer_remove(observer));
    OK(tarn_mapping_get(block, &range.value));
    UNTOUCHED_BEHIND(range);
    CHECK(range.value.device == 0 && range.value.bytes >= 4 * MIB && range.value.generation > 0);

    OK(tarn_anchor(block, MIB));
    OK(tarn_unanchor(block, MIB));
    OK(tarn_export(block, &share));
    info.value.size = sizeof info.value;
    OK(tarn_share_info_get(share, &info.value));
    UNTOUCHED_BEHIND(info);
    CHECK(info.value.bytes == 4 * MIB && info.value.pieces >= 1 && info.value.mapped >= 4 * MIB);
    CHECK(info.value.device == 0 && info.value.generation > 0);
    OK(tarn_share_close(share));
    OK(tarn_free(block));
}

static int handle_alive;
static void *bound_stream, *given_workspace;
static size_t given_size;
static int handle_create(void **handle)
{
    handle_alive++;
    *handle = &handle_alive;
    return 0;
}
static int handle_destroy(void *handle)
{
    (void)handle;
    handle_alive--;
    return 0;
}
static int handle_set_stream(void *handle, void *stream)
{
    (void)handle;
    bound_stream = stream;
    return 0;
}
static int handle_set_workspace(void *handle, void *pointer, size_t size)
{
    (void)handle;
    given_workspace = pointer;
    given_size = size;
    return 0;
}

static void workspaces(tarn_library library)
{
    FRAMED(tarn_workspace_call, call);
    FRAMED(tarn_workspace_stats, stats);
    FRAMED(tarn_workspace_cleared, cleared);

    stats.value.size = sizeof stats.value;
    OK(tarn_workspace_stats_get(0, &stats.value));
    UNTOUCHED_BEHIND(stats);
    CHECK(stats.value.count == 1 && stats.value.bytes >= 2 * MIB && stats.value.leaked_bytes == 0);
    cleared.value.size = sizeof cleared.value;
    OK(tarn_workspace_clear(&(tarn_workspace_choice){.size = sizeof(tarn_workspace_choice)},
                            &cleared.value));
    UNTOUCHED_BEHIND(cleared);
    CHECK(cleared.value.freed >= 2 * MIB && cleared.value.deferred == 0);
    OK(tarn_workspace_policy_set(TARN_WORKSPACE_PER_CALL, NULL));
    OK(tarn_workspace_begin(library, TARN_STREAM_CURRENT, NULL, &call.value));
    UNTOUCHED_BEHIND(call);
    CHECK(call.value.handle == &handle_alive && call.value.pointer == given_workspace &&
          call.value.bytes >= 2 * MIB);
    OK(tarn_workspace_end(&call.value));
    OK(tarn_workspace_begin(library, second_stream, NULL, &call.value));
    UNTOUCHED_BEHIND(call);
    CHECK(call.value.handle == &handle_alive && call.value.pointer == given_workspace);
    OK(tarn_workspace_end(&call.value));
    OK(tarn_workspace_policy_set(TARN_WORKSPACE_CACHED, NULL));
}

/* What is the calling thread's alone, and what is the process's. */
static void modes_and_plain_handles(tarn_library library)
{
    FRAMED(tarn_workspace_call, call);
    FRAMED(tarn_lease, lease);
    uint64_t ns;
    int value;
    void *handle;

    OK(tarn_handle_get(library, TARN_STREAM_NONE, &handle));
    CHECK(handle == &handle_alive);
    OK(tarn_handle_wait_limit_set(1000, NULL));
    OK(tarn_handle_wait_limit_set(0, &ns));
    CHECK(ns == 1000);
    OK(tarn_handle_mode_set(TARN_LIBRARY_CUBLAS, TARN_HANDLE_MATH, TARN_HANDLE_MODE_FOR_ALL, 3,
                            NULL));
    OK(tarn_handle_mode_set(TARN_LIBRARY_CUBLAS, TARN_HANDLE_MATH, TARN_HANDLE_MODE_FOR_ALL, -1,
                            &value));
    CHECK(value == 3);
    OK(tarn_handle_mode_set(TARN_LIBRARY_CUBLAS, TARN_HANDLE_MATH, TARN_HANDLE_MODE_FOR_THREAD, 1,
                            &value));
    CHECK(value == -1);
    OK(tarn_handle_mode_set(TARN_LIBRARY_CUBLAS, TARN_HANDLE_MATH, TARN_HANDLE_MODE_FOR_THREAD, -1,
                            NULL));
    OK(tarn_handle_lease(library, second_stream, &lease.value));
    OK(tarn_workspace_policy_set(TARN_WORKSPACE_PER_CALL, NULL));
    OK(tarn_workspace_begin(library, TARN_STREAM_NONE, &lease.value, &call.value));
    UNTOUCHED_BEHIND(lease);
    UNTOUCHED_BEHIND(call);
    CHECK(call.value.handle == lease.value.handle && call.value.bytes >= 2 * MIB);
    OK(tarn_workspace_end(&call.value));
    OK(tarn_handle_return(&lease.value));
    CHECK(tarn_workspace_get(library, second_stream, NULL, &handle, &given_size) ==
          TARN_ERROR_NOT_SUPPORTED);
}

static void handles(void)
{
    static const tarn_library_row clean;
    FRAMED(tarn_library_info, info);
    FRAMED(tarn_handle_stats, stats);
    FRAMED(tarn_lease, lease);
    tarn_library_row row = clean;
    tarn_library library;
    void *handle, *native;

    row.size = sizeof row;
    row.name = "counter";
    row.create = handle_create;
    row.destroy = handle_destroy;
    row.set_stream = handle_set_stream;
    row.set_workspace = handle_set_workspace;
    OK(tarn_library_register(&row, &library));
    info.value.size = sizeof info.value;
    OK(tarn_library_info_get(library, &info.value));
    UNTOUCHED_BEHIND(info);
    CHECK(info.value.found && info.value.usable && strcmp(info.value.name, "counter") == 0 &&
          info.value.reason[0] == 0);
    CHECK(tarn_library_find("cublas", &library) == TARN_OK && library == TARN_LIBRARY_CUBLAS);
    OK(tarn_library_find("counter", &library));
    OK(tarn_workspace_size_set(library, 2 * MIB));

    OK(tarn_handle_get(library, first_stream, &handle));
    OK(tarn_stream_native_get(first_stream, &native));
    CHECK(handle == &handle_alive && handle_alive == 1 && bound_stream == native);
    CHECK(given_workspace != NULL && given_size >= 2 * MIB);
    stats.value.size = sizeof stats.value;
    OK(tarn_handle_stats_get(library, 0, &stats.value));
    UNTOUCHED_BEHIND(stats);
    CHECK(stats.value.created == 1 && stats.value.in_use == 1 && stats.value.failures == 0);
    workspaces(library);
    OK(tarn_handle_lease(library, second_stream, &lease.value));
    UNTOUCHED_BEHIND(lease);
    CHECK(lease.value.handle == &handle_alive && handle_alive == 2);
    OK(tarn_handle_return(&lease.value));
    modes_and_plain_handles(library);
    OK(tarn_handle_trim(library, 0, NULL));
    CHECK(handle_alive == 1);
}

static int64_t metadata;
static void add_kind(const tarn_metadata_kind *kind, void *user)
{
    if (user == &metadata && kind->size >= sizeof *kind)
        metadata += kind->bytes;
}

static size_t written;
static bool write_nowhere(const void *data, size_t size, void *user)
{
    written += data && user == &written ? size : 0;
    return true;
}

static int reports;
static void reported(const tarn_debug_report *report, void *user)
{
    (void)user, (void)report;
    reports++;
}

static void records(void)
{
    tarn_trace_options trace;
    tarn_snapshot_options options;
    uint64_t kept, lost;
    void *block;

    memset(&trace, 0, sizeof trace);
    trace.size = sizeof trace;
    trace.records = 1000;
    trace.stacks = TARN_TRACE_STACKS_NONE;
    trace.regions = true;
    OK(tarn_trace_start(&trace));
    OK(tarn_region_push("step 1"));
    OK(tarn_alloc_on(first_stream, MIB, &block));
    OK(tarn_free(block));
    OK(tarn_region_pop());
    OK(tarn_trace_count_get(&kept, &lost));
    CHECK(kept >= 4 && lost == 0);
    OK(tarn_trace_stop());
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.format = TARN_SNAPSHOT_CHROME;
    options.max_bytes = TARN_NO_LIMIT;
    OK(tarn_snapshot_print(write_nowhere, &written, &options));
    CHECK(written > 100);
    options.format = TARN_SNAPSHOT_PICKLE;
    options.max_bytes = 10;
    CHECK(tarn_snapshot_print(write_nowhere, &written, &options) == TARN_ERROR_INVALID_ARGUMENT);

    tarn_debug_callback_set(reported, NULL);
    CHECK(tarn_debug_reports() == 0 && reports == 0);
    OK(tarn_metadata_list(add_kind, &metadata));
    CHECK(metadata > 0);
    OK(tarn_configuration_set("max_split_size_mb:64"));
    OK(tarn_configuration_get(NULL, 0, &written));
    CHECK(written > 1);
}

static void published(void)
{
    tarn_live_options options;

    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.name = "program";
    options.directory = ".";
    options.interval_ms = 1000;
    OK(tarn_live_start(&options));
    CHECK(tarn_live_start(&options) == TARN_ERROR_BUSY);
    OK(tarn_live_stop());
    options.interval_ms = 1;
    CHECK(tarn_live_start(&options) == TARN_ERROR_INVALID_ARGUMENT);
    written = 0;
    OK(tarn_metrics_print(write_nowhere, &written));
    CHECK(written > 100);
}

static void host_device(void)
{
    FRAMED(tarn_host_ledger, ledger);
    FRAMED(tarn_host_extent, extent);
    void *block;

    ledger.value.size = sizeof ledger.value;
    OK(tarn_alloc_on(first_stream, 2 * MIB, &block));
    OK(tarn_host_ledger_get(0, &ledger.value));
    UNTOUCHED_BEHIND(ledger);
    CHECK(ledger.value.created >= 2 * MIB && ledger.value.mapped >= 2 * MIB &&
          ledger.value.reports == 0);
    CHECK(tarn_host_call_name(0) && !tarn_host_call_name(TARN_HOST_MAX_KINDS) &&
          ledger.value.time_a_ns > 0);
    OK(tarn_host_extent_get(0, block, 2 * MIB, &extent.value));
    UNTOUCHED_BEHIND(extent);
    CHECK(extent.value.piece != 0 && extent.value.length > 0 && extent.value.accessible);
    OK(tarn_free(block));
}

int main(void)
{
    tarn_host_configuration config;

    memset(&config, 0, sizeof config);
    config.size = sizeof config;
    config.devices = 2;
    config.memory = 256 * MIB;
    OK(tarn_host_configuration_set(&config));
    devices_and_streams();
    memory();
    named_pools();
    pools();
    announced_and_restored();
    pinned_memory();
    observed_and_shared();
    handles();
    records();
    published();
    host_device();
    OK(tarn_shutdown());
    CHECK(tarn_shutdown() == TARN_OK && tarn_device_trim(0, 0) == TARN_ERROR_SHUTDOWN);
    CHECK(handle_alive == 0);
    CHECK(strcmp(tarn_status_name(TARN_ERROR_SYSTEM), "TARN_ERROR_SYSTEM") == 0);
    printf("a program of tarn %d.%d.%d runs with %s\n", TARN_VERSION_MAJOR, TARN_VERSION_MINOR,
           TARN_VERSION_PATCH, tarn_version());
    return 0;
}
