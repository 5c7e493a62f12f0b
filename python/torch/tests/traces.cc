/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Histories and snapshots. Part of the program class.cc. */
#include "class.h"

namespace
{
struct Context final : c10::GatheredContext {
    int number = 0;
};
} // namespace
static int contexts_made;
std::shared_ptr<c10::GatheredContext> make_context()
{
    auto context = std::make_shared<Context>();
    context->number = ++contexts_made;
    return context;
}

void snapshots_have_contexts_and_traces()
{
    auto &tarn = ours();
    tarn.recordHistory(true, make_context, 100, RecordContext::ALL, false, {});
    CHECK(tarn.isHistoryEnabled());
    DataPtr a = tarn.allocate(2 * MIB);
    DataPtr b = tarn.allocate(MIB);
    void *freed = b.get();
    b.clear();
    auto shown = tarn.snapshot({0, 0});
    CHECK(shown.device_traces.size() == static_cast<size_t>(c10::cuda::device_count()));
    std::vector<TraceEntry::Action> actions;
    for (const auto &entry : shown.device_traces[0]) {
        actions.push_back(entry.action_);
        if (entry.action_ == TraceEntry::ALLOC || entry.action_ == TraceEntry::FREE_REQUESTED)
            CHECK(entry.context_);
        CHECK(entry.compile_context_ == "N/A"); /* native's word for none, which _snapshot()
                                                   shows */
        if (entry.action_ == TraceEntry::FREE_COMPLETED)
            CHECK(entry.addr_ == reinterpret_cast<size_t>(freed) && entry.size_ == MIB);
    }
    for (auto wanted : {TraceEntry::SEGMENT_MAP, TraceEntry::ALLOC, TraceEntry::FREE_REQUESTED,
                        TraceEntry::FREE_COMPLETED})
        CHECK(std::find(actions.begin(), actions.end(), wanted) != actions.end());
    bool found = false;
    for (const auto &segment : shown.segments)
        for (const auto &block : segment.blocks)
            if (block.allocated && block.requested_size == 2 * MIB)
                found = std::dynamic_pointer_cast<Context>(block.context_when_allocated) != nullptr;
    CHECK(found);
    CHECK(tarn.snapshot({0, 0}, false).device_traces[0].empty());
    tarn.recordHistory(true, make_context, 2, RecordContext::ALL, false, {});
    CHECK(tarn.snapshot({0, 0}).device_traces[0].size() == 2);
    tarn.recordHistory(true, make_context, 100, RecordContext::ALL, true,
                       {"free_requested", "free_completed"});
    tarn.allocate(MIB).clear();
    shown = tarn.snapshot({0, 0});
    for (const auto &entry : shown.device_traces[0])
        CHECK(entry.action_ != TraceEntry::FREE_REQUESTED &&
              entry.action_ != TraceEntry::FREE_COMPLETED);
    /* What gives memory back has a stack where frees have one. */
    for (auto when : {RecordContext::STATE, RecordContext::ALLOC, RecordContext::ALL}) {
        tarn.recordHistory(true, make_context, 100, when, true, {});
        tarn.emptyCache({0, 0});
        tarn.allocate(64 * MIB).clear();
        tarn.emptyCache({0, 0});
        int given_back = 0;
        shown = tarn.snapshot({0, 0});
        for (const auto &entry : shown.device_traces[0])
            if (entry.action_ == TraceEntry::SEGMENT_UNMAP && ++given_back)
                CHECK((entry.context_ != nullptr) == (when == RecordContext::ALL));
        CHECK(given_back > 0);
    }
    tarn.recordHistory(false, nullptr, 0, RecordContext::NEVER, false, {});
    CHECK(!tarn.isHistoryEnabled() && tarn.snapshot({0, 0}).device_traces[0].empty());
}

/* Frees say whose they are: by the stack of the allocation, unless they have one, and by their
 * pool. */
void frees_have_a_stack_and_a_pool()
{
    auto &tarn = ours();
    MempoolId_t id = {0, 6};
    tarn.createOrIncrefPool(0, id);
    tarn.recordHistory(true, make_context, 100, RecordContext::ALLOC, true, {});
    tarn.beginAllocateToPool(0, id, [](cudaStream_t) { return true; });
    DataPtr pooled = tarn.allocate(MIB);
    tarn.endAllocateToPool(0, id);
    tarn.allocate(2 * MIB).clear();
    pooled.clear();
    std::vector<TraceEntry::Action> actions;
    std::shared_ptr<c10::GatheredContext> context;
    auto shown = tarn.snapshot(id);
    for (const auto &entry : shown.device_traces[0]) {
        CHECK(entry.size_ == MIB && entry.context_ && entry.mempool_ == id);
        CHECK(!context || entry.context_ == context);
        context = entry.context_;
        actions.push_back(entry.action_);
    }
    CHECK((actions == std::vector<TraceEntry::Action>{TraceEntry::ALLOC, TraceEntry::FREE_REQUESTED,
                                                      TraceEntry::FREE_COMPLETED}));
    while (tarn.getPoolUseCount(0, id))
        tarn.releasePool(0, id);
    tarn.recordHistory(false, nullptr, 0, RecordContext::NEVER, false, {});
}

/* As many annotations are kept as events, until the next history. */
void annotations_are_bounded()
{
    auto &tarn = ours();
    tarn.recordHistory(true, nullptr, 10, RecordContext::NEVER, false, {});
    for (int i = 0; i < 4000; i++)
        tarn.recordAnnotation({{"name", std::to_string(i)}, {"stage", "START"}});
    auto kept = tarn.snapshot({0, 0}).external_annotations;
    CHECK(kept.size() == 10 && kept.back().metadata_["name"] == "3999");
    tarn.recordHistory(true, nullptr, 10, RecordContext::NEVER, false, {});
    CHECK(tarn.snapshot({0, 0}).external_annotations.empty());
}

#if TARN_TORCH_VERSION >= 2014
/* Snapshots have pinned memory, its history, and what the program has registered itself. */
void snapshots_have_pinned_memory()
{
    Before before;
    at::HostAllocator &host = pinned(&before);
    DataPtr early = host.allocate(MIB);
    CHECK(!host.is_history_enabled() && host.get_segments().size() == 1 &&
          host.get_traces().empty());
    host.record_history(true, make_context, 100, RecordContext::ALL, false);
    CHECK(host.is_history_enabled());
    DataPtr late = host.allocate(3 * MIB);
    char own[64];
    host.record_external_register(own, sizeof own);
    early.clear();
    auto segments = host.get_segments();
    CHECK(segments.size() == 2);
    for (const auto &segment : segments) {
        bool is_own = segment.address == reinterpret_cast<size_t>(own);
        CHECK(is_own ? segment.size == sizeof own
                     : segment.address == reinterpret_cast<size_t>(late.get()));
        CHECK(segment.allocated && segment.active && segment.context_when_allocated);
    }
    host.record_external_unregister(own);
    late.clear();
    CHECK(host.get_segments().empty());
    std::vector<TraceEntry::Action> actions;
    auto traces = host.get_traces();
    for (const auto &entry : traces)
        actions.push_back(entry.action_);
    constexpr auto alloc = TraceEntry::ALLOC, wanted = TraceEntry::FREE_REQUESTED,
                   done = TraceEntry::FREE_COMPLETED;
    CHECK((actions == std::vector<TraceEntry::Action>{alloc, alloc, wanted, done, wanted, done,
                                                      wanted, done}));
    host.record_history(false, nullptr, 0, RecordContext::NEVER, false);
    CHECK(host.get_traces().empty());
}
#endif

/* ---- Frees that Python awaits, with a stand-in for Python ---- */

static std::vector<std::string> python_calls;
static void *python_freed;
static int error_word;

static int python_lock()
{
    python_calls.push_back("lock");
    return 7;
}
static void python_unlock(int before)
{
    CHECK(before == 7);
    python_calls.push_back("unlock");
}
static void python_take_error(void **type, void **value, void **trace)
{
    *type = *value = *trace = &error_word;
    python_calls.push_back("take");
}
static void python_give_error(void *type, void *value, void *trace)
{
    CHECK(type == &error_word && value == &error_word && trace == &error_word);
    python_calls.push_back("give");
}
static void python_told(void *block)
{
    size_t bytes = 0;
    CHECK(tarn_usable_size_get(block, &bytes) == TARN_OK); /* it lives still */
    python_freed = block;
    python_calls.push_back("freed");
    DataPtr inner = get()->allocate(MIB); /* as a collection of garbage may */
}

/* Once for each block that is awaited, with Python's lock, and with the error on its way aside. */
void python_is_told_of_awaited_frees()
{
    struct {
        int (*lock)();
        void (*unlock)(int);
        void (*take_error)(void **, void **, void **);
        void (*give_error)(void *, void *, void *);
        void (*freed)(void *);
    } python = {python_lock, python_unlock, python_take_error, python_give_error, python_told};
    auto &tarn = ours();
    auto follow =
        reinterpret_cast<void (*)(const void *)>(function_of_shim("tarn_torch_follow_frees"));
    auto await = reinterpret_cast<bool (*)(void *const *, size_t)>(
        function_of_shim("tarn_torch_await_frees"));
    follow(&python);
    std::memset(&python, 0, sizeof python); /* it was copied */
    DataPtr a = tarn.allocate(MIB), b = tarn.allocate(MIB), c = tarn.allocate(MIB);
    void *blocks[] = {a.get(), b.get(), a.get()}, *first = a.get();
    CHECK(await(blocks, 3));
    c.clear();
    CHECK(python_calls.empty());
    a.clear();
    CHECK(python_freed == first);
    CHECK((python_calls == std::vector<std::string>{"lock", "take", "freed", "give", "unlock"}));
    a = tarn.allocate(MIB); /* another block, perhaps at the same address */
    c = tarn.allocate(MIB);
    a.clear();
    c.clear();
    CHECK(python_calls.size() == 5);
    follow(nullptr);
    b.clear();
    CHECK(python_calls.size() == 5 && allocated() == 0);
}
