/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Tells Python of the frees of blocks that graphs refer to (TARN_DEBUG=graphs), so that it can keep
 * its call stack of them. Other frees cost one load. Called by python/src/tarn/torch/watching.py
 * through ctypes.
 *
 * PyTorch has a trace of its own for this, which takes Python's lock for each free and each event,
 * and loses the exception that is on its way during a free. */
#include "allocator.h"

#include <unordered_set>

namespace tarn_torch
{

/* What is called of Python, by a thread that may not have its lock. */
struct Python {
    int (*lock)();              /* PyGILState_Ensure */
    void (*unlock)(int before); /* PyGILState_Release */
    /* PyErr_Fetch and PyErr_Restore: an exception may be on its way. */
    void (*take_error)(void **type, void **value, void **trace);
    void (*give_error)(void *type, void *value, void *trace);
    void (*freed)(void *block); /* watching.py's */
};

namespace
{
struct Awaited {
    std::mutex lock;
    std::unordered_set<void *> blocks; /* live ones */
    Python python;                     /* valid while `follows` */
    bool follows = false;
    std::atomic<bool> any = false; /* whether `blocks` has one */
};
} // namespace

static Awaited &awaited()
{
    static auto *one = new Awaited;
    return *one;
}

bool any_awaited()
{
    return awaited().any.load(std::memory_order_relaxed);
}

/* Removes a block from the awaited ones. True if it was there and Python wants to know of its free:
 * *python says how. */
static bool take_awaited(void *block, Python *python)
{
    Awaited &all = awaited();
    std::lock_guard<std::mutex> guard(all.lock);
    bool found = all.blocks.erase(block) > 0;
    all.any = !all.blocks.empty();
    *python = all.python;
    return found && all.follows;
}

void tell_of_free(void *block)
{
    Python python = {};
    void *type = nullptr, *value = nullptr, *trace = nullptr;
    if (!take_awaited(block, &python))
        return;
    int before = python.lock();
    python.take_error(&type, &value, &trace);
    python.freed(block);
    python.give_error(type, value, trace);
    python.unlock(before);
}

} // namespace tarn_torch

using namespace tarn_torch;

extern "C" {

/* From now on Python learns of the frees of awaited blocks. NULL: no longer, as at its
 * end. */
__attribute__((visibility("default"))) void tarn_torch_follow_frees(const struct Python *python)
{
    Awaited &all = awaited();
    std::lock_guard<std::mutex> guard(all.lock);
    all.follows = python != nullptr;
    if (python)
        all.python = *python;
}

/* Python awaits the frees of these live blocks. False if the host has no memory. */
__attribute__((visibility("default"))) bool tarn_torch_await_frees(void *const *blocks,
                                                                   size_t count)
{
    Awaited &all = awaited();
    std::lock_guard<std::mutex> guard(all.lock);
    try {
        all.blocks.insert(blocks, blocks + count);
    } catch (const std::bad_alloc &) {
        return false;
    }
    all.any = !all.blocks.empty();
    return true;
}
}
