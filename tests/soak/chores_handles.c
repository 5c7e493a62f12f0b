/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Chores with handles of two libraries of the soak's own, one of which has workspaces: bound to
 * streams, leased, in captures, trimmed and cleared while others use theirs. */
#include "../support/clearing.h"
#include "chores.h"

#include <inttypes.h>
#include <stdlib.h>

#define WORKSPACE (256 * KIB)

/* The vendor's handle, and what it was told. */
struct vendor {
    void *stream, *workspace;
    size_t bytes;
};

static tarn_library plain, scratch; /* the second has workspaces */
static atomic_int_fast64_t handles;

static int handle_create(void **handle)
{
    *handle = calloc(1, sizeof(struct vendor));
    atomic_fetch_add(&handles, *handle != NULL);
    return *handle ? 0 : 1;
}

static int handle_destroy(void *handle)
{
    free(handle);
    atomic_fetch_sub(&handles, 1);
    return 0;
}

static int handle_set_stream(void *handle, void *stream)
{
    ((struct vendor *)handle)->stream = stream;
    return 0;
}

static int handle_set_workspace(void *handle, void *pointer, size_t size)
{
    ((struct vendor *)handle)->workspace = pointer;
    ((struct vendor *)handle)->bytes = size;
    return 0;
}

void handles_start(void)
{
    tarn_library_row row = {.size = sizeof row,
                            .name = "soak",
                            .create = handle_create,
                            .destroy = handle_destroy,
                            .set_stream = handle_set_stream};
    must(tarn_library_register(&row, &plain) == TARN_OK, "tarn_library_register");
    row.name = "soak_scratch";
    row.set_workspace = handle_set_workspace;
    must(tarn_library_register(&row, &scratch) == TARN_OK, "tarn_library_register");
    must(tarn_workspace_size_set(scratch, WORKSPACE) == TARN_OK, "tarn_workspace_size_set");
}

void do_handle(struct worker *worker)
{
    void *handle = NULL;
    tarn_lease lease = {0};
    int device = (int)below(worker, DEVICES);
    struct place place = some_place(worker, device), other = some_place(worker, device);
    OK_OR(tarn_handle_get(plain, TARN_STREAM_CURRENT, &handle), MAY(TARN_ERROR_CAPTURE));
    if (OK_OR(tarn_handle_get(plain, place.stream, &handle), MAY(TARN_ERROR_CAPTURE)) &&
        *(void **)handle != place.native)
        wrong("a handle is bound to another stream than asked");
    if (below(worker, 2) &&
        OK_OR(tarn_handle_lease(plain, place.stream, &lease), MAY(TARN_ERROR_CAPTURE))) {
        mix_run(&tarn, worker, 32);
        if (((struct vendor *)lease.handle)->stream != place.native)
            wrong("a leased handle was bound to another stream");
        if (OK_OR(tarn_handle_lease_bind(&lease, other.stream), MAY(TARN_ERROR_CAPTURE)) &&
            ((struct vendor *)lease.handle)->stream != other.native)
            wrong("a leased handle is bound to another stream than asked");
        OK(tarn_handle_return(&lease));
    }
    if (below(worker, 8) == 0)
        OK_OR(tarn_handle_trim(plain, (int)below(worker, DEVICES), NULL), MAY(TARN_ERROR_CAPTURE));
    if (below(worker, 8) == 0)
        OK_OR(tarn_handle_prewarm(plain, device, TARN_STREAM_NONE, below(worker, 4)),
              MAY(TARN_ERROR_CAPTURE));
}

/* As a call of the library would: the memory is the handle's, and stays so while others clear
 * workspaces. */
static void use(struct worker *worker, const struct vendor *vendor)
{
    volatile uint64_t *words = vendor->workspace;
    tarn_block_info info = {.size = sizeof info};
    if (!words)
        return; /* the policy says so */
    if (tarn_pointer_info_get(vendor->workspace, &info) || info.base != vendor->workspace ||
        info.usable_size < vendor->bytes) {
        wrong("a handle's workspace at %p is not a block: %s", vendor->workspace,
              tarn_last_error());
        return;
    }
    uint64_t mine = below(worker, UINT32_MAX);
    words[0] = words[vendor->bytes / sizeof *words - 1] = mine;
    mix_run(&tarn, worker, 32);
    if (words[0] != mine || words[vendor->bytes / sizeof *words - 1] != mine)
        wrong("a handle's workspace at %p is somebody else's too", vendor->workspace);
}

static void use_lease(struct worker *worker, struct place place, struct place other)
{
    tarn_lease lease = {0};
    if (!OK_OR(tarn_handle_lease(scratch, place.stream, &lease), MAY(TARN_ERROR_CAPTURE)))
        return;
    use(worker, lease.handle);
    if (OK_OR(tarn_handle_lease_bind(&lease, other.stream), MAY(TARN_ERROR_CAPTURE)))
        use(worker, lease.handle);
    OK(tarn_handle_return(&lease));
}

static void use_call(struct worker *worker)
{
    tarn_workspace_call call = {0};
    if (!OK_OR(tarn_workspace_begin(scratch, TARN_STREAM_CURRENT, NULL, &call),
               MAY(TARN_ERROR_CAPTURE)))
        return;
    use(worker, call.handle);
    for (int tries = 0; !OK(tarn_workspace_end(&call)) && tries < 100; tries++)
        calm();
}

void do_workspace(struct worker *worker)
{
    static const tarn_workspace_policy policies[] = {TARN_WORKSPACE_CACHED, TARN_WORKSPACE_CACHED,
                                                     TARN_WORKSPACE_PER_CALL,
                                                     TARN_WORKSPACE_LIBRARY};
    void *handle = NULL;
    int device = (int)below(worker, DEVICES);
    struct place place = some_place(worker, device), other = some_place(worker, device);
    switch (below(worker, 8)) {
    case 0:
        OK(tarn_workspace_policy_set(policies[below(worker, 4)], NULL));
        break;
    case 1:
        OK_OR(workspaces_clear_stream(place.stream, NULL), MAY(TARN_ERROR_CAPTURE));
        break;
    case 2:
        OK(workspaces_clear_all(NULL));
        break;
    case 3:
        OK_OR(tarn_handle_trim(scratch, device, NULL), MAY(TARN_ERROR_CAPTURE));
        break;
    case 4:
        use_lease(worker, place, other);
        break;
    case 5:
        use_call(worker);
        break;
    default:
        if (OK_OR(tarn_handle_get(scratch, place.stream, &handle), MAY(TARN_ERROR_CAPTURE)))
            use(worker, handle);
    }
}

void handle_in_capture(struct worker *worker, tarn_stream stream)
{
    void *handle = NULL;
    if (OK_OR(tarn_handle_get(scratch, stream, &handle), MAY(TARN_ERROR_CAPTURE)))
        use(worker, handle);
}

void handle_after_capture(tarn_stream stream)
{
    OK_OR(workspaces_clear_stream(stream, NULL), MAY(TARN_ERROR_CAPTURE));
}

void handles_tidy(struct worker *worker)
{
    for (int device = 0; device < DEVICES; device++)
        handle_after_capture(worker->lent[device]);
    OK(workspaces_clear_all(NULL));
}

void handles_rest(void)
{
    OK(tarn_workspace_policy_set(TARN_WORKSPACE_CACHED, NULL));
    OK(workspaces_clear_all(NULL));
    for (int device = 0; device < DEVICES; device++) {
        OK(tarn_handle_trim(plain, device, NULL));
        OK(tarn_handle_trim(scratch, device, NULL));
    }
}

void handles_check(void)
{
    uint64_t in_use = 0;
    for (int device = 0; device < DEVICES; device++) {
        tarn_workspace_stats workspaces = {.size = sizeof workspaces};
        OK(tarn_workspace_stats_get(device, &workspaces));
        if (workspaces.count || workspaces.leaked_bytes)
            wrong("all was cleared, and there are %" PRIu64 " workspaces of device %d; %" PRIu64
                  " bytes were leaked",
                  workspaces.count, device, workspaces.leaked_bytes);
        for (int i = 0; i < 2; i++) {
            tarn_handle_stats stats = {.size = sizeof stats};
            OK(tarn_handle_stats_get(i ? scratch : plain, device, &stats));
            in_use += stats.in_use;
            if (stats.available || stats.in_use > worker_count)
                wrong("all was trimmed, and device %d has %" PRIu64
                      " handles that nobody has, and %" PRIu64 " in use",
                      device, stats.available, stats.in_use);
        }
    }
    if ((uint64_t)atomic_load(&handles) != in_use)
        wrong("there are %" PRIdFAST64 " handles of the libraries, and threads have %" PRIu64,
              atomic_load(&handles), in_use);
}
