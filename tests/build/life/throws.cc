// SPDX-License-Identifier: MIT
// Copyright (c) 2026 The tarn authors

// A library whose functions throw a C++ exception, or end the thread, each of them once in each
// call that reaches it. The exception comes
// out of the call of tarn; what the call had begun is undone; other threads wait for nothing, and
// the next call works.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <pthread.h>
#include <tarn/tarn.h>
#include <thread>
#include <unistd.h>

#define CHECK(condition)                                                                         \
    ((condition) ? (void)0                                                                       \
                 : (fprintf(stderr, "throws: line %d, %s: %s (%s)\n", __LINE__, now, #condition, \
                            tarn_last_error()),                                                  \
                    exit(1)))
#define OK(call) CHECK((call) == TARN_OK)

static const char *now = "start", *leaving = ""; // the function that leaves; none
static bool ends_thread;
static int left, failing;

static void leave(const char *function)
{
    if (strcmp(leaving, function) != 0)
        return;
    leaving = "";
    left++;
    if (ends_thread)
        pthread_exit(nullptr);
    throw 7;
}

static int create(void **handle)
{
    leave("create");
    *handle = new char;
    return failing;
}

static int create_with_number(void **handle, int)
{
    return create(handle);
}

static int destroy(void *handle)
{
    leave("destroy");
    delete static_cast<char *>(handle);
    return 0;
}

static int set_stream(void *, void *)
{
    leave("set_stream");
    return 0;
}

static int get_stream(void *, void **)
{
    return 1;
}

static int set_workspace(void *, void *pointer, size_t)
{
    leave(pointer ? "set_workspace" : "unset_workspace");
    return 0;
}

static int set_pointer_mode(void *, int)
{
    leave("set_pointer_mode");
    return 0;
}

static const char *status_text(int)
{
    leave("status_text");
    return "text";
}

static tarn_library library;
static tarn_stream stream;

static void register_it(const char *name, unsigned flags)
{
    tarn_library_row row = {};
    row.size = sizeof row;
    row.name = name;
    row.flags = flags;
    row.create = create;
    row.create_with_number = create_with_number;
    row.destroy = destroy;
    row.set_stream = set_stream;
    row.get_stream = get_stream;
    row.set_workspace = set_workspace;
    row.set_pointer_mode = set_pointer_mode;
    row.status_text = status_text;
    OK(tarn_library_register(&row, &library));
}

static void get()
{
    void *handle;
    (void)tarn_handle_get(library, stream, &handle);
}

static void get_plain()
{
    void *handle;
    (void)tarn_handle_get(library, TARN_STREAM_NONE, &handle);
}

static void lease()
{
    tarn_lease lease = {};
    if (tarn_handle_lease(library, stream, &lease) == TARN_OK)
        OK(tarn_handle_return(&lease));
}

static void prewarm()
{
    (void)tarn_handle_prewarm(library, 0, TARN_STREAM_NONE, 2);
}

static void prewarm_on()
{
    (void)tarn_handle_prewarm(library, TARN_CURRENT_DEVICE, stream, 2);
}

static void trim()
{
    OK(tarn_handle_prewarm(library, 0, TARN_STREAM_NONE, 3));
    (void)tarn_handle_trim(library, 0, nullptr);
}

struct per_call {
    per_call()
    {
        OK(tarn_workspace_policy_set(TARN_WORKSPACE_PER_CALL, nullptr));
    }
    ~per_call()
    {
        OK(tarn_workspace_policy_set(TARN_WORKSPACE_CACHED, nullptr));
    }
};

static void begin_and_end()
{
    per_call policy;
    tarn_workspace_call call = {};
    if (tarn_workspace_begin(library, stream, nullptr, &call) == TARN_OK)
        (void)tarn_workspace_end(&call);
}

// The lease is still one, and has no call that has not ended.
struct leased {
    tarn_lease lease = {};
    ~leased()
    {
        if (lease.owner)
            OK(tarn_handle_return(&lease));
    }
};

static void begin_and_end_leased()
{
    per_call policy;
    leased one;
    tarn_workspace_call call = {};
    if (tarn_handle_lease(library, stream, &one.lease) == TARN_OK &&
        tarn_workspace_begin(library, TARN_STREAM_NONE, &one.lease, &call) == TARN_OK)
        (void)tarn_workspace_end(&call);
}

// All pools sleep before handles are destroyed, so the process sleeps also where a destroy throws.
static void sleep_and_wake()
{
    (void)tarn_wake(); // of a thread that ended
    OK(tarn_handle_prewarm(library, 0, TARN_STREAM_NONE, 3));
    try {
        OK(tarn_sleep(nullptr, nullptr));
    } catch (int) {
        OK(tarn_wake());
        throw;
    }
    OK(tarn_wake());
}

static const struct {
    const char *name;
    void (*call)();
} calls[] = {{"get", get},
             {"get_plain", get_plain},
             {"lease", lease},
             {"prewarm", prewarm},
             {"prewarm_on", prewarm_on},
             {"trim", trim},
             {"begin", begin_and_end},
             {"begin_leased", begin_and_end_leased},
             {"sleep", sleep_and_wake}};

static void run(const std::function<void()> &function)
{
    std::thread thread(function);
    thread.join();
}

// The thread can be cancelled again, and begin a capture. It has no call in progress: a shutdown
// would wait for it.
static void is_as_before()
{
    int state = 0;
    void *graph = nullptr;
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state) == 0 &&
          state == PTHREAD_CANCEL_ENABLE);
    OK(tarn_capture_begin(stream, TARN_CAPTURE_GLOBAL));
    OK(tarn_capture_end(stream, &graph));
}

// In a thread of its own, whose handles go back at its end.
static void leave_from(void (*call)())
{
    bool caught = false;
    int before = left;
    try {
        call();
    } catch (int) {
        caught = true;
    }
    CHECK(caught == (left > before));
    leaving = "";
    failing = 0;
    is_as_before();
    get();
    for (const auto &other : calls)
        other.call();
}

static void try_each(const char *function)
{
    static char text[100];
    now = text;
    for (const auto &each : calls) {
        snprintf(text, sizeof text, "%s, %s, %s", function, each.name,
                 ends_thread ? "exit" : "throw");
        OK(tarn_handle_trim(library, 0, nullptr));
        failing = strcmp(function, "status_text") == 0 ? 9 : 0;
        leaving = function;
        run([&] { ends_thread ? each.call() : leave_from(each.call); });
        (void)tarn_wake();
        leaving = "";
        failing = 0;
        run([] { leave_from(get); });
        tarn_handle_stats stats = {};
        stats.size = sizeof stats;
        OK(tarn_handle_stats_get(library, 0, &stats));
        CHECK(stats.in_use == 0 && stats.available > 0);
        tarn_workspace_stats workspaces = {};
        workspaces.size = sizeof workspaces;
        OK(tarn_handle_trim(library, 0, nullptr));
        OK(tarn_workspace_stats_get(0, &workspaces));
        CHECK(workspaces.bytes == 0 && workspaces.deferred_bytes == 0);
    }
}

int main()
{
    static const char *const functions[] = {"create",        "destroy",         "set_stream",
                                            "set_workspace", "unset_workspace", "set_pointer_mode",
                                            "status_text"};
    alarm(60);
    OK(tarn_stream_lease(0, 0, &stream));
    for (unsigned flags :
         {0u, (unsigned)TARN_LIBRARY_BY_STREAM, (unsigned)TARN_LIBRARY_CREATE_TAKES_NUMBER}) {
        register_it(flags == 0                        ? "throws"
                    : flags == TARN_LIBRARY_BY_STREAM ? "throws by stream"
                                                      : "throws by number",
                    flags);
        for (const char *function : functions)
            for (bool ends : {false, true}) {
                int before = left;
                ends_thread = ends;
                try_each(function);
                CHECK(left > before);
            }
    }
    OK(tarn_shutdown());
    return 0;
}
