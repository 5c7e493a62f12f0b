// SPDX-License-Identifier: MIT
// Copyright (c) 2026 The tarn authors

// A C++ program whose static and thread-local objects own what tarn gave, and give it back in their
// destructors: those that were made
// before tarn's first call, whose destructors run after a driver's exit handler, and those made
// after it.
//
// statics HOW return, exit, shutdown (tarn_shutdown() before the end), thread (a thread calls
// exit()), busy (threads are at work)
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <tarn/tarn.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace
{

enum { WELL = 7, ILL = 3 };

void need(bool condition, const char *what)
{
    if (condition)
        return;
    std::fprintf(stderr, "not so: %s (%s)\n", what, tarn_last_error());
    _exit(ILL);
}
#define NEED(condition) need((condition), #condition)

std::atomic<bool> is_shut_down;

// At the end the driver may be gone, or tarn shut down: nothing else can stand in the way.
void need_freed(tarn_status status)
{
    if (is_shut_down)
        NEED(status == TARN_ERROR_SHUTDOWN);
    else
        NEED(status == TARN_OK);
}

struct Block {
    void *pointer = nullptr;
    explicit Block(size_t size) : pointer(tarn_malloc(size))
    {
        NEED(pointer);
    }
    Block(Block &&other) : pointer(other.pointer)
    {
        other.pointer = nullptr;
    }
    ~Block()
    {
        if (pointer)
            need_freed(tarn_free(pointer));
    }
};

// Owns one of each, made when it is asked to and not when it is constructed.
struct Owner {
    tarn_pool *pool = nullptr;
    void *block = nullptr, *pinned = nullptr;
    tarn_stream stream = 0;
    tarn_event *event = nullptr;
    std::vector<Block> blocks;

    void make()
    {
        NEED(tarn_stream_lease(0, 0, &stream) == TARN_OK);
        NEED(tarn_pool_create(nullptr, &pool) == TARN_OK);
        NEED(tarn_pool_alloc(pool, stream, 3 << 20, &block) == TARN_OK);
        NEED(tarn_pinned_alloc(TARN_STREAM_CURRENT, 5000, &pinned) == TARN_OK);
        NEED(tarn_event_create(0, &event) == TARN_OK);
        for (size_t i = 1; i < 100; i++)
            blocks.emplace_back(i * i * 100);
    }

    ~Owner()
    {
        blocks.clear();
        if (!pool)
            return;
        need_freed(tarn_free(block));
        need_freed(tarn_free(pinned));
        // What is the driver's may be refused: it says that it is gone.
        tarn_status status = tarn_event_destroy(event);
        NEED(status == TARN_OK || status == TARN_ERROR_SHUTDOWN);
        status = tarn_pool_release(pool);
        NEED(status == TARN_OK || status == TARN_ERROR_SHUTDOWN);
        status = tarn_stream_return(stream);
        NEED(status == TARN_OK || status == TARN_ERROR_SHUTDOWN);
        status = tarn_device_trim(0, 0);
        NEED(status == TARN_OK || status == TARN_ERROR_SHUTDOWN);
        if (!tarn_malloc(100))
            NEED(tarn_last_status() == TARN_ERROR_SHUTDOWN);
    }
};

Owner before; // constructed before main, so destroyed last

struct First { // before the driver is loaded, its destructor after the driver's exit handler
    ~First()
    {
        tarn_device_properties properties;
        properties.size = sizeof properties;
        tarn_status status = tarn_device_properties_get(0, &properties);
        NEED(status == TARN_OK || status == TARN_ERROR_SHUTDOWN);
    }
} first;

thread_local Owner of_thread;

std::atomic<int> busy;

void work()
{
    of_thread.make();
    busy++;
    for (;;) {
        std::vector<Block> some;
        for (size_t i = 1; i < 30; i++) {
            void *pointer = tarn_malloc(i * i * 1000);
            if (!pointer)
                NEED(tarn_last_status() == TARN_ERROR_SHUTDOWN);
            else
                NEED(tarn_free(pointer) == TARN_OK);
        }
    }
}

} // namespace

int main(int count, char **arguments)
{
    const char *how = count > 1 ? arguments[1] : "return";
    alarm(60);
    before.make();
    static Owner
        after; // constructed after tarn's first call, so destroyed before what that registered
    after.make();
    of_thread.make();
    std::thread([] {
        of_thread.make();
    }).join(); // its destructors run before tarn's own end of the thread

    if (std::strcmp(how, "exit") == 0)
        std::exit(WELL);
    if (std::strcmp(how, "thread") == 0) {
        std::thread([] {
            of_thread.make();
            std::exit(WELL);
        }).detach();
        for (;;)
            pause();
    }
    if (std::strcmp(how, "busy") == 0) {
        for (int i = 0; i < 3; i++)
            std::thread(work).detach();
        while (busy < 3)
            std::this_thread::yield();
        std::exit(WELL);
    }
    if (std::strcmp(how, "shutdown") == 0) {
        NEED(tarn_shutdown() == TARN_OK);
        is_shut_down = true;
    }
    return WELL;
}
