/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The tests of every built-in row of a platform on its simulated library, from the loading on. The
 * library counts its calls and the misuses of its handles; what it must be called is read from the
 * row itself. Included after driver/cuda_test.h or driver/hip_test.h. */
#ifndef TARN_TESTS_HANDLE_VENDOR_TEST_H
#define TARN_TESTS_HANDLE_VENDOR_TEST_H

#include "driver/loader.h"
#include "handle/registry.h"
#include "support/clearing.h"

#include <dlfcn.h>
#include <pthread.h>
#include <tarn/tarn.h>
#include <time.h>

#define THREADS 16
#define STREAMS 5

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SLOW_BUILD 1
#else
#define SLOW_BUILD 0
#endif

/* What a test learns of a library. */
struct subject {
    tarn_library library;
    const char *knob; /* as in TARN_SIM_<knob>_FAIL */
    /* As the vendor writes that of the library found; "": not before the first handle. */
    const char *version;
};

static const struct library *row_of(const struct subject *subject)
{
    return entry_at(subject->library)->row;
}

/* ---- The library below ---- */

static unsigned long calls_in(void *library, const char *symbol)
{
    unsigned long (*calls)(const char *) = NULL;
    void *address = dlsym(library, "tarn_sim_calls");
    memcpy(&calls, &address, sizeof address);
    return calls ? calls(symbol) : 0;
}

static unsigned long calls(const struct subject *subject, const char *symbol)
{
    return symbol ? calls_in(entry_at(subject->library)->opened, symbol) : 0;
}

/* All that tarn calls once a handle is there. */
static unsigned long calls_of_binding(const struct subject *subject)
{
    const struct library *row = row_of(subject);
    unsigned long sum = calls(subject, row->set_stream) + calls(subject, row->set_workspace);
    for (int i = 0; i < LIBRARY_MODES; i++)
        sum += calls(subject, row->modes[i].set);
    return sum;
}

/* The stream that the vendor says the handle has. */
static void *bound_stream(const struct subject *subject, void *handle)
{
    void *stream = handle; /* none */
    assert_int_equal(entry_at(subject->library)->calls.get_stream(handle, &stream), 0);
    return stream;
}

static bool tells_stream(const struct subject *subject)
{
    return entry_at(subject->library)->calls.get_stream != NULL;
}

static void knob_set(const struct subject *subject, const char *what, const char *value)
{
    char name[64];
    snprintf(name, sizeof name, "TARN_SIM_%s_%s", subject->knob, what);
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

/* Creates from the `from`-th to the `to`-th, counted from now, are out of memory. */
static void fail_creates(const struct subject *subject, unsigned long from, unsigned long to)
{
    char text[64];
    /* Dense and sparse cuSOLVER are one library, which numbers their creates together. */
    unsigned long made = calls(subject, "cusolverDnCreate") + calls(subject, "cusolverSpCreate");
    if (!made)
        made = calls(subject, row_of(subject)->create);
    snprintf(text, sizeof text, "%lu-%lu", made + from, made + to);
    knob_set(subject, "FAIL", text);
}

static tarn_handle_stats stats_of(const struct subject *subject)
{
    tarn_handle_stats stats = {.size = sizeof stats};
    assert_ok(tarn_handle_stats_get(subject->library, 0, &stats));
    return stats;
}

static void *native_of(tarn_stream stream)
{
    void *native = NULL;
    assert_ok(tarn_stream_native_get(stream, &native));
    return native;
}

static double seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Runs a function in a thread of its own, which gives back what it took; the function says what is
 * wrong. */
static void in_thread(const char *(*function)(const struct subject *),
                      const struct subject *subject)
{
    union {
        const char *(*ours)(const struct subject *);
        void *(*theirs)(void *);
    } start = {.ours = function};
    pthread_t thread;
    void *wrong = NULL;
    assert_int_equal(pthread_create(&thread, NULL, start.theirs, (void *)(uintptr_t)subject), 0);
    assert_int_equal(pthread_join(thread, &wrong), 0);
    if (wrong)
        fail_msg("not so: %s", (const char *)wrong);
}

/* After each test: no handle is left, and none was misused. */
static int leave_nothing(void **state)
{
    const struct subject *subject = *state;
    knob_set(subject, "FAIL", NULL);
    knob_set(subject, "SLOW", NULL);
    assert_ok(tarn_handle_trim(subject->library, 0, NULL));
    assert_int_equal(calls(subject, "misuse"), 0);
    assert_int_equal(calls(subject, "late"), 0);
    assert_int_equal(calls(subject, "alive"), 0);
    assert_int_equal(calls(subject, "memory"), 0);
    return 0;
}

/* ---- Threads ---- */

static struct {
    const struct subject *subject;
    pthread_barrier_t barrier;
    atomic_int next;
    void *handles[THREADS];
} crowd;

static void *join_crowd(void *argument)
{
    const char *wrong = NULL;
    void *handle = NULL;
    (void)argument;
    if (tarn_handle_get(crowd.subject->library, TARN_STREAM_CURRENT, &handle))
        wrong = "a thread has a handle";
    int number = atomic_fetch_add(&crowd.next, 1);
    crowd.handles[number] = handle;
    pthread_barrier_wait(&crowd.barrier);
    unsigned random = (unsigned)number * 2654435761u + 1;
    tarn_stream streams[STREAMS];
    for (int i = 0; i < STREAMS; i++)
        if (tarn_stream_shared_get(0, 0, &streams[i]))
            return (void *)(uintptr_t) "streams";
    for (int round = 0; round < 100 && !wrong; round++) {
        random = random * 1664525u + 1013904223u;
        tarn_stream stream = streams[(random >> 16) % STREAMS];
        void *native = NULL, *bound = NULL;
        if (tarn_stream_set(stream) ||
            tarn_handle_get(crowd.subject->library, TARN_STREAM_CURRENT, &handle) ||
            tarn_stream_native_get(stream, &native)) {
            print_error("%s\n", tarn_last_error());
            wrong = "a stream is set";
        } else if (!row_of(crowd.subject)->by_stream && handle != crowd.handles[number]) {
            wrong = "the handle stays the thread's";
        } else if (tells_stream(crowd.subject) &&
                   (entry_at(crowd.subject->library)->calls.get_stream(handle, &bound) ||
                    bound != native)) {
            wrong = "the vendor agrees on the stream";
        }
    }
    return (void *)(uintptr_t)wrong;
}

/* Sixteen threads use the library at once; gives the seconds until each had a handle. */
static double gather_crowd(void)
{
    atomic_store(&crowd.next, 0);
    pthread_barrier_init(&crowd.barrier, NULL, THREADS + 1);
    knob_set(crowd.subject, "SLOW", "100");
    double start = seconds();
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, join_crowd, NULL), 0);
    pthread_barrier_wait(&crowd.barrier);
    double took = seconds() - start;
    knob_set(crowd.subject, "SLOW", NULL); /* none creates any more, except for libraries with a
                                              handle a stream */
    for (int i = 0; i < THREADS; i++) {
        void *wrong = NULL;
        pthread_join(threads[i], &wrong);
        if (wrong)
            fail_msg("not so: %s", (const char *)wrong);
    }
    pthread_barrier_destroy(&crowd.barrier);
    for (int i = 0; i < THREADS; i++)
        for (int j = 0; j < i; j++)
            assert_ptr_not_equal(crowd.handles[i], crowd.handles[j]);
    return took;
}

/* Their creates take 100 ms each, and the first of a library runs alone. A machine that is busy may
 * try again. */
static void sixteen_threads_with_slow_creates(void **state)
{
    crowd.subject = *state;
    tarn_library_info info = {.size = sizeof info};
    /* It is loaded before the clock starts */
    assert_ok(tarn_library_info_get(crowd.subject->library, &info));
    double took = gather_crowd();
    assert_true(took >= 0.2);
    tarn_handle_stats stats = stats_of(crowd.subject);
    assert_int_equal(stats.in_use, 0);
    assert_true(stats.created >= THREADS && stats.available == stats.created);
    assert_int_equal(calls(crowd.subject, "alive"), stats.created);
    for (int i = 0; i < 3 && took >= 0.3; i++) {
        assert_ok(tarn_handle_trim(crowd.subject->library, 0, NULL));
        took = 0.1 + gather_crowd(); /* the first one is not the first any more */
    }
    if (took >= (SLOW_BUILD ? 1.0 : 0.3))
        fail_msg("sixteen creates of 100 ms took %.0f ms", took * 1e3);
}

/* ---- Streams ---- */

/* The first handle comes bound; what was told is not told again, and a workspace follows a stream
 * every time. */
static const char *change_streams(const struct subject *subject)
{
    const struct library *row = row_of(subject);
    tarn_stream streams[STREAMS];
    bool known[STREAMS] = {false};
    unsigned random = 12345;
    int current = -1;
    for (int i = 0; i < STREAMS; i++)
        if (tarn_stream_shared_get(0, 0, &streams[i]))
            return "there are streams";
    for (int round = 0; round < 200; round++) {
        random = random * 1664525u + 1013904223u;
        int next = (int)((random >> 16) % STREAMS);
        unsigned long set_stream = calls(subject, row->set_stream),
                      set_workspace = calls(subject, row->set_workspace);
        void *handle = NULL, *again = NULL;
        bool tells = row->set_stream && (row->by_stream ? !known[next] : next != current);
        bool sets = entry_at(subject->library)->calls.set_workspace && !row->workspace_by_call;
        if (tarn_stream_set(streams[next]) ||
            tarn_handle_get(subject->library, TARN_STREAM_CURRENT, &handle))
            return "a get after a change";
        if (calls(subject, row->set_stream) - set_stream != tells)
            return "the stream is set once for each change, and not without one";
        if (calls(subject, row->set_workspace) - set_workspace != (tells && sets))
            return "a workspace is set whenever a stream is";
        if (tells_stream(subject) && bound_stream(subject, handle) != native_of(streams[next]))
            return "the vendor agrees";
        unsigned long binding = calls_of_binding(subject);
        for (int i = 0; i < 10; i++)
            if (tarn_handle_get(subject->library, TARN_STREAM_CURRENT, &again) || again != handle)
                return "the same handle again";
        if (calls_of_binding(subject) != binding)
            return "an unchanged stream costs no call";
        current = next;
        known[next] = true;
    }
    return NULL;
}

static void streams_change_at_random(void **state)
{
    in_thread(change_streams, *state);
}

static void a_lease_is_bound_and_returned(void **state)
{
    const struct subject *subject = *state;
    const struct library *row = row_of(subject);
    tarn_stream streams[2];
    tarn_lease lease, second;
    for (int i = 0; i < 2; i++)
        assert_ok(tarn_stream_lease(0, 0, &streams[i]));
    assert_ok(tarn_handle_lease(subject->library, streams[0], &lease));
    assert_ok(tarn_handle_lease(subject->library, streams[1], &second));
    void *handle = lease.handle;
    assert_ptr_not_equal(handle, second.handle);
    if (tells_stream(subject)) {
        assert_ptr_equal(bound_stream(subject, handle), native_of(streams[0]));
        assert_ptr_equal(bound_stream(subject, second.handle), native_of(streams[1]));
    }
    assert_ok(tarn_handle_return(&second));
    assert_ok(tarn_handle_lease_bind(&lease, streams[1]));
    if (tells_stream(subject))
        assert_ptr_equal(bound_stream(subject, lease.handle), native_of(streams[1]));
    handle = lease.handle;
    unsigned long binding = calls_of_binding(subject), destroys = calls(subject, row->destroy);
    assert_ok(tarn_handle_return(&lease));
    assert_int_equal(calls_of_binding(subject), binding);
    assert_int_equal(calls(subject, row->destroy), destroys);
    assert_ok(tarn_handle_lease(subject->library, streams[1], &lease));
    assert_ptr_equal(lease.handle, handle);
    assert_ok(tarn_handle_return(&lease));
    for (int i = 0; i < 2; i++)
        assert_ok(tarn_stream_return(streams[i]));
}

/* ---- Life ---- */

static size_t free_memory(void)
{
    size_t available = 0, total = 0;
    assert_ok(workspaces_clear_all(NULL));
    assert_ok(tarn_device_trim(0, 0));
    assert_ok(tarn_device_memory_get(0, &available, &total));
    return available;
}

static void prewarm_makes_and_trim_destroys(void **state)
{
    const struct subject *subject = *state;
    const struct library *row = row_of(subject);
    unsigned long creates = calls(subject, row->create), destroys = calls(subject, row->destroy);
    size_t before = free_memory(), destroyed = 0;
    assert_ok(tarn_handle_prewarm(subject->library, 0, TARN_STREAM_NONE, 3));
    assert_int_equal(calls(subject, row->create) - creates, 3);
    assert_int_equal(stats_of(subject).available, 3);
    size_t used = before - free_memory();
    bool on_the_host =
        subject->library == TARN_LIBRARY_CUDSS; /* a "light" handle, its vendor says */
    /* By then */
    bool given_up = row->frees_own_memory && entry_at(subject->library)->calls.set_workspace;
    assert_true(on_the_host || given_up ? used == 0 : used >= 3);
    if (!given_up)
        assert_int_equal(stats_of(subject).device_bytes_last, used / 3);
    assert_true(stats_of(subject).device_bytes_max >= (int64_t)(used / 3));
    assert_ok(tarn_handle_prewarm(subject->library, 0, TARN_STREAM_NONE, 3));
    assert_int_equal(calls(subject, row->create) - creates, 3);
    assert_ok(tarn_handle_trim(subject->library, 0, &destroyed));
    assert_int_equal(destroyed, 3);
    assert_int_equal(calls(subject, row->destroy) - destroys, 3);
    assert_int_equal(calls(subject, "alive"), 0);
    assert_int_equal(free_memory(), before);
}

static const char *use_when_full(const struct subject *subject)
{
    const struct library *row = row_of(subject);
    void *handle = NULL;
    uint64_t failures = stats_of(subject).failures;
    fail_creates(subject, 1, 2);
    if (tarn_handle_get(subject->library, TARN_STREAM_CURRENT, &handle) !=
            TARN_ERROR_OUT_OF_MEMORY ||
        handle)
        return "out of memory, and no handle";
    if (!strstr(tarn_last_error(), row->create) || !strstr(tarn_last_error(), "status"))
        return "the error names the call and its status";
    if (stats_of(subject).failures != failures + 1 || stats_of(subject).in_use)
        return "a failure is counted, and a handle not";
    if (tarn_handle_get(subject->library, TARN_STREAM_CURRENT, &handle) || !handle)
        return "the next get finds memory";
    return NULL;
}

static const char *use_when_nearly_full(const struct subject *subject)
{
    void *handle = NULL;
    unsigned long creates = calls(subject, row_of(subject)->create);
    fail_creates(subject, 1, 1);
    if (tarn_handle_get(subject->library, TARN_STREAM_CURRENT, &handle) || !handle)
        return "idle memory is given back, and a second create succeeds";
    return calls(subject, row_of(subject)->create) - creates == 2 ? NULL
                                                                  : "create was called twice";
}

static void out_of_memory_is_said_and_passes(void **state)
{
    in_thread(use_when_full, *state);
    assert_ok(tarn_handle_trim(((const struct subject *)*state)->library, 0, NULL));
    assert_int_equal(calls(*state, "alive"), 0); /* nor what a failed create has left */
    in_thread(use_when_nearly_full, *state);
}

/* ---- Captures ---- */

/* While another thread captures and one handle is there, which that one has. */
static const char *try_during_capture(const struct subject *subject)
{
    void *handle = NULL;
    if (tarn_handle_get(subject->library, TARN_STREAM_CURRENT, &handle) != TARN_ERROR_CAPTURE ||
        handle || !strstr(tarn_last_error(), "tarn_handle_prewarm"))
        return "no handle is made, and the error says what to do";
    if (tarn_handle_prewarm(subject->library, 0, TARN_STREAM_NONE, 4) != TARN_ERROR_CAPTURE)
        return "nor by prewarm";
    if (tarn_handle_trim(subject->library, 0, NULL) != TARN_ERROR_CAPTURE)
        return "none is destroyed";
    return NULL;
}

static void a_known_capture_survives(void **state)
{
    const struct subject *subject = *state;
    const struct library *row = row_of(subject);
    tarn_stream stream;
    tarn_lease lease, none;
    void *graph = NULL;
    assert_ok(tarn_stream_lease(0, 0, &stream));
    assert_ok(tarn_handle_prewarm(subject->library, 0, TARN_STREAM_NONE, 1));
    unsigned long creates = calls(subject, row->create), destroys = calls(subject, row->destroy);
    assert_ok(tarn_capture_begin(stream, TARN_CAPTURE_GLOBAL));
    assert_ok(tarn_handle_lease(subject->library, stream, &lease));
    if (tells_stream(subject))
        assert_ptr_equal(bound_stream(subject, lease.handle), native_of(stream));
    assert_refused(tarn_handle_lease(subject->library, stream, &none), TARN_ERROR_CAPTURE,
                   "tarn_handle_prewarm");
    assert_status(tarn_handle_prewarm(subject->library, 0, TARN_STREAM_NONE, 4),
                  TARN_ERROR_CAPTURE);
    assert_status(tarn_handle_trim(subject->library, 0, NULL), TARN_ERROR_CAPTURE);
    in_thread(try_during_capture, subject);
    assert_ok(tarn_handle_return(&lease));
    assert_ok(tarn_capture_end(stream, &graph));
    assert_non_null(graph);
    assert_int_equal(calls(subject, row->create), creates);
    assert_int_equal(calls(subject, row->destroy), destroys);
    assert_ok(driver->graph_destroy(0, graph));
    assert_ok(workspaces_clear_stream(stream, NULL));
    assert_ok(tarn_stream_return(stream));
}

/* A capture that tarn does not know survives a create too: it is made in relaxed mode. */
static void an_unknown_capture_survives_a_create(void **state)
{
    const struct subject *subject = *state;
    tarn_stream stream;
    driver_graph graph = NULL;
    assert_ok(tarn_stream_lease(0, 0, &stream));
    void *native = native_of(stream);
    assert_ok(driver->capture_begin(0, native, DRIVER_CAPTURE_GLOBAL));
    assert_ok(tarn_handle_prewarm(subject->library, 0, TARN_STREAM_NONE, 1));
    assert_ok(driver->capture_end(0, native, &graph));
    assert_non_null(graph);
    assert_ok(driver->graph_destroy(0, graph));
    assert_ok(tarn_stream_return(stream));
}

/* Every setting that the row knows is changed by a thread, and is for the next one what it was for
 * the first. */
static intptr_t settings[LIBRARY_MODES];

static const char *read_settings(const struct subject *subject, bool compare)
{
    void *handle = NULL;
    if (tarn_handle_get(subject->library, TARN_STREAM_CURRENT, &handle))
        return "a thread has a handle";
    for (int i = 0; i < LIBRARY_MODES; i++) {
        const struct mode_calls *mode = &entry_at(subject->library)->calls.modes[i];
        int number = 0;
        void *pointer = NULL;
        if (mode->get ? mode->get(handle, &number)
                      : mode->get_pointer && mode->get_pointer(handle, &pointer))
            return "a setting is told";
        intptr_t value = mode->get ? number : (intptr_t)pointer;
        if (compare && value != settings[i])
            return row_of(subject)->modes[i].set;
        settings[i] = value;
        if (mode->set ? mode->set(handle, number + 1)
                      : mode->set_pointer && mode->set_pointer(handle, handle))
            return "a setting is changed";
    }
    return NULL;
}

static const char *change_settings(const struct subject *subject)
{
    return read_settings(subject, false);
}

static const char *find_settings(const struct subject *subject)
{
    return read_settings(subject, true);
}

static void settings_end_with_their_thread(void **state)
{
    in_thread(change_settings, *state);
    in_thread(find_settings, *state);
    in_thread(find_settings, *state);
    /* All of them had one handle */
    assert_int_equal(stats_of(*state).created - stats_of(*state).destroyed, 1);
}

/* ---- A storm of captures ---- */

enum { CAPTURING = 3, OTHERS = 2, STORM_ROUNDS = SLOW_BUILD ? 8 : 25 };

static struct {
    const struct subject *subject;
    pthread_rwlock_t prewarmed; /* read: from a prewarm to its capture; write: for a trim */
    tarn_stream streams[CAPTURING + OTHERS];
    atomic_int capturing;
    const char *_Atomic wrong;
} weather;

#define WEATHER(condition)                                                             \
    do {                                                                               \
        if (!(condition)) {                                                            \
            print_error("%s: %s\n", row_of(weather.subject)->name, tarn_last_error()); \
            atomic_store(&weather.wrong, #condition);                                  \
        }                                                                              \
    } while (0)

/* Captures on its own stream, with the handles that were kept for it. */
static void capture_one(tarn_stream stream, tarn_capture_mode mode)
{
    tarn_lease lease = {0};
    void *graph = NULL, *handle = NULL;
    tarn_capture_state captures = TARN_CAPTURE_NONE;
    pthread_rwlock_rdlock(&weather.prewarmed);
    WEATHER(tarn_handle_prewarm(weather.subject->library, TARN_CURRENT_DEVICE, stream, 2) ==
            TARN_OK);
    WEATHER(tarn_capture_begin(stream, mode) == TARN_OK);
    pthread_rwlock_unlock(&weather.prewarmed);
    WEATHER(tarn_handle_lease(weather.subject->library, stream, &lease) == TARN_OK);
    WEATHER(tarn_handle_get(weather.subject->library, stream, &handle) == TARN_OK);
    WEATHER(handle != lease.handle);
    WEATHER(!tells_stream(weather.subject) ||
            bound_stream(weather.subject, handle) == native_of(stream));
    WEATHER(!tarn_capture_state_get(stream, &captures, NULL, NULL) &&
            captures == TARN_CAPTURE_ACTIVE);
    WEATHER(tarn_handle_return(&lease) == TARN_OK);
    WEATHER(tarn_capture_end(stream, &graph) == TARN_OK && graph);
    WEATHER(!graph || driver->graph_destroy(0, graph) == TARN_OK);
    WEATHER(workspaces_clear_stream(stream, NULL) == TARN_OK);
}

static void *capture_in_a_storm(void *argument)
{
    int number = (int)(uintptr_t)argument;
    /* For the others' captures, in a prewarm */
    WEATHER(tarn_handle_wait_limit_set(60000000000u, NULL) == TARN_OK);
    for (int i = 0; i < STORM_ROUNDS && !atomic_load(&weather.wrong); i++)
        capture_one(weather.streams[number], (tarn_capture_mode)((i + number) % 3));
    atomic_fetch_sub(&weather.capturing, 1);
    return NULL;
}

static bool may_fail(tarn_status status)
{
    return status == TARN_OK || status == TARN_ERROR_CAPTURE;
}

/* Takes what it gets, on streams that capture nothing, and on all of them in turn trims. */
static void *use_in_a_storm(void *argument)
{
    unsigned number = (unsigned)(uintptr_t)argument;
    tarn_library library = weather.subject->library;
    for (unsigned i = 0; atomic_load(&weather.capturing) && !atomic_load(&weather.wrong); i++) {
        tarn_lease lease = {0};
        void *handle = NULL;
        tarn_stream stream = weather.streams[CAPTURING + (number + i) % OTHERS];
        WEATHER(may_fail(tarn_handle_get(library, stream, &handle)));
        tarn_status status = tarn_handle_lease(library, stream, &lease);
        WEATHER(may_fail(status));
        if (!status)
            WEATHER(tarn_handle_return(&lease) == TARN_OK);
        if (i % 8 == 0) {
            pthread_rwlock_wrlock(&weather.prewarmed);
            WEATHER(may_fail(tarn_handle_trim(library, 0, NULL)));
            pthread_rwlock_unlock(&weather.prewarmed);
        }
        usleep(200);
    }
    return NULL;
}

/* No create, no destroy and no free happens in a capture, else the driver would end it; and who has
 * prewarmed for its stream has a handle there, whatever others take, give back and trim. */
static void captures_have_what_was_prewarmed(void **state)
{
    const struct subject *subject = *state;
    pthread_t threads[CAPTURING + OTHERS];
    weather.subject = subject;
    atomic_store(&weather.wrong, NULL);
    atomic_store(&weather.capturing, CAPTURING);
    pthread_rwlock_init(&weather.prewarmed, NULL);
    (void)tarn_workspace_size_set(subject->library, 1 << 20);
    for (int i = 0; i < CAPTURING + OTHERS; i++)
        assert_ok(tarn_stream_lease(0, 0, &weather.streams[i]));
    for (int i = 0; i < CAPTURING + OTHERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL,
                                        i < CAPTURING ? capture_in_a_storm : use_in_a_storm,
                                        (void *)(uintptr_t)i),
                         0);
    for (int i = 0; i < CAPTURING + OTHERS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < CAPTURING + OTHERS; i++)
        assert_ok(tarn_stream_return(weather.streams[i]));
    (void)tarn_workspace_size_set(subject->library, -1);
    if (weather.wrong)
        fail_msg("not so: %s", weather.wrong);
}

/* ---- The end of the process ---- */

static const struct subject *subjects; /* set by main() */
static size_t subject_count;

static void *have_one_of_each(void *argument)
{
    void *handle = NULL;
    (void)argument;
    for (size_t i = 0; i < subject_count; i++)
        NEED(tarn_handle_get(subjects[i].library, TARN_STREAM_CURRENT, &handle) == TARN_OK);
    return NULL;
}

static void in_threads(int count)
{
    pthread_t threads[4];
    for (int i = 0; i < count; i++)
        NEED(pthread_create(&threads[i], NULL, have_one_of_each, NULL) == 0);
    for (int i = 0; i < count; i++)
        NEED(pthread_join(threads[i], NULL) == 0);
}

/* Runs after the driver's own handler, which was registered later. */
static void check_that_none_was_destroyed(void)
{
    for (size_t i = 0; i < subject_count; i++) {
        NEED(calls(&subjects[i], row_of(&subjects[i])->destroy) == 0);
        NEED(calls(&subjects[i], "alive") >= 2);
        NEED(calls(&subjects[i], "late") == 0 && calls(&subjects[i], "misuse") == 0);
    }
    fflush(NULL);
    _exit(0);
}

static void scenario_exit(void)
{
    atexit(check_that_none_was_destroyed);
    have_one_of_each(NULL);
    in_threads(1);
    exit(9);
}

/* A handler of the program's that runs after the driver's own: there is no driver any more to make
 * a handle with. */
static void get_late(void)
{
    for (size_t i = 0; i < subject_count; i++) {
        void *handle = NULL;
        tarn_status status = tarn_handle_get(subjects[i].library, TARN_STREAM_CURRENT, &handle);
        if (status != TARN_ERROR_SHUTDOWN)
            fprintf(stderr, "%s: %s: %s\n", row_of(&subjects[i])->name, tarn_status_name(status),
                    tarn_last_error());
        NEED(status == TARN_ERROR_SHUTDOWN && !handle);
    }
    fflush(NULL);
    _exit(0);
}

static void scenario_late_get(void)
{
    void *block = NULL;
    atexit(get_late);
    NEED(tarn_alloc_on(TARN_STREAM_LEGACY, 64, &block) == TARN_OK);
    exit(9);
}

static void scenario_shutdown(void)
{
    void *handle = NULL;
    have_one_of_each(NULL);
    in_threads(3);
    for (size_t i = 0; i < subject_count; i++)
        NEED(tarn_handle_prewarm(subjects[i].library, 0, TARN_STREAM_NONE, 2) == TARN_OK);
    NEED(tarn_shutdown() == TARN_OK);
    for (size_t i = 0; i < subject_count; i++) {
        NEED(calls(&subjects[i], "alive") == 0);
        NEED(calls(&subjects[i], "late") == 0 && calls(&subjects[i], "misuse") == 0);
        NEED(tarn_handle_get(subjects[i].library, TARN_STREAM_CURRENT, &handle) ==
             TARN_ERROR_SHUTDOWN);
    }
}

/* The version that the library is told to claim. */
static void scenario_version(void)
{
    for (size_t i = 0; i < subject_count; i++) {
        if (!*subjects[i].version)
            continue;
        tarn_library_info info = {.size = sizeof info};
        knob_set(&subjects[i], "VERSION", "77.8.9");
        NEED(tarn_library_info_get(subjects[i].library, &info) == TARN_OK);
        NEED(strncmp(info.version, "77.8.9", 6) == 0);
    }
}

/* ---- All of them ---- */

static void is_found(void **state)
{
    const struct subject *subject = *state;
    tarn_library_info info = {.size = sizeof info};
    assert_ok(tarn_library_info_get(subject->library, &info));
    if (!info.usable)
        print_error("%s\n", info.reason);
    assert_true(info.found && info.usable);
    assert_non_null(strstr(info.path, "/sim/"));
    assert_string_equal(info.version, subject->version);
}

#define EACH_LIST(X)                     \
    X(is_found)                          \
    X(sixteen_threads_with_slow_creates) \
    X(streams_change_at_random)          \
    X(a_lease_is_bound_and_returned)     \
    X(prewarm_makes_and_trim_destroys)   \
    X(out_of_memory_is_said_and_passes)  \
    X(a_known_capture_survives)          \
    X(settings_end_with_their_thread)    \
    X(captures_have_what_was_prewarmed)  \
    X(an_unknown_capture_survives_a_create)

/* What a create says, and leaves in the place for the handle, without a device. */
struct refusal {
    const char *soname, *create;
    int status;
    enum { LEFT_AS_IT_WAS, LEFT_NULL, LEFT_SOMETHING } left;
    bool takes_number;
};

static void check_refusals(const struct refusal *refusals, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct refusal *refusal = &refusals[i];
        int (*create)(void **) = NULL, (*create_with_number)(void **, int) = NULL;
        void *library = dlopen(refusal->soname, RTLD_NOW | RTLD_LOCAL), *before = &library,
             *handle = before;
        NEED(library);
        loader_store(&create, dlsym(library, refusal->create));
        loader_store(&create_with_number, dlsym(library, refusal->create));
        NEED(create);
        int status = refusal->takes_number ? create_with_number(&handle, 100) : create(&handle);
        if (status != refusal->status)
            fprintf(stderr, "%s: %d\n", refusal->create, status);
        NEED(status == refusal->status);
        NEED((handle == before) == (refusal->left == LEFT_AS_IT_WAS));
        NEED((handle == NULL) == (refusal->left == LEFT_NULL));
        NEED(calls_in(library, "late") == 0 && calls_in(library, "misuse") == 0);
    }
}

/* What main() has beside: a scenario in a process of its own, where one is named. */
static const struct scenario {
    const char *name;
    void (*run)(void);
} common_scenarios[] = {{"exit", scenario_exit},
                        {"shutdown", scenario_shutdown},
                        {"version", scenario_version},
                        {"late_get", scenario_late_get}};

static bool run_common_scenario(const char *name)
{
    for (size_t i = 0; i < sizeof common_scenarios / sizeof *common_scenarios; i++)
        if (strcmp(common_scenarios[i].name, name) == 0) {
            common_scenarios[i].run();
            return true;
        }
    return false;
}

static const char *const strict[] = {"TARN_SIM_STRICT=1", NULL};

static void an_exit_destroys_nothing(void **state)
{
    (void)state;
    assert_int_equal(run_scenario("exit", strict), 0);
}

static void a_get_after_the_drivers_end_says_so(void **state)
{
    (void)state;
    assert_int_equal(run_scenario("late_get", strict), 0);
}

static void a_shutdown_destroys_all(void **state)
{
    (void)state;
    assert_int_equal(run_scenario("shutdown", strict), 0);
}

static void the_version_is_the_librarys(void **state)
{
    (void)state;
    assert_int_equal(run_scenario("version", strict), 0);
}

static int run_each(void)
{
    static const struct {
        const char *name;
        void (*run)(void **);
    } each[] = {
#define X(test) {#test, test},
        EACH_LIST(X)
#undef X
    };
    enum { EACH = sizeof each / sizeof *each };
    static struct CMUnitTest tests[EACH * 16];
    static char names[EACH * 16][80];
    size_t count = 0;
    for (size_t i = 0; i < subject_count; i++)
        for (size_t j = 0; j < EACH; j++) {
            snprintf(names[count], sizeof names[count], "%s: %s", row_of(&subjects[i])->name,
                     each[j].name);
            tests[count] = (struct CMUnitTest){.name = names[count],
                                               .test_func = each[j].run,
                                               .teardown_func = leave_nothing,
                                               .initial_state = (void *)(uintptr_t)&subjects[i]};
            count++;
        }
    return _cmocka_run_group_tests("each library", tests, count, NULL, NULL);
}

#endif
