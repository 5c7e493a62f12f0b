/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* One child process per file. The child reads the snapshot, replays it, and writes messages into a
 * pipe, as plain structures. The parent collects them and draws the progress from a page that both
 * processes share. If a child did not end well, the parent makes an error of it. The child is a
 * copy of this program, so the structures need no format. */
#include "replay/replay_file.h"
#include "base/file.h"

#include "input/snapshot.h"
#include "name.h"
#include "plain_output.h"
#include "replay/least.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <tarn/device.h>
#include <tarn/host.h>
#include <tarn/memory.h>
#include <time.h>
#include <unistd.h>

#define PROGRESS_INTERVAL 100 /* ms */
#define PROGRESS_AFTER 5      /* intervals: a file that ends sooner shows no bar */

enum message_kind {
    MESSAGE_ERROR,
    MESSAGE_FILE,
    MESSAGE_RESULT,
    MESSAGE_REPETITION,
    MESSAGE_STATE
};

struct message {
    enum message_kind kind;
    size_t size; /* bytes that follow the message */
};

struct message_file {
    bool modelled;
    uint64_t state_events;
};

/* The page that both processes share. */
struct shared {
    _Atomic uint64_t done, total; /* operations */
};

/* ---- the child ---- */

struct child {
    const struct replay_options *options;
    struct shared *shared;
    int out;
};

static void send(int out, enum message_kind kind, const void *data, size_t size)
{
    const struct message message = {.kind = kind, .size = size};
    if (!file_write(out, &message, sizeof message) || !file_write(out, data, size))
        _exit(1); /* the parent has ended */
}

static void send_repetition(void *context, const struct replay_repetition *repetition)
{
    const struct child *child = context;
    send(child->out, MESSAGE_REPETITION, repetition, sizeof *repetition);
}

static void send_error(const struct child *child, const char *text)
{
    send(child->out, MESSAGE_ERROR, text, strlen(text));
}

/* Adds a segment to a summary. */
static void state_add(struct replay_state *state, const struct snapshot *snapshot,
                      const struct snapshot_segment *segment)
{
    state->segments++;
    state->expandable_segments += segment->expandable;
    state->requested += segment->requested_size;
    state->allocated += segment->allocated_size;
    state->active += segment->active_size;
    state->reserved += segment->total_size;
    for (size_t i = segment->first_block; i < segment->first_block + segment->block_count; i++) {
        const struct snapshot_block *block = &snapshot->blocks[i];
        if (block->state != SNAPSHOT_INACTIVE) {
            state->blocks++;
            continue;
        }
        state->free_blocks++;
        if (block->size > state->largest_free)
            state->largest_free = block->size;
    }
}

static int compare_segments(const void *left, const void *right)
{
    const struct snapshot_segment *a = left, *b = right;
    if (a->device != b->device)
        return a->device < b->device ? -1 : 1;
    if (a->stream != b->stream)
        return a->stream < b->stream ? -1 : 1;
    int first = (a->pool[0] > b->pool[0]) - (a->pool[0] < b->pool[0]);
    return first ? first : (a->pool[1] > b->pool[1]) - (a->pool[1] < b->pool[1]);
}

/* Sends the state of every device that has segments: the whole, then one part per stream and pool.
 * Sorts the segments. */
static void send_states(const struct child *child, struct snapshot *snapshot)
{
    struct snapshot_segment *segments = snapshot->segments;
    size_t count = snapshot->segment_count;
    if (count)
        qsort(segments, count, sizeof *segments, compare_segments);
    for (size_t i = 0; i < count;) {
        struct replay_state whole = {.device = segments[i].device, .whole = true};
        size_t end = i;
        for (; end < count && segments[end].device == segments[i].device; end++)
            state_add(&whole, snapshot, &segments[end]);
        send(child->out, MESSAGE_STATE, &whole, sizeof whole);
        while (i < end) {
            size_t first = i;
            struct replay_state part = {.device = whole.device, .stream = segments[i].stream};
            memcpy(part.pool, segments[i].pool, sizeof part.pool);
            for (; i < end && compare_segments(&segments[first], &segments[i]) == 0; i++)
                state_add(&part, snapshot, &segments[i]);
            send(child->out, MESSAGE_STATE, &part, sizeof part);
        }
    }
}

static bool is_unsized(const struct replay_options *options, const struct workload *workload)
{
    return !options->device_memory && !workload->device_memory;
}

/* Replays a workload, by tarn beside the models or by one model. `most`: the memory of the host
 * device. */
static bool replay_one(const struct child *child, const struct workload *workload, bool modelled,
                       uint64_t most, const uint64_t *least)
{
    const struct replay_options *options = child->options;
    struct replay_result result;
    uint64_t memory = replay_device_memory(options, workload);
    tarn_status status = memory < most ? tarn_device_limit_set(workload->device, memory) : TARN_OK;
    if (status) {
        char error[512];
        snprintf(error, sizeof error, "device %d cannot be of %" PRIu64 " bytes: %s",
                 workload->device, memory, tarn_last_error());
        send_error(child, error);
        return false;
    }
    bool done = options->policy != REPLAY_TARN
                    ? replay_run_alone(options, workload, memory, &result)
                    : replay_run(options, workload, send_repetition, (void *)(uintptr_t)child,
                                 &child->shared->done, &result);
    for (enum replay_policy model = REPLAY_NATIVE;
         model < REPLAY_POLICIES && options->policy == REPLAY_TARN; model++)
        done = replay_run_model(options, workload, memory, model, &result) && done;
    result.modelled = modelled;
    result.device_memory = memory;
    result.unsized = is_unsized(options, workload);
    memcpy(result.least, least, sizeof result.least);
    send(child->out, MESSAGE_RESULT, &result, sizeof result);
    return done && result.divergences == 0;
}

/* Replays every workload. True if all went well; otherwise the errors were sent. */
static bool replay_all(const struct child *child, struct workload *workloads, size_t count,
                       bool modelled)
{
    uint64_t most = 0;
    int devices = 1;
    for (size_t i = 0; i < count; i++) {
        uint64_t memory = replay_device_memory(child->options, &workloads[i]);
        most = memory > most ? memory : most;
        child->shared->total += (uint64_t)workloads[i].op_count * child->options->repeat;
        if (workloads[i].device >= devices)
            devices = workloads[i].device + 1;
    }
    char error[512];
    if (devices > TARN_MAX_DEVICES) {
        snprintf(error, sizeof error, "the trace names device %d; tarn serves %d devices",
                 devices - 1, TARN_MAX_DEVICES);
        send_error(child, error);
        return false;
    }
    uint64_t(*least)[REPLAY_POLICIES] = calloc(count ? count : 1, sizeof *least);
    bool well = least != NULL;
    snprintf(error, sizeof error, "out of host memory");
    /* This comes before tarn is used in this process */
    for (size_t i = 0; well && child->options->least && i < count; i++)
        well = least_find(child->options, &workloads[i], least[i], error, sizeof error);
    well = well && replay_configure(child->options, devices, most, error, sizeof error);
    if (!well)
        send_error(child, error);
    bool ready = well;
    for (size_t i = 0; ready && i < count; i++) {
        if (is_unsized(child->options, &workloads[i]))
            workload_forget_tries(&workloads[i]);
        well = replay_one(child, &workloads[i], modelled, most, least[i]) && well;
    }
    free(least);
    return well;
}

static bool run_child(const struct child *child, const char *path)
{
    struct snapshot snapshot;
    struct snapshot_error error;
    if (!snapshot_read_file(path, &snapshot, &error)) {
        send_error(child, error.text);
        return false;
    }

    size_t count = 0;
    bool well = false;
    struct workload *workloads = calloc(snapshot.trace_count + 1, sizeof *workloads);
    bool built = workloads != NULL;
    const int only = child->options->only;
    for (int device = 0; built && (size_t)device < snapshot.trace_count; device++)
        if (workload_exists(&snapshot, device) && (!only || device + 1 == only))
            built = workload_build(&snapshot, device, &workloads[count++]);
    for (size_t i = 0; built && child->options->leave_ranges && i < count; i++)
        workload_leave_ranges(&workloads[i]);
    for (size_t i = 0; built && child->options->vary && i < count; i++)
        built = workload_vary(&workloads[i], child->options->vary);
    uint32_t streams = child->options->deal_streams;
    for (size_t i = 0; built && streams && i < count; i++)
        built = workload_deal(&workloads[i], streams, child->options->lag);

    struct message_file about = {.modelled = snapshot.modelled};
    for (size_t i = 0; count == 0 && i < snapshot.trace_count; i++)
        about.state_events += snapshot.traces[i].event_count;
    send(child->out, MESSAGE_FILE, &about, sizeof about);
    if (!built) {
        send_error(child, "there is not enough host memory for the trace");
    } else if (count == 0) {
        send_states(child, &snapshot);
        well = true;
    }
    snapshot_finish(&snapshot);
    if (built && count > 0)
        well = replay_all(child, workloads, count, about.modelled);
    for (size_t i = 0; i < count; i++)
        workload_finish(&workloads[i]);
    free(workloads);
    return well;
}

/* ---- the parent ---- */

static bool read_all(int in, void *data, size_t size)
{
    char *at = data;
    while (size > 0) {
        ssize_t got = read(in, at, size);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        at += got;
        size -= (size_t)got;
    }
    return true;
}

/* Appends an element to an array. */
static bool append(void **array, size_t *count, const void *element, size_t size)
{
    char *grown = reallocarray(*array, *count + 1, size);
    if (!grown)
        return false;
    memcpy(grown + *count * size, element, size);
    *array = grown;
    ++*count;
    return true;
}

/* Receives one message. A repetition comes before the result that it belongs to. False at the end
 * of the pipe, and if a message is cut off. */
static bool receive(int in, struct replay_file *file, struct replay_device *next)
{
    struct message message;
    union {
        char text[sizeof file->error];
        struct message_file about;
        struct replay_result result;
        struct replay_repetition repetition;
        struct replay_state state;
    } data = {{0}};
    if (!read_all(in, &message, sizeof message) || message.size > sizeof data ||
        !read_all(in, &data, message.size))
        return false;
    switch (message.kind) {
    case MESSAGE_ERROR:
        snprintf(file->error, sizeof file->error, "%.*s", (int)message.size, data.text);
        return true;
    case MESSAGE_FILE:
        file->modelled = data.about.modelled;
        file->state_events = data.about.state_events;
        return true;
    case MESSAGE_REPETITION:
        return append((void **)&next->repetitions, &next->repetition_count, &data.repetition,
                      sizeof data.repetition);
    case MESSAGE_RESULT:
        next->result = data.result;
        if (!append((void **)&file->devices, &file->device_count, next, sizeof *next))
            return false;
        *next = (struct replay_device){0};
        return true;
    case MESSAGE_STATE:
        return append((void **)&file->states, &file->state_count, &data.state, sizeof data.state);
    default:
        return false;
    }
}

static void draw_progress(const char *path, struct shared *shared)
{
    enum { BAR = 30 };
    static const char full[] = "##############################",
                      empty[] = "..............................";
    uint64_t done = atomic_load_explicit(&shared->done, memory_order_relaxed);
    uint64_t total = atomic_load_explicit(&shared->total, memory_order_relaxed);
    const char *slash = strrchr(path, '/');
    const struct name_text whole = name_shown(slash ? slash + 1 : path);
    const char *name = whole.text;
    struct winsize window = {0};
    int columns =
        ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col ? window.ws_col : 80;
    int room = columns - BAR - 12;
    plain_output_move("\r\033[K");
    if (total == 0) {
        fprintf(stderr, "%.*s reading", room > 0 ? room : 0, name);
    } else {
        double part = done < total ? (double)done / (double)total : 1;
        int filled = (int)(part * BAR);
        fprintf(stderr, "%.*s [%.*s%.*s] %3.0f %%", room > 0 ? room : 0, name, filled, full,
                BAR - filled, empty, 100 * part);
    }
    fflush(stderr);
}

static void collect(int in, struct replay_file *file, struct shared *shared, bool progress)
{
    struct replay_device next = {0};
    bool drawn = false;
    for (int interval = 0;;) {
        struct pollfd waiting = {.fd = in, .events = POLLIN};
        int ready = poll(&waiting, 1, progress ? PROGRESS_INTERVAL : -1);
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready > 0) {
            if (!receive(in, file, &next))
                break;
        } else if (++interval >= PROGRESS_AFTER) {
            draw_progress(file->path, shared);
            drawn = true;
        }
    }
    if (drawn)
        plain_output_move("\r\033[K");
    free(next.repetitions);
}

/* If the child neither ended by itself nor sent an error, makes an error of how it ended. */
static void judge(struct replay_file *file, int status)
{
    if (WIFSIGNALED(status)) {
        const char *name = strsignal(WTERMSIG(status));
        snprintf(file->error, sizeof file->error, "the replay was ended by signal %d (%s)",
                 WTERMSIG(status), name ? name : "unknown");
        return;
    }
    bool reported = file->error[0] != '\0';
    for (size_t i = 0; i < file->device_count; i++)
        reported =
            reported || file->devices[i].result.error[0] || file->devices[i].result.divergences;
    if (!reported && WEXITSTATUS(status) != 0)
        snprintf(file->error, sizeof file->error, "the replay ended with status %d",
                 WEXITSTATUS(status));
}

bool replay_file_run(const char *path, const struct replay_options *options, bool progress,
                     struct replay_file *file)
{
    *file = (struct replay_file){.path = path, .options = options};
    int ends[2] = {-1, -1}, status = 0;
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || pipe2(ends, O_CLOEXEC)) {
        snprintf(file->error, sizeof file->error, "no child process can be prepared: %s",
                 strerror(errno));
        goto out;
    }
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0) {
        snprintf(file->error, sizeof file->error, "no child process can be started: %s",
                 strerror(errno));
        goto out;
    }
    if (pid == 0) {
        close(ends[0]);
        const struct child child = {.options = options, .shared = shared, .out = ends[1]};
        bool well = run_child(&child, path);
        exit(well ? 0 : 1);
    }
    close(ends[1]);
    ends[1] = -1;
    collect(ends[0], file, shared, progress);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    judge(file, status);
out:
    if (shared != MAP_FAILED)
        munmap(shared, sizeof *shared);
    if (ends[0] >= 0)
        close(ends[0]);
    if (ends[1] >= 0)
        close(ends[1]);
    return file->error[0] == '\0' && status == 0;
}

enum replay_verdict replay_file_verdict(const struct replay_file *file)
{
    enum replay_verdict verdict = file->error[0] ? REPLAY_FAILED : REPLAY_WELL;
    for (size_t i = 0; i < file->device_count; i++) {
        const struct replay_result *result = &file->devices[i].result;
        if (result->divergences || (result->error[0] && !result->shortage.there))
            return REPLAY_FAILED;
        bool unfit = file->options->compare ? replay_lack(result) != NULL : result->shortage.there;
        if (unfit && verdict == REPLAY_WELL)
            verdict = REPLAY_UNFIT;
    }
    return verdict;
}

void replay_file_finish(struct replay_file *file)
{
    for (size_t i = 0; i < file->device_count; i++)
        free(file->devices[i].repetitions);
    free(file->devices);
    free(file->states);
    *file = (struct replay_file){0};
}
