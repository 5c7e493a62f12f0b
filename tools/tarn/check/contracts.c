/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Checks what tarn promises on this machine, without a kernel. Contents are written and read by the
 * driver's own copies, which tarn's interface does not have. What only virtual memory has is tried
 * in pools of such, because the settings may choose other memory for the default pools. */
#include "check.h"
#include "driver/driver.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BLOCK = 256 << 10, LARGE = 8 << 20 };

static unsigned char sent[BLOCK], got[BLOCK];

/* True if a call succeeded. The first failure becomes the result. */
static bool well(struct outcome_text *result, tarn_status status)
{
    if (status && result->outcome == OUTCOME_OK) {
        result->outcome = OUTCOME_FAILED;
        snprintf(result->text, sizeof result->text, "%s: %s", tarn_status_name(status),
                 tarn_last_error());
    }
    return !status;
}

static bool so(struct outcome_text *result, bool right, const char *wrong)
{
    if (!right && result->outcome == OUTCOME_OK) {
        result->outcome = OUTCOME_FAILED;
        snprintf(result->text, sizeof result->text, "%s", wrong);
    }
    return right;
}

static void absent(struct outcome_text *result, const char *why)
{
    result->outcome = OUTCOME_ABSENT;
    snprintf(result->text, sizeof result->text, "%s", why);
}

static void *native(tarn_stream stream)
{
    void *vendors = NULL;
    return tarn_stream_native_get(stream, &vendors) ? NULL : vendors;
}

static bool pool_create(struct outcome_text *result, int device, tarn_segments segments,
                        tarn_pool **pool)
{
    tarn_pool_options options = {.size = sizeof options, .device = device, .segments = segments};
    return well(result, tarn_pool_create(&options, pool));
}

static bool copy(struct outcome_text *result, int device, tarn_stream stream, void *to,
                 const void *from)
{
    return well(result, driver->copy(device, (uintptr_t)to, (uintptr_t)from, BLOCK,
                                     (driver_stream)native(stream)));
}

static bool put(struct outcome_text *result, int device, tarn_stream stream, void *to, int value)
{
    memset(sent, value, sizeof sent);
    return copy(result, device, stream, to, sent) && well(result, tarn_stream_synchronize(stream));
}

static bool holds(struct outcome_text *result, int device, tarn_stream stream, const void *from,
                  int value)
{
    memset(sent, value, sizeof sent);
    memset(got, ~value, sizeof got);
    return copy(result, device, stream, got, from) &&
           well(result, tarn_stream_synchronize(stream)) &&
           so(result, memcmp(got, sent, sizeof got) == 0, "memory does not hold what was written");
}

static bool has_virtual(const tarn_device_properties *at)
{
    return at->virtual_memory;
}

static bool has_export(const tarn_device_properties *at)
{
    return at->exportable;
}

/* Memory --------------------------------------------------------------------------------------- */

static void order(int device, void *argument, struct outcome_text *result)
{
    tarn_stream stream = 0;
    void *block = NULL;
    (void)argument;
    if (!well(result, tarn_stream_lease(device, 0, &stream)))
        return;
    for (int i = 1; i <= 16 && result->outcome == OUTCOME_OK; i++) {
        if (well(result, tarn_alloc_on(stream, (size_t)i * BLOCK, &block)) &&
            put(result, device, stream, block, i))
            (void)holds(result, device, stream, block, i);
        (void)well(result, tarn_free(block));
        block = NULL;
    }
    (void)well(result, tarn_stream_return(stream));
    (void)well(result, tarn_device_trim(device, 0));
}

/* What one stream freed serves that stream again at once, and another stream only in order. */
static void reuse(int device, void *argument, struct outcome_text *result)
{
    tarn_stream one = 0, two = 0;
    tarn_event *event = NULL;
    tarn_pool *pool = NULL;
    void *first = NULL, *again = NULL, *other = NULL;
    (void)argument;
    if (!pool_create(result, device, TARN_SEGMENTS_DEFAULT, &pool) ||
        !well(result, tarn_stream_lease(device, 0, &one)) ||
        !well(result, tarn_stream_lease(device, 0, &two)) ||
        !well(result, tarn_event_create(device, &event)))
        return;
    bool done = well(result, tarn_pool_alloc(pool, one, LARGE, &first)) &&
                put(result, device, one, first, 1) && well(result, tarn_free(first)) &&
                well(result, tarn_pool_alloc(pool, one, LARGE, &again)) &&
                so(result, first == again, "a stream did not get back what it freed last") &&
                well(result, tarn_record_stream(again, two)) &&
                copy(result, device, two, got, again) && well(result, tarn_free(again));
    done = done && well(result, tarn_event_record(event, one)) &&
           well(result, tarn_stream_wait(two, event)) &&
           well(result, tarn_pool_alloc(pool, two, LARGE, &other)) &&
           put(result, device, two, other, 2) && holds(result, device, two, other, 2) &&
           well(result, tarn_free(other));
    if (done && well(result, tarn_event_destroy(event)) && well(result, tarn_pool_release(pool)) &&
        well(result, tarn_stream_return(one)))
        (void)well(result, tarn_stream_return(two));
}

static void capture(int device, void *argument, struct outcome_text *result)
{
    tarn_pool_options options = {.size = sizeof options, .device = device};
    tarn_pool *pool = NULL;
    tarn_stream stream = 0;
    void *from = NULL, *to = NULL, *graph = NULL;
    (void)argument;
    if (!well(result, tarn_stream_lease(device, 0, &stream)) ||
        !well(result, tarn_pool_create(&options, &pool)) ||
        !well(result, tarn_alloc_on(stream, BLOCK, &from)) ||
        !well(result, tarn_pool_capture_begin(pool, stream, TARN_CAPTURE_RELAXED)))
        return;
    if (well(result, tarn_pool_alloc(pool, stream, BLOCK, &to)))
        (void)copy(result, device, stream, to, from);
    if (!well(result, tarn_capture_end(stream, &graph)))
        return;
    for (int value = 7; value < 10 && result->outcome == OUTCOME_OK; value++)
        if (put(result, device, stream, from, value) &&
            well(result, driver->graph_launch(device, graph, (driver_stream)native(stream))))
            (void)holds(result, device, stream, to, value);
    (void)well(result, driver->graph_destroy(device, graph));
    (void)well(result, tarn_free(to));
    (void)well(result, tarn_free(from));
    (void)well(result, tarn_pool_release(pool));
}

static void sleeping(int device, void *argument, struct outcome_text *result)
{
    tarn_pool *pool = NULL;
    tarn_stats stats = {.size = sizeof stats};
    tarn_stream stream = 0;
    void *block = NULL;
    (void)argument;
    if (well(result, tarn_stream_lease(device, 0, &stream)) &&
        pool_create(result, device, TARN_SEGMENTS_VIRTUAL, &pool) &&
        well(result, tarn_pool_alloc(pool, stream, LARGE, &block)) &&
        put(result, device, stream, block, 3) && well(result, tarn_pool_suspend(pool, true)) &&
        well(result, tarn_pool_stats_get(pool, &stats)) &&
        so(result, stats.reserved_bytes[0].current == 0, "a suspended pool has memory") &&
        well(result, tarn_pool_resume(pool)) && holds(result, device, stream, block, 3) &&
        well(result, tarn_free(block)))
        (void)well(result, tarn_pool_release(pool));
}

static void granules(int device, void *argument, struct outcome_text *result)
{
    tarn_device_properties at = {.size = sizeof at};
    tarn_stats stats = {.size = sizeof stats};
    tarn_pool *pool = NULL;
    tarn_stream stream = 0;
    void *block = NULL;
    (void)argument;
    if (!well(result, tarn_device_properties_get(device, &at)) ||
        !so(result, at.granule >= 4096 && (at.granule & (at.granule - 1)) == 0,
            "the granule is not a power of two"))
        return;
    if (well(result, tarn_stream_lease(device, 0, &stream)) &&
        pool_create(result, device, TARN_SEGMENTS_VIRTUAL, &pool) &&
        well(result, tarn_pool_alloc(pool, stream, at.granule + 1, &block)) &&
        well(result, tarn_pool_stats_get(pool, &stats)) &&
        so(result, stats.reserved_bytes[0].current % (int64_t)at.granule == 0,
           "what is reserved is not a multiple of the granule") &&
        put(result, device, stream, block, 4) && holds(result, device, stream, block, 4) &&
        well(result, tarn_free(block)))
        (void)well(result, tarn_pool_release(pool));
}

static void pinned(int device, void *argument, struct outcome_text *result)
{
    tarn_stream stream = 0;
    void *block = NULL, *to = NULL, *from = NULL;
    (void)argument;
    if (!well(result, tarn_device_set(device)) ||
        !well(result, tarn_stream_lease(device, 0, &stream)) ||
        !well(result, tarn_alloc_on(stream, BLOCK, &block)) ||
        !well(result, tarn_pinned_alloc(stream, BLOCK, &to)) ||
        !well(result, tarn_pinned_alloc(stream, BLOCK, &from)))
        return;
    memset(from, 5, BLOCK);
    memset(to, 0, BLOCK);
    if (copy(result, device, stream, block, from) && copy(result, device, stream, to, block) &&
        well(result, tarn_stream_synchronize(stream)) &&
        so(result, memcmp(to, from, BLOCK) == 0, "pinned memory does not hold what was copied") &&
        well(result, tarn_free(to)) && well(result, tarn_free(from)) &&
        well(result, tarn_free(block)))
        (void)well(result, tarn_pinned_trim(0));
}

static void peer(int device, void *argument, struct outcome_text *result)
{
    int count = 0;
    tarn_stream own = 0, theirs = 0;
    void *block = NULL;
    (void)argument;
    if (!well(result, tarn_device_count_get(&count)))
        return;
    int other = (device + 1) % count;
    if (count < 2) {
        absent(result, "there is one device");
        return;
    }
    tarn_status reached = tarn_device_peer_enable(device, other);
    if (reached == TARN_ERROR_NOT_SUPPORTED) {
        absent(result, "the driver says that the devices do not reach each other");
        return;
    }
    if (well(result, reached) && well(result, tarn_stream_lease(device, 0, &own)) &&
        well(result, tarn_stream_lease(other, 0, &theirs)) &&
        well(result, tarn_alloc_on(theirs, BLOCK, &block)) &&
        well(result, tarn_stream_synchronize(theirs)) && put(result, device, own, block, 6) &&
        holds(result, other, theirs, block, 6))
        (void)well(result, tarn_free(block));
}

/* Another process ------------------------------------------------------------------------------ */

/* The importer starts before this process uses tarn, because a child of a process that has used it
 * cannot use it. It sends its result for each device. */
static void import(int socket)
{
    struct outcome_text result = {.outcome = OUTCOME_OK};
    tarn_share *share = NULL;
    tarn_stream stream = 0;
    void *block = NULL;
    int device = 0;
    while (recv(socket, &device, sizeof device, 0) == (ssize_t)sizeof device) {
        result.outcome = OUTCOME_OK;
        if (well(&result, tarn_share_receive(socket, &share)) &&
            well(&result, tarn_stream_lease(device, 0, &stream)) &&
            well(&result, tarn_import(share, device, &block)) &&
            well(&result, tarn_share_close(share)) && holds(&result, device, stream, block, 1) &&
            put(&result, device, stream, block, 2))
            (void)well(&result, tarn_import_close(block));
        if (send(socket, &result, sizeof result, MSG_NOSIGNAL) < 0)
            break;
    }
    _exit(0);
}

static int importer = -1;

static void *share_start(void)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
        return NULL;
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        import(ends[1]);
    }
    close(ends[1]);
    importer = child < 0 ? -1 : ends[0];
    return child < 0 ? NULL : &importer;
}

static void share(int device, void *argument, struct outcome_text *result)
{
    struct outcome_text theirs = {.outcome = OUTCOME_FAILED};
    const int *socket = argument;
    tarn_share *share = NULL;
    tarn_pool *pool = NULL;
    tarn_stream stream = 0;
    void *block = NULL;
    if (!so(result, socket != NULL, "no process could be started") ||
        !well(result, tarn_export_enable(device)) ||
        !well(result, tarn_stream_lease(device, 0, &stream)) ||
        !pool_create(result, device, TARN_SEGMENTS_VIRTUAL, &pool) ||
        !well(result, tarn_pool_alloc(pool, stream, LARGE, &block)) ||
        !put(result, device, stream, block, 1) || !well(result, tarn_export(block, &share)) ||
        !so(result, send(*socket, &device, sizeof device, MSG_NOSIGNAL) > 0,
            "the other process is gone") ||
        !well(result, tarn_share_send(*socket, share)))
        return;
    bool answered = recv(*socket, &theirs, sizeof theirs, 0) == (ssize_t)sizeof theirs;
    if (so(result, answered, "the other process has ended without an answer") &&
        so(result, theirs.outcome == OUTCOME_OK, theirs.text) &&
        holds(result, device, stream, block, 2) && well(result, tarn_share_close(share)) &&
        well(result, tarn_free(block)))
        (void)well(result, tarn_pool_release(pool));
}

/* The table ------------------------------------------------------------------------------------ */

const struct contract contracts[] = {
    {.name = "order",
     .promise = "allocate and free in stream order",
     .limit = 15,
     .check = order,
     .remedy = "see that no other program has taken the device, and that the driver is 11.4 or "
               "newer (HIP: 5.0)"},
    {.name = "reuse",
     .promise = "one stream's memory serves another in order",
     .limit = 10,
     .check = reuse,
     .remedy = "send this text: events of the driver do not do what tarn needs"},
    {.name = "capture",
     .promise = "capture into a pool and replay",
     .limit = 10,
     .check = capture,
     .remedy = "do without graphs, or update the driver"},
    {.name = "share",
     .promise = "export by file and import in another process",
     .limit = 15,
     .needs = has_export,
     .absent = "the device cannot export memory",
     .check = share,
     .start = share_start,
     .remedy = "copy between processes through the host; in a container, raise the limit on files"},
    {.name = "peer",
     .promise = "one device reaches another's memory",
     .limit = 15,
     .check = peer,
     .remedy = "copy through the host; look at `nvidia-smi topo -p2p r` and at the IOMMU"},
    {.name = "suspend",
     .promise = "memory goes and comes back at the same addresses",
     .limit = 10,
     .needs = has_virtual,
     .absent = "the driver has no virtual memory for tarn",
     .check = sleeping,
     .remedy = "do without tarn_pool_suspend() and tarn_sleep()"},
    {.name = "pinned",
     .promise = "copies through pinned memory",
     .limit = 10,
     .check = pinned,
     .remedy = "raise the limit on locked memory (ulimit -l), or the container's on memory"},
    {.name = "virtual",
     .promise = "pieces of the driver's granularity",
     .limit = 10,
     .needs = has_virtual,
     .absent = "the driver has no virtual memory for tarn",
     .check = granules,
     .remedy = "set TARN_ALLOC_CONF=segments:plain"},
    {.name = NULL}};

static json_t *answer(const struct outcome_text *result)
{
    static const char *const states[] = {"ok", "failed", "not here"};
    return json_pack("{s:s, s:o}", "state", states[result->outcome], "text",
                     check_json_text(result->text));
}

json_t *contract_run(const void *argument)
{
    const struct contract *contract = argument;
    struct outcome_text result = {.outcome = OUTCOME_OK};
    void *started = contract->start ? contract->start() : NULL;
    int count = 0;
    bool done = well(&result, tarn_device_count_get(&count));
    for (int i = 0; i < count && done; i++) {
        tarn_device_properties at = {.size = sizeof at};
        struct outcome_text here = {.outcome = OUTCOME_OK};
        if (!well(&here, tarn_device_properties_get(i, &at)))
            done = false;
        else if (contract->needs && !contract->needs(&at))
            absent(&here, contract->absent);
        else
            contract->check(i, started, &here);
        if (here.outcome == OUTCOME_FAILED)
            done = false;
        if (here.outcome == OUTCOME_FAILED || i == 0)
            result = here;
        else if (here.outcome == OUTCOME_OK && result.outcome == OUTCOME_ABSENT)
            result = here; /* at least one device is able to do it */
    }
    return answer(&result);
}

/* Creates, binds and destroys a handle, once, on the first device. */
json_t *contract_library(const void *name)
{
    struct outcome_text result = {.outcome = OUTCOME_OK};
    tarn_library library = 0;
    tarn_stream stream = 0;
    tarn_lease lease = {.handle = NULL};
    size_t destroyed = 0;
    if (well(&result, tarn_library_find(name, &library)) &&
        well(&result, tarn_stream_lease(0, 0, &stream)) &&
        well(&result, tarn_handle_lease(library, stream, &lease)) &&
        well(&result, tarn_stream_synchronize(stream)) &&
        well(&result, tarn_handle_return(&lease)) &&
        well(&result, tarn_handle_trim(library, 0, &destroyed)))
        (void)so(&result, destroyed > 0, "the handle was not destroyed");
    return answer(&result);
}
