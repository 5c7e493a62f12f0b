/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "support/every_call.h"

#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <tarn/debug.h>
#include <tarn/live.h>
#include <tarn/metrics.h>
#include <unistd.h>

struct world world;
const char *every_call_now = "none";
bool every_call_wrote;

/* Results of calls. */
static struct {
    int device, number;
    unsigned count;
    size_t size;
    uint64_t word, second;
    bool answer;
    void *pointer;
    const char *text;
    char buffer[64];
    tarn_stream stream;
    tarn_event *event;
    tarn_tag tag;
    tarn_library library;
    tarn_lease lease;
    tarn_workspace_call workspace;
    tarn_workspace_policy policy;
    tarn_workspace_cleared cleared;
    tarn_pool *pool;
    tarn_pool_info pool_info;
    tarn_stream_info stream_info;
    tarn_sleep_state sleep;
    tarn_sleeper sleeper;
    tarn_sleeper_info sleeper_info;
    tarn_checkpoint *checkpoint;
    tarn_scope scope;
    tarn_observer observer;
    tarn_mapping range;
    tarn_range *addresses;
    tarn_range_info range_info;
    tarn_kept kept;
    tarn_sealed_block sealed;
    tarn_share *share;
    tarn_imported_pool *imported;
    tarn_import_state import_state;
    tarn_capture_state capture;
    tarn_host_extent extent;
    tarn_device_properties properties;
    tarn_stats stats;
    tarn_pinned_stats pinned_stats;
    tarn_handle_stats handle_stats;
    tarn_workspace_stats workspace_stats;
    tarn_library_info library_info;
    tarn_block_info info;
    tarn_share_info share_info;
    tarn_host_ledger ledger;
    tarn_pool_block blocks[1];
} out, before;

static const tarn_sleep_options pinned_sleep = {.size = sizeof pinned_sleep,
                                                .what = TARN_SLEEP_PINNED};

/* Arguments of calls. */
static tarn_alloc_options alloc_options = {.size = sizeof alloc_options,
                                           .device = TARN_CURRENT_DEVICE};
static tarn_host_configuration host_config = {.size = sizeof host_config, .devices = 1};
static tarn_trace_options trace_options = {.size = sizeof trace_options};
static tarn_guard unset_device_guard;
static tarn_guard stream_guard, unset_stream_guard;
static tarn_lease lease_to_return, lease_to_bind;
static tarn_workspace_call workspace_to_end;
static const tarn_pool_id no_pool = {1, 1};

static void prepare(void)
{
    memset(&out, 0, sizeof out);
    out.properties.size = sizeof out.properties;
    out.stats.size = sizeof out.stats;
    out.pinned_stats.size = sizeof out.pinned_stats;
    out.handle_stats.size = sizeof out.handle_stats;
    out.workspace_stats.size = sizeof out.workspace_stats;
    out.cleared.size = sizeof out.cleared;
    out.library_info.size = sizeof out.library_info;
    out.info.size = sizeof out.info;
    out.share_info.size = sizeof out.share_info;
    out.sleeper_info.size = sizeof out.sleeper_info;
    out.pool_info.size = sizeof out.pool_info;
    out.range_info.size = sizeof out.range_info;
    out.kept.size = sizeof out.kept;
    out.sealed.size = sizeof out.sealed;
    out.stream_info.size = sizeof out.stream_info;
    out.ledger.size = sizeof out.ledger;
    before = out;
    unset_device_guard = (tarn_guard){0};
    unset_stream_guard = (tarn_guard){0};
    stream_guard = world.stream_guard;
    lease_to_return = lease_to_bind = world.lease;
    workspace_to_end = world.workspace;
}

/* Memory that may be written to even if there is no block: the host device works before the first
 * use and after a shutdown. */
static void *one_byte(void)
{
    static char byte;
    return world.block ? world.block : &byte;
}

static void nothing(void *argument)
{
    (void)argument;
}

static void hear_range(const tarn_mapping *range, void *user)
{
    (void)user;
    (void)range;
}

static const tarn_observer_options observer_options = {.size = sizeof observer_options,
                                                       .mapped = hear_range};

static tarn_status sleep_or_wake(void *user, char *why, size_t room)
{
    (void)user;
    (void)why;
    (void)room;
    return TARN_OK;
}

static const tarn_sleeper_options sleeper_options = {.size = sizeof sleeper_options,
                                                     .name = "every",
                                                     .commit = sleep_or_wake,
                                                     .wake = sleep_or_wake};

static void hear_debug(const tarn_debug_report *report, void *user)
{
    (void)user;
    (void)report;
}

static void hear_check(const char *text, void *user)
{
    (void)user;
    (void)text;
}

static void take_kind(const tarn_metadata_kind *kind, void *user)
{
    (void)user;
    (void)kind;
}

static void take_segment(const tarn_memory_segment *segment, void *user)
{
    (void)segment;
    (void)user;
}

static bool take(const void *data, size_t size, void *user)
{
    (void)user;
    (void)data;
    (void)size;
    return true;
}

static int make_handle(void **handle)
{
    static int handles;
    *handle = &handles;
    return 0;
}

static int with_handle(void *handle)
{
    return handle == NULL;
}

static int with_stream(void *handle, void *stream)
{
    (void)stream;
    return handle == NULL;
}

static int with_workspace(void *handle, void *pointer, size_t size)
{
    (void)pointer;
    (void)size;
    return handle == NULL;
}

static tarn_library_row row = {.size = sizeof row,
                               .name = "every",
                               .create = make_handle,
                               .destroy = with_handle,
                               .set_stream = with_stream,
                               .set_workspace = with_workspace};

/* How a call answers in a child of fork(), and after a shutdown:
 *
 *   REFUSED  refuses both, as every call does
 *   HOST     refuses in a child. After a shutdown the host device decides, which goes on if blocks
 *            are live
 *   RETURNS  refuses in a child. After a shutdown TARN_OK, because it only lets go of something
 *   ANSWERS  a status that its header describes, in both
 *   OTHER    it returns no status
 *
 * A call that makes the argument of another call invalid comes after that call. */
#define EVERY_CALL(REFUSED, HOST, RETURNS, ANSWERS, OTHER)                                     \
    REFUSED(tarn_configuration_set, (""))                                                      \
    REFUSED(tarn_configuration_get, (out.buffer, sizeof out.buffer, &out.size))                \
    REFUSED(tarn_configuration_note_get, (0, &out.text))                                       \
    OTHER(tarn_debug_callback_set, tarn_debug_callback_set(hear_debug, NULL))                  \
    OTHER(tarn_debug_reports, (void)tarn_debug_reports())                                      \
    REFUSED(tarn_debug_check, (0))                                                             \
    REFUSED(tarn_device_count_get, (&out.number))                                              \
    REFUSED(tarn_device_properties_get, (0, &out.properties))                                  \
    REFUSED(tarn_device_get, (&out.device))                                                    \
    REFUSED(tarn_device_set, (0))                                                              \
    REFUSED(tarn_device_adopt, (&out.device))                                                  \
    REFUSED(tarn_device_memory_get, (0, &out.size, &out.size))                                 \
    REFUSED(tarn_device_synchronize, (0))                                                      \
    REFUSED(tarn_device_peer_enable, (0, 1))                                                   \
    REFUSED(tarn_device_guard_set, (&unset_device_guard, 0))                                   \
    REFUSED(tarn_library_register, (&row, &out.library))                                       \
    REFUSED(tarn_library_find, ("cublas", &out.library))                                       \
    REFUSED(tarn_library_info_get, (world.library, &out.library_info))                         \
    REFUSED(tarn_handle_get, (world.library, world.stream, &out.pointer))                      \
    REFUSED(tarn_handle_lease, (world.library, world.stream, &out.lease))                      \
    REFUSED(tarn_handle_lease_bind, (&lease_to_bind, world.stream))                            \
    REFUSED(tarn_handle_prewarm, (world.library, TARN_CURRENT_DEVICE, world.stream, 1))        \
    REFUSED(tarn_handle_trim, (world.library, 0, &out.size))                                   \
    REFUSED(tarn_handle_wait_limit_set, (0, &out.word))                                        \
    REFUSED(tarn_handle_mode_set,                                                              \
            (world.library, TARN_HANDLE_MATH, TARN_HANDLE_MODE_FOR_ALL, 0, &out.number))       \
    REFUSED(tarn_handle_stats_get, (world.library, 0, &out.handle_stats))                      \
    REFUSED(tarn_workspace_policy_set, (TARN_WORKSPACE_CACHED, &out.policy))                   \
    REFUSED(tarn_workspace_size_set, (world.library, -1))                                      \
    REFUSED(tarn_workspace_get, (world.library, world.stream, NULL, &out.pointer, &out.size))  \
    REFUSED(tarn_workspace_begin, (world.library, world.stream, NULL, &out.workspace))         \
    REFUSED(tarn_workspace_clear, (NULL, &out.cleared))                                        \
    REFUSED(tarn_workspace_stats_get, (0, &out.workspace_stats))                               \
    HOST(tarn_host_configuration_set, (&host_config))                                          \
    OTHER(tarn_host_call_name, CHECK(*tarn_host_call_name(0)))                                 \
    HOST(tarn_host_ledger_get, (0, &out.ledger))                                               \
    HOST(tarn_host_ledger_reset, (0))                                                          \
    ANSWERS(tarn_host_cost_get, ('A', 0, 0, 0, &out.word))                                     \
    HOST(tarn_host_fail_set, (-1, 0, false, TARN_OK))                                          \
    HOST(tarn_host_time_get, (&out.word))                                                      \
    HOST(tarn_host_advance, (1))                                                               \
    HOST(tarn_host_work, (0, NULL, world.block, 1, 0))                                         \
    HOST(tarn_host_fill, (0, NULL, one_byte(), 0, 1))                                          \
    HOST(tarn_host_call, (0, NULL, nothing, NULL))                                             \
    HOST(tarn_host_graph_launch, (0, world.graph, NULL))                                       \
    HOST(tarn_host_extent_get, (0, world.block, 1, &out.extent))                               \
    HOST(tarn_host_check_set, (false, hear_check, NULL))                                       \
    REFUSED(tarn_live_start, (NULL))                                                           \
    REFUSED(tarn_live_stop, ())                                                                \
    REFUSED(tarn_tag_intern, ("a tag", &out.tag))                                              \
    OTHER(tarn_tag_text, CHECK(strcmp(tarn_tag_text(0), "") == 0))                             \
    OTHER(tarn_malloc, (void)tarn_malloc(100))                                                 \
    REFUSED(tarn_alloc_on, (world.stream, 100, &out.pointer))                                  \
    REFUSED(tarn_alloc, (&alloc_options, 100, &out.pointer))                                   \
    REFUSED(tarn_record_stream, (world.block, world.stream))                                   \
    REFUSED(tarn_extend, (world.block, 10))                                                    \
    REFUSED(tarn_usable_size_get, (world.block, &out.size))                                    \
    REFUSED(tarn_pointer_info_get, (world.block, &out.info))                                   \
    REFUSED(tarn_device_trim, (0, 0))                                                          \
    REFUSED(tarn_compact, (0, 0, &out.size))                                                   \
    REFUSED(tarn_caching_set, (true, &out.answer))                                             \
    REFUSED(tarn_device_limit_set, (0, SIZE_MAX))                                              \
    REFUSED(tarn_device_limit_get, (0, &out.size))                                             \
    REFUSED(tarn_metrics_print, (take, NULL))                                                  \
    REFUSED(tarn_observer_add, (&observer_options, &out.observer))                             \
    REFUSED(tarn_mapping_get, (world.block, &out.range))                                       \
    REFUSED(tarn_pinned_alloc, (world.stream, 100, &out.pointer))                              \
    OTHER(tarn_pinned_contains, (void)tarn_pinned_contains(world.pinned))                      \
    REFUSED(tarn_pinned_trim, (0))                                                             \
    REFUSED(tarn_pinned_limit_set, (SIZE_MAX))                                                 \
    REFUSED(tarn_pinned_forget_captures, ())                                                   \
    REFUSED(tarn_pinned_stats_get, (&out.pinned_stats))                                        \
    REFUSED(tarn_pinned_stats_reset, (TARN_STATS_PEAK))                                        \
    REFUSED(tarn_pool_create, (NULL, &out.pool))                                               \
    REFUSED(tarn_pool_default, (0, &out.pool))                                                 \
    REFUSED(tarn_pool_retain, (world.pool))                                                    \
    REFUSED(tarn_pool_find, (no_pool, &out.pool))                                              \
    REFUSED(tarn_pool_info_get, (world.pool, &out.pool_info))                                  \
    REFUSED(tarn_pool_stats_get, (world.pool, &out.stats))                                     \
    REFUSED(tarn_pool_trim, (world.pool, 0))                                                   \
    REFUSED(tarn_pool_limit_set, (world.pool, SIZE_MAX))                                       \
    REFUSED(tarn_pool_alloc, (world.pool, world.stream, 100, &out.pointer))                    \
    REFUSED(tarn_pool_blocks_get, (world.pool, out.blocks, 1, &out.size))                      \
    REFUSED(tarn_pool_segments_get, (world.pool, &out.range, 1, &out.size))                    \
    REFUSED(tarn_pool_suspend, (world.pool, true))                                             \
    REFUSED(tarn_pool_resume, (world.suspended))                                               \
    REFUSED(tarn_pool_checkpoint, (world.pool, &out.checkpoint))                               \
    REFUSED(tarn_scope_begin, (world.pool, TARN_SCOPE_THREAD, world.stream, &out.scope))       \
    REFUSED(tarn_scope_join, (world.scope))                                                    \
    REFUSED(tarn_pool_capture_begin, (world.pool, world.stream, TARN_CAPTURE_RELAXED))         \
    REFUSED(tarn_pool_capture_announce, (world.pool, world.stream))                            \
    REFUSED(tarn_pool_hold, (world.pool, world.graph))                                         \
    REFUSED(tarn_graph_check, (world.graph, NULL, NULL, NULL, NULL))                           \
    REFUSED(tarn_graph_remember, (world.graph, NULL))                                          \
    REFUSED(tarn_graph_launch, (world.graph, UINT64_MAX, world.stream, NULL, NULL))            \
    REFUSED(tarn_pool_unhold, (world.pool))                                                    \
    REFUSED(tarn_pool_tag_set, (world.pool, 0))                                                \
    REFUSED(tarn_pool_keep, ("none", NULL, &out.pool, &out.kept))                              \
    REFUSED(tarn_pool_block_seal, (world.pool_block, "none", NULL, NULL))                      \
    REFUSED(tarn_pool_block_unseal, (world.pool_block))                                        \
    REFUSED(tarn_pool_block_find, (world.pool, "none", &out.sealed))                           \
    REFUSED(tarn_pool_save, (world.pool, -1))                                                  \
    REFUSED(tarn_pool_load, (world.pool, -1))                                                  \
    REFUSED(tarn_range_create, (NULL, 4 * MIB, &out.addresses))                                \
    REFUSED(tarn_range_commit, (world.range, 2 * MIB, 2 * MIB, world.stream))                  \
    REFUSED(tarn_range_hold, (world.range, 0, 2 * MIB, NULL))                                  \
    REFUSED(tarn_range_unhold, (world.range, 0, 2 * MIB))                                      \
    REFUSED(tarn_range_decommit, (world.range, 0, 2 * MIB, world.stream))                      \
    REFUSED(tarn_range_info_get, (world.range, &out.range_info))                               \
    REFUSED(tarn_sleep_prepare, (&pinned_sleep, NULL))                                         \
    REFUSED(tarn_sleep_commit, (NULL))                                                         \
    REFUSED(tarn_wake, ())                                                                     \
    REFUSED(tarn_sleep, (&pinned_sleep, NULL))                                                 \
    REFUSED(tarn_sleep_cancel, ())                                                             \
    OTHER(tarn_sleep_state_get, (void)tarn_wake(), (void)tarn_sleep_state_get(&out.sleep))     \
    REFUSED(tarn_sleeper_add, (&sleeper_options, &out.sleeper))                                \
    REFUSED(tarn_sleeper_info_get, (world.sleeper, &out.sleeper_info))                         \
    REFUSED(tarn_anchor, (world.block, 1))                                                     \
    REFUSED(tarn_unanchor, (world.block, 1))                                                   \
    REFUSED(tarn_export_enable, (0))                                                           \
    REFUSED(tarn_export, (world.exported, &out.share))                                         \
    REFUSED(tarn_share_info_get, (world.share, &out.share_info))                               \
    REFUSED(tarn_share_send, (world.sockets[0], world.share))                                  \
    REFUSED(tarn_share_receive, (world.sockets[1], &out.share))                                \
    REFUSED(tarn_import, (world.share, 0, &out.pointer))                                       \
    REFUSED(tarn_pool_export, (world.registrable, NULL, &out.share))                           \
    REFUSED(tarn_pool_import, (world.pool_share, 0, &out.imported))                            \
    REFUSED(tarn_imported_pool_update, (world.imported_pool, world.pool_share))                \
    REFUSED(tarn_imported_pool_find, (world.imported_pool, world.registered, 1, &out.pointer)) \
    REFUSED(tarn_imported_pool_state_get, (world.imported_pool, &out.import_state))            \
    REFUSED(tarn_snapshot_write, ("/dev/null", NULL))                                          \
    REFUSED(tarn_snapshot_print, (take, NULL, NULL))                                           \
    REFUSED(tarn_memory_list, (take_segment, NULL))                                            \
    REFUSED(tarn_metadata_list, (take_kind, NULL))                                             \
    REFUSED(tarn_device_stats_get, (0, &out.stats))                                            \
    REFUSED(tarn_device_stats_reset, (0, TARN_STATS_PEAK))                                     \
    OTHER(tarn_status_name, CHECK(*tarn_status_name(TARN_OK)))                                 \
    OTHER(tarn_status_text, CHECK(*tarn_status_text(TARN_OK)))                                 \
    OTHER(tarn_last_error, CHECK(tarn_last_error() != NULL))                                   \
    OTHER(tarn_last_status, (void)tarn_last_status())                                          \
    REFUSED(tarn_stream_get, (0, &out.stream))                                                 \
    REFUSED(tarn_stream_set, (world.stream))                                                   \
    REFUSED(tarn_stream_adopt, (0, &out, &out.stream))                                         \
    REFUSED(tarn_stream_find, (0, &out, &out.stream))                                          \
    REFUSED(tarn_stream_shared_get, (0, 0, &out.stream))                                       \
    REFUSED(tarn_stream_lease, (0, 0, &out.stream))                                            \
    REFUSED(tarn_stream_native_get, (world.stream, &out.pointer))                              \
    REFUSED(tarn_stream_info_get, (world.stream, &out.stream_info))                            \
    REFUSED(tarn_stream_query, (world.stream))                                                 \
    REFUSED(tarn_stream_synchronize, (world.stream))                                           \
    REFUSED(tarn_stream_guard_set, (&unset_stream_guard, world.stream))                        \
    REFUSED(tarn_event_create, (0, &out.event))                                                \
    REFUSED(tarn_event_record, (world.event, world.stream))                                    \
    REFUSED(tarn_event_query, (world.event))                                                   \
    REFUSED(tarn_event_synchronize, (world.event))                                             \
    REFUSED(tarn_stream_wait, (world.stream, world.event))                                     \
    REFUSED(tarn_capture_begin, (world.stream, TARN_CAPTURE_RELAXED))                          \
    REFUSED(tarn_capture_announce, (world.stream))                                             \
    REFUSED(tarn_capture_end, (world.capturing, &out.pointer))                                 \
    REFUSED(tarn_capture_end_announced, (world.capturing, NULL))                               \
    REFUSED(tarn_capture_abort, (world.capturing))                                             \
    REFUSED(tarn_capture_state_get, (world.capturing, &out.capture, &out.word, &out.pointer))  \
    OTHER(tarn_version, CHECK(*tarn_version()))                                                \
    REFUSED(tarn_trace_start, (&trace_options))                                                \
    REFUSED(tarn_trace_stop, ())                                                               \
    REFUSED(tarn_trace_clear, ())                                                              \
    REFUSED(tarn_trace_count_get, (&out.word, &out.second))                                    \
    REFUSED(tarn_region_push, ("a region"))                                                    \
    REFUSED(tarn_region_pop, ())                                                               \
    REFUSED(tarn_workspace_end, (&workspace_to_end))                                           \
    RETURNS(tarn_handle_return, (&lease_to_return))                                            \
    RETURNS(tarn_observer_remove, (world.observer))                                            \
    RETURNS(tarn_sleeper_remove, (world.sleeper))                                              \
    REFUSED(tarn_pool_restore, (world.pool, world.checkpoint, NULL, NULL))                     \
    RETURNS(tarn_checkpoint_destroy, (world.checkpoint))                                       \
    RETURNS(tarn_share_close, (world.share))                                                   \
    REFUSED(tarn_import_close, (world.imported))                                               \
    REFUSED(tarn_share_revoke, (world.pool_share))                                             \
    REFUSED(tarn_imported_pool_close, (world.imported_pool))                                   \
    REFUSED(tarn_free_after, (world.block, world.event))                                       \
    REFUSED(tarn_event_destroy, (world.event))                                                 \
    REFUSED(tarn_free_on, (world.block, world.stream))                                         \
    REFUSED(tarn_free, (world.block))                                                          \
    REFUSED(tarn_scope_end, (world.scope))                                                     \
    REFUSED(tarn_range_destroy, (world.range))                                                 \
    REFUSED(tarn_pool_release, (world.pool))                                                   \
    HOST(tarn_host_graph_destroy, (world.graph))                                               \
    REFUSED(tarn_guard_restore, (&stream_guard))                                               \
    REFUSED(tarn_stream_retire, (world.adopted))                                               \
    REFUSED(tarn_stream_return, (world.stream))

/* clang-format off */
#define STATUS_CALL(name, arguments) static tarn_status call_##name(void) { return name arguments; }
#define OTHER_CALL(name, ...) static tarn_status call_##name(void) { __VA_ARGS__; return TARN_OK; }
/* clang-format on */
EVERY_CALL(STATUS_CALL, STATUS_CALL, STATUS_CALL, STATUS_CALL, OTHER_CALL)

enum kind { REFUSED, HOST, RETURNS, ANSWERS, OTHER };

static const struct {
    const char *name;
    tarn_status (*call)(void);
    enum kind kind;
} calls[] = {
#define REFUSED_ROW(name, arguments) {#name, call_##name, REFUSED},
#define HOST_ROW(name, arguments) {#name, call_##name, HOST},
#define RETURNS_ROW(name, arguments) {#name, call_##name, RETURNS},
#define ANSWERS_ROW(name, arguments) {#name, call_##name, ANSWERS},
#define OTHER_ROW(name, ...) {#name, call_##name, OTHER},
    EVERY_CALL(REFUSED_ROW, HOST_ROW, RETURNS_ROW, ANSWERS_ROW, OTHER_ROW)};
enum { CALLS = sizeof calls / sizeof *calls };

/* True if the call answers as it should; otherwise its name is printed. */
static bool is_right(size_t i, tarn_status wanted)
{
    prepare();
    every_call_now = calls[i].name;
    tarn_status status = calls[i].call();
    if (calls[i].kind == OTHER || calls[i].kind == ANSWERS ||
        (calls[i].kind == HOST && wanted == TARN_ERROR_SHUTDOWN))
        return true;
    if (calls[i].kind == RETURNS && wanted == TARN_ERROR_SHUTDOWN)
        wanted = TARN_OK;
    if (!world.made && (status == TARN_ERROR_INVALID_ARGUMENT || status == TARN_OK))
        return true; /* the call was given nothing to do */
    if (status != wanted)
        fprintf(stderr, "%s() gave %s, not %s\n", calls[i].name, tarn_status_name(status),
                tarn_status_name(wanted));
    else if (wanted != TARN_OK && memcmp(&out, &before, sizeof out) != 0)
        fprintf(stderr, "%s() failed and wrote a result\n", calls[i].name);
    else
        return true;
    return false;
}

/* Sets a value for each object that was not made. A call that is refused does not look at it. */
static void name_something(void)
{
    static char something[64];
    void **objects[] = {(void **)&world.event,
                        (void **)&world.pool,
                        (void **)&world.suspended,
                        (void **)&world.range,
                        (void **)&world.checkpoint,
                        (void **)&world.share,
                        (void **)&world.pool_share,
                        (void **)&world.registrable,
                        (void **)&world.imported_pool,
                        &world.registered,
                        &world.block,
                        &world.pool_block,
                        &world.pinned,
                        &world.imported,
                        &world.exported,
                        &world.graph,
                        &world.workspace.owner};
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++)
        if (!*objects[i])
            *objects[i] = something;
    world.device_guard.active = world.stream_guard.active = world.made = true;
}

void every_call_gives(tarn_status wanted, tarn_status shutdown)
{
    size_t right = 0;
    if (wanted == TARN_ERROR_FORKED)
        name_something();
    for (size_t i = 0; i < CALLS; i++)
        right += is_right(i, wanted);
    CHECK(right == CALLS);
    CHECK(!tarn_malloc(1));
    GIVES(tarn_last_status(), wanted);
    CHECK(!tarn_pinned_contains(world.pinned));
    GIVES(tarn_shutdown(), shutdown);
}

static void nothing_before(void) {}

static void nothing_after(const char *name, tarn_status status)
{
    (void)name;
    (void)status;
}

void every_call_returns(void)
{
    every_call_between(nothing_before, nothing_after);
}

static tarn_status sleep_of_all(void)
{
    return tarn_sleep(NULL, NULL);
}

static tarn_status prepare_of_all(void)
{
    return tarn_sleep_prepare(NULL, NULL);
}

/* Calls after which no other call is possible. */
static const struct {
    const char *name;
    tarn_status (*call)(void);
} last_calls[] = {{"tarn_sleep", sleep_of_all},
                  {"tarn_sleep_prepare", prepare_of_all},
                  {"tarn_shutdown", tarn_shutdown}};

size_t every_call_count(void)
{
    return CALLS + sizeof last_calls / sizeof *last_calls;
}

const char *every_call_name(size_t i)
{
    return i < CALLS ? calls[i].name : last_calls[i - CALLS].name;
}

tarn_status every_call_make(size_t i)
{
    (void)shutdown(world.sockets[0], SHUT_RDWR); /* otherwise the call would wait for a share */
    prepare();
    every_call_now = every_call_name(i);
    error_set(TARN_ERROR_SYSTEM, EARLIER_ERROR);
    tarn_status status = i < CALLS ? calls[i].call() : last_calls[i - CALLS].call();
    every_call_now = "none";
    return status;
}

void every_call_between(void (*to_do_before)(void),
                        void (*to_do_after)(const char *name, tarn_status status))
{
    (void)shutdown(world.sockets[0], SHUT_RDWR); /* otherwise the call would wait for a share */
    for (size_t i = 0; i < CALLS; i++) {
        prepare();
        every_call_now = calls[i].name;
        to_do_before();
        error_set(TARN_ERROR_SYSTEM, EARLIER_ERROR);
        tarn_status status = calls[i].call();
        every_call_wrote = status != TARN_OK && memcmp(&out, &before, sizeof out) != 0;
        to_do_after(calls[i].name, status);
    }
    every_call_now = "none";
}

void every_call_is_listed(void)
{
    char path[4096], line[256], name[64];
    const char *source = getenv("TARN_SOURCE");
    CHECK(source != NULL);
    snprintf(path, sizeof path, "%s/src/tarn.map", source);
    FILE *map = fopen(path, "r");
    CHECK(map != NULL);
    size_t named = 0;
    while (fgets(line, sizeof line, map)) {
        if (sscanf(line, " %63[a-z_];", name) != 1 || strncmp(name, "tarn_", 5) != 0)
            continue;
        bool listed = strcmp(name, "tarn_shutdown") == 0;
        for (size_t i = 0; i < CALLS && !listed; i++)
            listed = strcmp(calls[i].name, name) == 0;
        check_at(listed, name, __FILE__, __LINE__);
        named++;
    }
    fclose(map);
    CHECK(named == CALLS + 1);
}

/* One of everything ---------------------------------------------------------------------------- */

/* Makes a pool that is exported as a whole and imported again. */
static void registrable_make(void)
{
    world.registrable = pool_with((tarn_pool_options){.device = 0, .registrable = true});
    /* The limit leaves no room for a segment of the usual size */
    OK(tarn_pool_limit_set(world.registrable, 8 * MIB));
    world.registered = alloc_in(world.registrable, world.stream, 2 * MIB);
    OK(tarn_pool_export(world.registrable, NULL, &world.pool_share));
    OK(tarn_pool_import(world.pool_share, 0, &world.imported_pool));
}

void world_make(void)
{
    bool exports = tarn_export_enable(0) == TARN_OK; /* false: the driver cannot export */
    /* already registered when everything is made a second time */
    if (tarn_library_find(row.name, &world.library))
        OK(tarn_library_register(&row, &world.library));
    world.stream = lease(0);
    OK(tarn_stream_adopt(0, native_made(0), &world.adopted));
    OK(tarn_event_create(0, &world.event));
    OK(tarn_event_record(world.event, world.stream));
    world.block = alloc_on(world.stream, 1000);

    OK(tarn_pool_create(NULL, &world.pool));
    OK(tarn_pool_alloc(world.pool, world.stream, 3 * MIB, &world.pool_block));
    OK(tarn_pool_checkpoint(world.pool, &world.checkpoint));
    OK(tarn_pool_create(NULL, &world.suspended));
    OK(tarn_pool_alloc(world.suspended, world.stream, 5000, &world.suspended_block));
    tarn_status status = tarn_pool_suspend(world.suspended, true);
    /* the latter without virtual memory */
    CHECK(status == TARN_OK || status == TARN_ERROR_NOT_SUPPORTED);
    status = tarn_range_create(NULL, 8 * MIB, &world.range);
    /* the latter without virtual memory */
    CHECK(status == TARN_OK || status == TARN_ERROR_NOT_SUPPORTED);
    if (!status)
        OK(tarn_range_commit(world.range, 0, 2 * MIB, world.stream));
    OK(tarn_scope_begin(world.pool, TARN_SCOPE_STREAM, world.adopted, &world.scope));

    OK(tarn_pinned_alloc(world.stream, 5000, &world.pinned));
    OK(tarn_observer_add(&observer_options, &world.observer));
    OK(tarn_sleeper_add(&sleeper_options, &world.sleeper));
    world.exported = alloc_on(world.stream, 4 * MIB);
    if (exports) {
        OK(tarn_export(world.exported, &world.share));
        OK(tarn_import(world.share, 0, &world.imported));
        registrable_make();
    }
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, world.sockets) == 0);

    OK(tarn_handle_lease(world.library, world.stream, &world.lease));
    OK(tarn_workspace_policy_set(TARN_WORKSPACE_PER_CALL, NULL));
    OK(tarn_workspace_begin(world.library, TARN_STREAM_CURRENT, NULL, &world.workspace));
    OK(tarn_device_guard_set(&world.device_guard, 0));
    OK(tarn_stream_guard_set(&world.stream_guard, world.stream));

    OK(tarn_stream_lease(0, 0, &world.capturing));
    OK(tarn_capture_begin(world.capturing, TARN_CAPTURE_RELAXED));
    OK(tarn_capture_end(world.capturing, &world.graph));
    world.made = true;
}

void world_end(void)
{
    OK(tarn_guard_restore(&world.stream_guard));
    OK(tarn_guard_restore(&world.device_guard));
    OK(tarn_workspace_end(&world.workspace));
    OK(tarn_workspace_policy_set(TARN_WORKSPACE_CACHED, NULL));
    OK(tarn_handle_return(&world.lease));
    OK(tarn_handle_trim(world.library, 0, &out.size));
    OK(tarn_workspace_clear(NULL, NULL));
    OK(tarn_host_graph_destroy(world.graph));
    OK(tarn_import_close(world.imported));
    OK(tarn_share_close(world.share));
    OK(tarn_imported_pool_close(world.imported_pool));
    OK(tarn_share_close(world.pool_share));
    OK(tarn_free(world.registered));
    OK(tarn_pool_release(world.registrable));
    close(world.sockets[0]);
    close(world.sockets[1]);
    OK(tarn_observer_remove(world.observer));
    OK(tarn_sleeper_remove(world.sleeper));
    OK(tarn_free(world.pinned));
    OK(tarn_scope_end(world.scope));
    OK(tarn_pool_resume(world.suspended));
    OK(tarn_checkpoint_destroy(world.checkpoint));
    OK(tarn_free(world.suspended_block));
    OK(tarn_free(world.pool_block));
    OK(tarn_pool_release(world.suspended));
    OK(tarn_pool_release(world.pool));
    OK(tarn_range_destroy(world.range));
    OK(tarn_free(world.exported));
    OK(tarn_free(world.block));
    OK(tarn_event_synchronize(world.event));
    OK(tarn_event_destroy(world.event));
    OK(tarn_stream_retire(world.adopted));
}
