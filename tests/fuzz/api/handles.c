/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* handle.h, with a library of functions below. */
#include "api/api.h"

/* ---- The library ---- */

/* Handles stay with their threads when a sequence ends, so they are not memory that could leak. */
static struct fuzzed {
    void *stream, *workspace;
    bool used;
} fuzzed[256];

static int make(void **handle)
{
    for (size_t i = 0; i < sizeof fuzzed / sizeof *fuzzed; i++) {
        if (fuzzed[i].used)
            continue;
        fuzzed[i].used = true;
        *handle = &fuzzed[i];
        return 0;
    }
    return 1;
}

static int end(void *handle)
{
    DEMAND(((struct fuzzed *)handle)->used);
    *(struct fuzzed *)handle = (struct fuzzed){0};
    return 0;
}

static int set_stream(void *handle, void *stream)
{
    DEMAND(((struct fuzzed *)handle)->used);
    ((struct fuzzed *)handle)->stream = stream;
    return 0;
}

static int set_workspace(void *handle, void *pointer, size_t size)
{
    DEMAND(((struct fuzzed *)handle)->used);
    ((struct fuzzed *)handle)->workspace = pointer;
    return size > DEVICE_MEMORY;
}

const tarn_library_row api_library = {
    .size = sizeof api_library,
    .name = "fuzzed",
    .create = make,
    .destroy = end,
    .set_stream = set_stream,
    .set_workspace = set_workspace,
};

/* What is wrong with it is refused, and its name is taken: so it cannot be registered twice, and
 * numbers do not run out. */
static void fuzz_tarn_library_register(void)
{
    tarn_library library;
    tarn_library_row row = api_library;
    row.size = struct_size(row.size);
    row.name = take_bool() ? row.name : "cublas";
    row.flags = (unsigned)take_number();
    row.platform = (tarn_platform)take();
    row.create = take_bool() ? NULL : make;
    row.destroy = take_bool() ? NULL : end;
    DEMAND(tarn_library_register(or_null(&row), or_null(&library)));
}

static void fuzz_tarn_library_find(void)
{
    tarn_library library = 0;
    (void)tarn_library_find(any_text(), or_null(&library));
}

static void fuzz_tarn_library_info_get(void)
{
    tarn_library_info info = {.size = struct_size(sizeof info)};
    (void)tarn_library_info_get(any_library(), or_null(&info));
}

/* ---- Handles ---- */

static void fuzz_tarn_handle_get(void)
{
    void *handle;
    (void)tarn_handle_get(any_library(), any_stream(), or_null(&handle));
}

static void fuzz_tarn_handle_lease(void)
{
    tarn_lease *lease = &world.leases[take() % SLOTS];
    if (!lease->number)
        (void)tarn_handle_lease(any_library(), any_stream(), or_null(lease));
}

/* One that is on lease, a copy of one with something wrong, or one that was returned. */
static tarn_lease *any_lease(void)
{
    static tarn_lease copy;
    uint8_t choice = take();
    if (choice < 160)
        return &world.leases[choice % SLOTS];
    tarn_lease before = copy;
    copy = world.leases[choice % SLOTS];
    if (choice < 184)
        copy = before; /* returned since, perhaps */
    else if (choice < 200)
        copy.owner = any_object(world.pools);
    else if (choice < 216)
        copy.number = take_number();
    else if (choice < 232)
        copy.handle = wrong_pointer();
    return or_null(&copy);
}

static void lease_gone(const tarn_lease *lease, tarn_lease before)
{
    for (size_t i = 0; lease && i < SLOTS; i++)
        if (world.leases[i].owner == before.owner && world.leases[i].number == before.number)
            world.leases[i] = *lease;
}

static void fuzz_tarn_handle_lease_bind(void)
{
    tarn_lease *lease = any_lease(), before = lease ? *lease : (tarn_lease){0};
    if (!tarn_handle_lease_bind(lease, any_stream()))
        lease_gone(lease, before);
}

static void fuzz_tarn_handle_return(void)
{
    tarn_lease *lease = any_lease(), before = lease ? *lease : (tarn_lease){0};
    if (!tarn_handle_return(lease))
        lease_gone(lease, before);
}

static void fuzz_tarn_handle_prewarm(void)
{
    size_t count = take() < 224 ? take() % 4 : 65537 + (size_t)take_number() / 2;
    (void)tarn_handle_prewarm(any_library(), any_device(),
                              take_bool() ? TARN_STREAM_NONE : any_stream(), count);
}

static void fuzz_tarn_handle_trim(void)
{
    size_t destroyed;
    (void)tarn_handle_trim(any_library(), any_device(), or_null(&destroyed));
}

static void fuzz_tarn_handle_wait_limit_set(void)
{
    uint64_t previous;
    (void)tarn_handle_wait_limit_set(take(), or_null(&previous));
}

static void fuzz_tarn_handle_mode_set(void)
{
    int previous;
    (void)tarn_handle_mode_set(any_library(), (tarn_handle_mode)(take() % 4),
                               (tarn_handle_mode_for)(take() % 3), (int)take_number(),
                               or_null(&previous));
}

static void fuzz_tarn_handle_stats_get(void)
{
    tarn_handle_stats stats = {.size = struct_size(sizeof stats)};
    (void)tarn_handle_stats_get(any_library(), any_device(), or_null(&stats));
}

/* ---- Workspaces ---- */

static void fuzz_tarn_workspace_policy_set(void)
{
    tarn_workspace_policy previous;
    (void)tarn_workspace_policy_set((tarn_workspace_policy)(take() % 5), or_null(&previous));
}

static void fuzz_tarn_workspace_size_set(void)
{
    (void)tarn_workspace_size_set(any_library(), (int64_t)any_size());
}

static void fuzz_tarn_workspace_get(void)
{
    void *pointer;
    size_t bytes;
    (void)tarn_workspace_get(any_library(), any_stream(), NULL, or_null(&pointer), or_null(&bytes));
}

static void fuzz_workspace_of_lease(void)
{
    void *pointer;
    size_t bytes;
    (void)tarn_workspace_get(world.library, TARN_STREAM_NONE, any_lease(), or_null(&pointer),
                             or_null(&bytes));
}

static void fuzz_tarn_workspace_begin(void)
{
    tarn_workspace_call *call = &mine()->calls[take() % 4];
    if (!call->owner)
        (void)tarn_workspace_begin(any_library(), any_stream(), NULL, or_null(call));
}

static void fuzz_workspace_begin_of_lease(void)
{
    tarn_workspace_call *call = &mine()->calls[take() % 4];
    if (!call->owner)
        (void)tarn_workspace_begin(world.library, TARN_STREAM_NONE, any_lease(), or_null(call));
}

/* By the thread that began it: that another does is for it not to do. */
static void fuzz_tarn_workspace_end(void)
{
    uint8_t choice = take();
    tarn_workspace_call *call = &mine()->calls[choice % 4],
                        wrong = {.owner = any_object(world.pools)}, stale = *call;
    if (choice < 200)
        (void)tarn_workspace_end(or_null(call));
    else
        DEMAND(tarn_workspace_end(&wrong) == TARN_ERROR_INVALID_ARGUMENT || !wrong.owner);
    if (stale.owner && !call->owner)
        DEMAND(tarn_workspace_end(&stale) == TARN_ERROR_INVALID_ARGUMENT);
}

static void fuzz_tarn_workspace_clear(void)
{
    uint8_t which = take();
    tarn_workspace_choice choice = {.size = struct_size(sizeof choice),
                                    .which = (tarn_workspaces)(which % 6)};
    if (which % 6 == TARN_WORKSPACES_OF_STREAM)
        choice.stream = any_stream();
    else if (which % 6 == TARN_WORKSPACES_OF_CAPTURE)
        choice.capture = any_value(world.captures);
    else
        choice.pool = any_object(world.pools);
    tarn_workspace_cleared cleared = {.size = struct_size(sizeof cleared)};
    (void)tarn_workspace_clear(or_null(&choice), or_null(&cleared));
}

static void fuzz_tarn_workspace_stats_get(void)
{
    tarn_workspace_stats stats = {.size = struct_size(sizeof stats)};
    (void)tarn_workspace_stats_get(any_device(), or_null(&stats));
}

const struct api_call api_handles[] = {
    CALL(tarn_library_register),
    CALL(tarn_library_find),
    CALL(tarn_library_info_get),
    CALL(tarn_handle_get),
    CALL(tarn_handle_lease),
    CALL(tarn_handle_lease_bind),
    CALL(tarn_handle_return),
    CALL(tarn_handle_prewarm),
    CALL(tarn_handle_trim),
    CALL(tarn_handle_wait_limit_set),
    CALL(tarn_handle_mode_set),
    CALL(tarn_handle_stats_get),
    CALL(tarn_workspace_policy_set),
    CALL(tarn_workspace_size_set),
    CALL(tarn_workspace_get),
    CALL(tarn_workspace_begin),
    CALL(tarn_workspace_end),
    CALL(tarn_workspace_clear),
    CALL(tarn_workspace_stats_get),
    ALSO(tarn_workspace_get, workspace_of_lease),
    ALSO(tarn_workspace_begin, workspace_begin_of_lease),
    {0},
};
