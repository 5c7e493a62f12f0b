/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* UCX on memory from tarn: two processes, a GPU each where there are two. One sends blocks of a
 * pool, the other receives into blocks of its own and checks every word. In between both give their
 * memory back and get other memory at the same addresses: what UCX remembers of an address must not
 * outlive the memory. scripts/ucx-check builds it and runs it. */
#define _GNU_SOURCE
#include "../exchanged.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

enum { STEPS = 4, SECONDS = 120, SENDER = 0, RECEIVER = 1 };

static int rank, other; /* the socket to the other process */
static ucp_worker_h worker;
static ucp_ep_h endpoint;
static tarn_stream stream;

static void stop(const char *what, const char *why)
{
    gpu_say(GPU_FAIL, "ucx", "rank %d: %s: %s", rank, what, why);
    _exit(GPU_FAILED);
}

static void need(ucs_status_t status, const char *what)
{
    if (status != UCS_OK)
        stop(what, ucs_status_string(status));
}

/* ---- Between the two ---- */

static void tell(const void *bytes, size_t count)
{
    if (write(other, bytes, count) != (ssize_t)count)
        stop("the socket", "the other process is gone");
}

static void hear(void *bytes, size_t count)
{
    for (size_t done = 0; done < count;) {
        ssize_t more = read(other, (char *)bytes + done, count - done);
        if (more <= 0)
            stop("the socket", "the other process is gone");
        done += (size_t)more;
    }
}

/* Both have come so far. Whether both say so. */
static bool agree(bool well)
{
    bool theirs = false;
    tell(&well, sizeof well);
    hear(&theirs, sizeof theirs);
    return well && theirs;
}

static void connect_ranks(void)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_params_t worker_params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                         .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucp_ep_params_t endpoint_params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucp_context_h context;
    ucp_address_t *mine, *theirs;
    size_t length, their_length;
    need(ucp_init(&params, NULL, &context), "ucp_init");
    need(ucp_worker_create(context, &worker_params, &worker), "ucp_worker_create");
    need(ucp_worker_get_address(worker, &mine, &length), "ucp_worker_get_address");
    tell(&length, sizeof length);
    tell(mine, length);
    hear(&their_length, sizeof their_length);
    theirs = malloc(their_length);
    if (!theirs)
        stop("the address", "no memory");
    hear(theirs, their_length);
    endpoint_params.address = theirs;
    need(ucp_ep_create(worker, &endpoint_params, &endpoint), "ucp_ep_create");
    ucp_worker_release_address(worker, mine);
    free(theirs);
}

static void transfer(void *block, size_t bytes)
{
    const ucp_request_param_t param = {0};
    ucs_status_ptr_t request = rank == SENDER
                                   ? ucp_tag_send_nbx(endpoint, block, bytes, 7, &param)
                                   : ucp_tag_recv_nbx(worker, block, bytes, 7, UINT64_MAX, &param);
    const char *what = rank == SENDER ? "ucp_tag_send_nbx" : "ucp_tag_recv_nbx";
    if (UCS_PTR_IS_ERR(request))
        need(UCS_PTR_STATUS(request), what);
    if (!request)
        return;
    ucs_status_t status;
    while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS)
        ucp_worker_progress(worker);
    ucp_request_free(request);
    need(status, what);
}

/* ---- Blocks ---- */

/* Sends a pattern of this step, and looks at every word of what came. */
static bool step(void *block, size_t bytes, uint32_t seed)
{
    bool well = gpu_write("ucx", stream, block, bytes, rank == SENDER ? seed : ~seed);
    if (agree(well))
        transfer(block, bytes);
    well = agree(well) && gpu_holds("ucx", stream, &block, 1, bytes, seed);
    return agree(well);
}

static double gb_per_second(void *block, size_t bytes)
{
    const int timed = exchanges_timed();
    transfer(block, bytes);
    (void)agree(true);
    uint64_t start = gpu_ns();
    for (int i = 0; i < timed; i++)
        transfer(block, bytes);
    (void)agree(true);
    return (double)bytes * timed / (double)(gpu_ns() - start);
}

/* Other memory for a block: at its address where the pool can be suspended, which discards the
 * contents. */
static bool exchange(const char *name, tarn_pool *pool, size_t bytes, void **block)
{
    tarn_status status = tarn_pool_suspend(pool, false);
    if (!status)
        return OK(name, tarn_pool_resume(pool));
    bool well = OK(name, tarn_free(*block)) && OK(name, tarn_pool_trim(pool, 0));
    *block = exchanged_block("ucx", pool, stream, bytes);
    return well && *block;
}

static void one_kind(size_t at)
{
    char name[64], text[160];
    tarn_pool *pool = NULL;
    snprintf(name, sizeof name, "ucx: %s", kinds[at].name);
    tarn_status status = tarn_pool_create(&kinds[at].options, &pool);
    if (!agree(status == TARN_OK)) {
        if (rank == RECEIVER)
            gpu_say(GPU_SKIP, name, "%s",
                    status ? tarn_last_error() : "the other process has none");
        return;
    }
    for (size_t i = 0; i < COUNT(sizes); i++) {
        size_t bytes = sizes[i];
        void *block = exchanged_block("ucx", pool, stream, bytes), *before = block;
        int same = 0;
        bool well = agree(block != NULL);
        for (int k = 0; well && k < STEPS; k++) {
            well = step(block, bytes, (uint32_t)(100 * i + 10 * at + (size_t)k + 1));
            if (!well || k == STEPS - 1)
                continue;
            well = exchange(name, pool, bytes, &block);
            same += block == before;
            before = block;
            well = agree(well && block);
        }
        double rate = well ? gb_per_second(block, bytes) : 0;
        well = OK(name, tarn_free(block)) && well;
        snprintf(text, sizeof text,
                 "%zu KiB: %d steps right, each in other memory, %d of %d times at the address of "
                 "the last; %.1f GB/s",
                 bytes >> 10, STEPS, same, STEPS - 1, rate);
        if (rank == RECEIVER)
            gpu_say(well ? GPU_PASS : GPU_FAIL, name, "%s",
                    well ? text : "the contents are not those that were sent");
    }
    (void)OK(name, tarn_pool_release(pool));
}

static int run(void)
{
    int devices = 0;
    alarm(SECONDS);
    int status = gpu_start();
    if (status)
        return status;
    if (!OK("ucx", tarn_device_count_get(&devices)) || !gpu_device_use(rank % devices) ||
        !OK("ucx", tarn_stream_lease(rank % devices, 0, &stream)))
        return GPU_FAILED;
    connect_ranks();
    if (rank == RECEIVER)
        gpu_say(GPU_NOTE, "ucx", "%s, %d device%s", ucp_get_version_string(), devices,
                devices == 1 ? "" : "s");
    for (size_t i = 0; i < COUNT(kinds); i++)
        one_kind(i);
    (void)agree(true);
    return rank == RECEIVER ? gpu_end() : 0;
}

int main(void)
{
    int pair[2], status = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
        return 1;
    pid_t child = fork();
    rank = child ? RECEIVER : SENDER;
    other = pair[rank];
    close(pair[!rank]);
    int mine = run();
    if (!child)
        _exit(mine);
    close(other);
    if (mine)
        kill(child, SIGTERM);
    if (waitpid(child, &status, 0) != child || (!mine && status)) {
        fprintf(stderr, "ucx: the sender ended with status %d\n", status);
        return GPU_FAILED;
    }
    return mine;
}
