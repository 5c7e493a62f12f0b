/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Captures and graphs, as PyTorch makes them. Part of the program class.cc. */
#include "class.h"

#include <memory>
#include <optional>
#include <random>

/* The runtime's call of this meaning has other arguments in each of its versions. */
extern "C" unsigned cuStreamGetCaptureInfo_v3(cudaStream_t stream, cudaStreamCaptureStatus *status,
                                              unsigned long long *id, cudaGraph_t *graph,
                                              const void **nodes, const void **edges,
                                              size_t *count);

namespace
{
/* What CUDAGraph does with the allocator and the driver, in its order
 * (aten/src/ATen/cuda/CUDAGraph.cpp, 2.11): where the end of a capture fails, it throws before the
 * allocator hears of it, and its pool is never released. Its filter points into the graph. */
class Graph
{
  public:
    explicit Graph(MempoolId_t pool = {0, 0}) : id(pool)
    {
        if (!id.first && !id.second)
            id = {++last, 0};
    }
    ~Graph()
    {
        reset();
        *alive = false;
    }
    void capture_begin()
    {
        stream = c10::cuda::getCurrentCUDAStream();
        allocate_to_pool(&capture);
        if (cudaStreamBeginCapture(stream->stream(), cudaStreamCaptureModeThreadLocal) !=
            cudaSuccess)
            throw std::runtime_error("capture_begin");
        capture = capture_of(stream->stream());
    }
    void capture_end()
    {
        cudaGraph_t made = nullptr;
        if (cudaStreamEndCapture(stream->stream(), &made) != cudaSuccess || !made) {
            (void)cudaGetLastError();
            throw std::runtime_error("capture_end");
        }
        get()->endAllocateToPool(0, id);
        graph = made;
        has_ended = true;
    }
    void reset()
    {
        if (has_ended) {
            get()->releasePool(0, id);
            CHECK(cudaGraphDestroy(graph) == cudaSuccess);
        }
        has_ended = false;
    }

    /* A conditional node: a capture of its own within the other's, into the same pool. */
    void begin_child(CUDAStream on)
    {
        get()->endAllocateToPool(0, id);
        allocate_to_pool(&child);
        CHECK(cudaStreamBeginCapture(on.stream(), cudaStreamCaptureModeThreadLocal) == cudaSuccess);
        child = capture_of(on.stream());
    }
    void end_child(CUDAStream on)
    {
        cudaGraph_t made = nullptr;
        CHECK(cudaStreamEndCapture(on.stream(), &made) == cudaSuccess &&
              cudaGraphDestroy(made) == cudaSuccess);
        get()->endAllocateToPool(0, id);
        allocate_to_pool(&capture);
    }

    MempoolId_t id;

  private:
    static unsigned long long capture_of(cudaStream_t asked)
    {
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        unsigned long long number = 0;
        CHECK(cuStreamGetCaptureInfo_v3(asked, &status, &number, nullptr, nullptr, nullptr,
                                        nullptr) == 0);
        return status == cudaStreamCaptureStatusActive ? number : 0;
    }
    void allocate_to_pool(const unsigned long long *wanted)
    {
        get()->beginAllocateToPool(0, id, [wanted, there = alive](cudaStream_t asked) {
            CHECK(*there); /* else this reads what is no graph any more */
            return *wanted && capture_of(asked) == *wanted;
        });
        if (at::HostAllocator *host = at::getHostAllocator(c10::kCUDA))
            host->begin_allocate_to_pool(id, [](c10::Stream) { return false; });
    }
    inline static uint64_t last = 1000;
    std::optional<CUDAStream> stream;
    std::shared_ptr<bool> alive = std::make_shared<bool>(true);
    unsigned long long capture = 0, child = 0;
    cudaGraph_t graph = nullptr;
    bool has_ended = false;
};
} // namespace

/* A wait is not allowed in a capture, and ends it. */
static void spoil(CUDAStream stream)
{
    CHECK(cudaStreamSynchronize(stream.stream()) != cudaSuccess);
    (void)cudaGetLastError();
}

/* Captures `size` bytes on a stream, and fails. Nothing of the graph is left, except for what it
 * did not tell. */
static void fail_capture(CUDAStream stream, size_t size, MempoolId_t id = {0, 0})
{
    c10::StreamGuard guard(stream.unwrap());
    Graph graph(id);
    graph.capture_begin();
    DataPtr served = get()->allocate(size);
    spoil(stream);
    THROWS(graph.capture_end(), "capture_end");
}

static void settle()
{
    reinterpret_cast<void (*)()>(function_of_shim("tarn_torch_settle"))();
}

void captures_hold_their_pool()
{
    auto &tarn = ours();
    MempoolId_t id = {5, 0};
    CUDAStream stream = c10::cuda::getStreamFromPool();
    c10::StreamGuard guard(stream.unwrap());
    DataPtr before = tarn.allocate(MIB);
    tarn.beginAllocateToPool(0, id, [&](cudaStream_t asked) { return asked == stream.stream(); });
    CHECK(cudaStreamBeginCapture(stream.stream(), cudaStreamCaptureModeGlobal) == cudaSuccess);
    DataPtr a = tarn.allocate(4 * MIB);
    void *address = a.get();
    a.clear();
    DataPtr b = tarn.allocate(4 * MIB);
    CHECK(b.get() == address); /* within a capture too */
    before.clear();            /* freed meanwhile: not used again by the capture */
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(stream.stream(), &graph) == cudaSuccess);
    tarn.endAllocateToPool(0, id);
    b.clear();
    /* The graph still writes there: nobody else gets it, and no trim. */
    std::vector<DataPtr> others;
    for (int i = 0; i < 8; i++) {
        others.push_back(tarn.allocate(4 * MIB));
        CHECK(others.back().get() != address);
    }
    others.clear();
    tarn.emptyCache({0, 0});
    tarn.emptyCache(id);
    CHECK(reserved() >= 4 * MIB);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    tarn.releasePool(0, id);
    tarn.emptyCache({0, 0});
    CHECK(reserved() == 0);
}

/* The inputs of a graph of torch.compile: allocated beside the capture, free when it ends, and
 * written to by every launch. The capture allocates nothing. */
void what_a_graph_writes_to_stays()
{
    auto &tarn = ours();
    MempoolId_t id = {0, 12};
    CUDAStream stream = c10::cuda::getStreamFromPool();
    c10::StreamGuard guard(stream.unwrap());
    tarn.beginAllocateToPool(0, id, [&](cudaStream_t asked) { return asked == stream.stream(); });
    DataPtr input = tarn.allocate(8 * MIB);
    tarn.endAllocateToPool(0, id);
    auto address = reinterpret_cast<size_t>(input.get());
    size_t unmapped = 0;
    tarn.attachAllocatorTraceTracker([&](const TraceEntry &entry) {
        if (entry.action_ == TraceEntry::SEGMENT_UNMAP && entry.addr_ < address + 8 * MIB &&
            entry.addr_ + entry.size_ > address)
            unmapped += entry.size_;
    });
    input.clear();
    tarn.emptyCache({0, 0});
    tarn.emptyCache(id);
    /* Other sizes, another stream of the pool, a full device. */
    {
        CUDAStream side = c10::cuda::getStreamFromPool();
        c10::StreamGuard other(side.unwrap());
        tarn.beginAllocateToPool(0, id, [](cudaStream_t) { return true; });
        DataPtr aside = tarn.allocate(6 * MIB), larger = tarn.allocate(12 * MIB);
        tarn.endAllocateToPool(0, id);
    }
    tarn.setMemoryFraction(0.1, 0);
    THROWS(tarn.allocate(tarn.getMemoryInfo(0).second / 10), "CUDA out of memory");
    CHECK(unmapped == 0);
    while (tarn.getPoolUseCount(0, id))
        tarn.releasePool(0, id);
    tarn.emptyCache({0, 0});
    CHECK(unmapped >= 8 * MIB && reserved() == 0);
}

/* PyTorch releases the pool of a graph that it destroys, and does not wait for its last launch. */
void a_graph_that_is_gone_may_still_run()
{
    auto &tarn = ours();
    MempoolId_t id = {8, 0};
    CUDAStream stream = c10::cuda::getStreamFromPool(), launched = c10::cuda::getStreamFromPool();
    tarn.beginAllocateToPool(0, id, [&](cudaStream_t asked) { return asked == stream.stream(); });
    void *address = nullptr;
    size_t size = tarn.getMemoryInfo(0).second / 8;
    {
        c10::StreamGuard guard(stream.unwrap());
        CHECK(cudaStreamBeginCapture(stream.stream(), cudaStreamCaptureModeGlobal) == cudaSuccess);
        DataPtr a = tarn.allocate(size);
        address = a.get();
        a.clear();
        cudaGraph_t graph = nullptr;
        CHECK(cudaStreamEndCapture(stream.stream(), &graph) == cudaSuccess &&
              cudaGraphDestroy(graph) == cudaSuccess);
        tarn.endAllocateToPool(0, id);
    }
    bool gone = false;
    tarn.attachAllocatorTraceTracker([&](const TraceEntry &entry) {
        bool covers = entry.addr_ <= reinterpret_cast<size_t>(address) &&
                      reinterpret_cast<size_t>(address) < entry.addr_ + entry.size_;
        if (entry.action_ != TraceEntry::SEGMENT_UNMAP || !covers)
            return;
        CHECK(cudaStreamQuery(launched.stream()) == cudaSuccess); /* the launch has ended */
        gone = true;
    });
    CHECK(tarn_sim_machine.work(0, launched.stream(), address, size, 1000000) == TARN_OK);
    tarn.releasePool(0, id);
    CHECK(!gone && cudaStreamQuery(launched.stream()) != cudaSuccess);
    /* There is room elsewhere: nobody waits. */
    DataPtr small = tarn.allocate(MIB);
    CHECK(!gone && cudaStreamQuery(launched.stream()) != cudaSuccess);
    /* There is not: its memory serves, after a wait. */
    tarn.setMemoryFraction(0.2, 0);
    DataPtr large = tarn.allocate(size);
    CHECK(large.get() && gone);
    large.clear();
    small.clear();
    tarn.emptyCache({0, 0});
    CHECK(reserved() == 0);
}

/* Every launch of a graph reads what its capture copied from. */
void pinned_memory_of_a_graph_stays()
{
    Before before;
    at::HostAllocator &host = pinned(&before);
    auto &tarn = *get();
    MempoolId_t id = {9, 0};
    CUDAStream stream = c10::cuda::getStreamFromPool();
    void *address = nullptr;
    {
        c10::StreamGuard guard(stream.unwrap());
        auto mine = [&](cudaStream_t asked) { return asked == stream.stream(); };
        tarn.beginAllocateToPool(0, id, mine);
        host.begin_allocate_to_pool(id, [](c10::Stream) { return true; });
        CHECK(cudaStreamBeginCapture(stream.stream(), cudaStreamCaptureModeGlobal) == cudaSuccess);
        DataPtr device = tarn.allocate(MIB), source = host.allocate(MIB);
        address = source.get();
        CHECK(host.record_event(address, address, stream.unwrap()));
        source.clear();
        cudaGraph_t graph = nullptr;
        CHECK(cudaStreamEndCapture(stream.stream(), &graph) == cudaSuccess &&
              cudaGraphDestroy(graph) == cudaSuccess);
        tarn.endAllocateToPool(0, id);
        host.end_allocate_to_pool(id);
    }
    std::vector<DataPtr> others;
    for (int i = 0; i < 4; i++) {
        others.push_back(host.allocate(MIB));
        CHECK(others.back().get() != address);
    }
    others.clear();
    host.empty_cache();
    CHECK(host.get_stats().allocated_bytes.current >= static_cast<int64_t>(MIB));
    tarn.releasePool(0, id);
    host.release_pool(id);
    tarn.emptyCache({0, 0});
    host.empty_cache();
    CHECK(host.get_stats().allocated_bytes.current == 0);
}

/* What was recorded on the stream of a failed capture comes back, and so does the capture's own
 * memory. */
void failed_captures_lose_no_memory()
{
    auto &tarn = ours();
    CUDAStream side = c10::cuda::getStreamFromPool();
    for (int i = 0; i < 40; i++) {
        fail_capture(side, 8 * MIB);
        DataPtr block = tarn.allocate(64 * MIB);
        tarn.recordStream(block, side);
    }
    CHECK(reserved() <= 4 * 64 * MIB);
    tarn.emptyCache({0, 0});
    CHECK(reserved() == 0 && allocated() == 0);
}

/* PyTorch allocates nothing more, and each call that a capture forbids works again. */
void failed_captures_bar_nothing()
{
    Before before;
    at::HostAllocator &host = pinned(&before);
    auto &tarn = *get();
    CUDAStream side = c10::cuda::getStreamFromPool();
    DataPtr kept = tarn.allocate(MIB);
    host.allocate(MIB).clear();
    fail_capture(side, 4 * MIB);
    host.empty_cache();
    CHECK(host.get_stats().allocated_bytes.current == 0);

    fail_capture(side, 4 * MIB);
    tarn.allocate(64 * MIB).clear();
    fail_capture(side, 4 * MIB);
    tarn.emptyCache({0, 0});
    CHECK(reserved() < 64 * MIB);

    MempoolId_t id = {0, 77};
    tarn.createOrIncrefPool(0, id);
    tarn.beginAllocateToPool(0, id, [](cudaStream_t) { return true; });
    tarn.allocate(64 * MIB).clear();
    tarn.endAllocateToPool(0, id);
    fail_capture(side, 4 * MIB);
    tarn.emptyCache(id);
    CHECK(reserved() < 64 * MIB);

    /* tarn's own calls, of which PyTorch's allocator does not hear. */
    size_t gained = 0;
    fail_capture(side, 4 * MIB);
    CHECK(tarn_device_synchronize(0) == TARN_OK);
    fail_capture(side, 4 * MIB);
    CHECK(tarn_pinned_trim(0) == TARN_OK);
    fail_capture(side, 4 * MIB);
    CHECK(tarn_compact(0, SIZE_MAX, &gained) == TARN_OK);
    fail_capture(side, 4 * MIB);
    CHECK(tarn_sleep(nullptr, nullptr) == TARN_OK);
    CHECK(tarn_wake() == TARN_OK);
    settle();

    /* Another user of tarn asks, and memory is short. */
    size_t total = tarn.getMemoryInfo(0).second, large = total / 8;
    tarn.setMemoryFraction(0.2, 0);
    {
        DataPtr block = tarn.allocate(large);
        fail_capture(side, MIB);
        tarn.recordStream(block, side);
    }
    void *other = tarn_malloc(large);
    CHECK(other && tarn_free(other) == TARN_OK);
    tarn.setMemoryFraction(1.0, 0);
    while (tarn.getPoolUseCount(0, id))
        tarn.releasePool(0, id);
}

/* The next capture on the stream, in the same pool, which other graphs have too. */
void a_capture_follows_one_that_failed()
{
    auto &tarn = ours();
    CUDAStream side = c10::cuda::getStreamFromPool();
    c10::StreamGuard guard(side.unwrap());
    MempoolId_t id = {0, 78};
    {
        Graph first(id);
        first.capture_begin();
        DataPtr output = tarn.allocate(4 * MIB);
        first.capture_end();
        fail_capture(side, 2 * MIB, id);
        CHECK(tarn.getPoolUseCount(0, id) == 1);
        Graph second(id);
        second.capture_begin();
        DataPtr more = tarn.allocate(4 * MIB);
        CHECK(tarn.checkPoolLiveAllocations(0, id, {output.get(), more.get()}));
        CHECK(tarn_device_synchronize(0) == TARN_ERROR_CAPTURE);
        second.capture_end();
        CHECK(tarn_device_synchronize(0) == TARN_OK);
        output.clear();
        more.clear();
        tarn.emptyCache({0, 0});
        CHECK(reserved() >= 8 * MIB); /* the graphs write to it */
    }
    CHECK(tarn.getPoolUseCount(0, id) == 0);
    tarn.emptyCache({0, 0});
    CHECK(reserved() == 0);
}

/* A capture that another thread began is only released by that thread, or after its end. */
void a_capture_fails_in_another_thread()
{
    auto &tarn = ours();
    CUDAStream side = c10::cuda::getStreamFromPool();
    Graph graph;
    std::thread([&] {
        c10::StreamGuard guard(side.unwrap());
        graph.capture_begin();
        DataPtr served = tarn.allocate(4 * MIB);
        cudaGraph_t made = nullptr;
        /* And does not say so yet */
        CHECK(cudaStreamEndCapture(side.stream(), &made) == cudaSuccess);
        served.clear();
        std::thread([&] {
            DataPtr other = tarn.allocate(MIB);
            CHECK(tarn_device_synchronize(0) == TARN_OK);
            other.clear();
            tarn.emptyCache({0, 0});
        }).join();
        CHECK(reserved() >= 4 * MIB && tarn.getPoolUseCount(0, graph.id) == 0);
        CHECK(cudaGraphDestroy(made) == cudaSuccess);
    }).join();
    tarn.emptyCache({0, 0});
    CHECK(reserved() == 0);
    THROWS(tarn.endAllocateToPool(0, graph.id), "not currently recording");
}

/* The filters of a graph and of its conditional nodes take turns while the capture goes on. */
void a_graph_has_conditional_nodes()
{
    auto &tarn = ours();
    CUDAStream side = c10::cuda::getStreamFromPool(), inner = c10::cuda::getStreamFromPool();
    Graph graph;
    {
        c10::StreamGuard guard(side.unwrap());
        graph.capture_begin();
        DataPtr first = tarn.allocate(MIB), second, third;
        {
            c10::StreamGuard within(inner.unwrap());
            graph.begin_child(inner);
            second = tarn.allocate(MIB);
            graph.end_child(inner);
        }
        tarn.emptyCache({0, 0}); /* the capture goes on */
        third = tarn.allocate(MIB);
        CHECK(tarn.checkPoolLiveAllocations(0, graph.id, {first.get(), second.get(), third.get()}));
        graph.capture_end();
    }
    CHECK(tarn_device_synchronize(0) == TARN_OK);
    while (tarn.getPoolUseCount(0, graph.id) > 1)
        tarn.releasePool(0, graph.id); /* each filter has counted */
    graph.reset();
    tarn.emptyCache({0, 0});
    CHECK(reserved() == 0);
}

/* A scope that was opened and closed while its user captures by the driver's calls. */
void a_scope_within_a_capture_ends_with_it()
{
    auto &tarn = ours();
    CUDAStream side = c10::cuda::getStreamFromPool();
    c10::StreamGuard guard(side.unwrap());
    MempoolId_t id = {0, 79};
    tarn.createOrIncrefPool(0, id);
    for (int i = 0; i < 3; i++) {
        cudaGraph_t graph = nullptr;
        CHECK(cudaStreamBeginCapture(side.stream(), cudaStreamCaptureModeThreadLocal) ==
              cudaSuccess);
        tarn.beginAllocateToPool(0, id, [](cudaStream_t) { return true; });
        tarn.allocate(MIB).clear();
        CHECK(tarn_device_synchronize(0) == TARN_ERROR_CAPTURE);
        tarn.endAllocateToPool(0, id);
        CHECK(cudaStreamEndCapture(side.stream(), &graph) == cudaSuccess &&
              cudaGraphDestroy(graph) == cudaSuccess);
        settle();
        CHECK(tarn_device_synchronize(0) == TARN_OK);
    }
    while (tarn.getPoolUseCount(0, id))
        tarn.releasePool(0, id);
    tarn.emptyCache({0, 0});
    CHECK(reserved() == 0);
}

namespace
{
/* Graphs, tensors and streams in any order. A third of the captures fail, each in one of the ways
 * in which they do. */
class Storm
{
  public:
    explicit Storm(unsigned seed) : random(seed)
    {
        for (int i = 0; i < 3; i++)
            streams.push_back(c10::cuda::getStreamFromPool());
    }
    void step()
    {
        switch (pick(10)) {
        case 0:
            if (!open)
                begin();
            break;
        case 1:
            if (open)
                end();
            break;
        case 2:
            if (open && pick(2))
                spoiled = spoiled || (spoil(streams[open_on]), true);
            break;
        case 3:
            if (!graphs.empty())
                graphs.erase(graphs.begin() + pick(graphs.size()));
            break;
        case 4:
            get()->emptyCache({0, 0});
            break;
        case 5:
            if (!tensors.empty() && !open)
                get()->recordStream(tensors[pick(tensors.size())], streams[pick(streams.size())]);
            break;
        case 6:
        case 7:
            if (!tensors.empty())
                tensors.erase(tensors.begin() + pick(tensors.size()));
            break;
        default:
            allocate();
        }
        if (pick(8) == 0 && (!open || known)) { /* it would spoil one that tarn does not know */
            settle();
            CHECK(tarn_device_synchronize(0) == (open ? TARN_ERROR_CAPTURE : TARN_OK));
        }
    }
    void finish()
    {
        if (open)
            end();
        tensors.clear();
        graphs.clear();
        get()->emptyCache({0, 0});
        settle();
        CHECK(tarn_device_synchronize(0) == TARN_OK);
        get()->emptyCache({0, 0});
        CHECK(allocated() == 0 && reserved() == 0);
    }

  private:
    long pick(size_t count)
    {
        return static_cast<long>(random() % count);
    }
    void begin()
    {
        open_on = static_cast<size_t>(pick(streams.size()));
        bool shares = !graphs.empty() && pick(2);
        open = std::make_unique<Graph>(shares ? graphs[static_cast<size_t>(pick(graphs.size()))]->id
                                              : MempoolId_t{0, 0});
        c10::StreamGuard guard(streams[open_on].unwrap());
        open->capture_begin();
        spoiled = known = false;
    }
    void end()
    {
        c10::StreamGuard guard(streams[open_on].unwrap());
        if (spoiled) {
            THROWS(open->capture_end(), "capture_end");
            open.reset();
            return;
        }
        open->capture_end();
        graphs.push_back(std::move(open));
    }
    void allocate()
    {
        size_t size = static_cast<size_t>(1 + pick(4 * MIB));
        if (open) { /* of the capture, if that lets it */
            c10::StreamGuard guard(streams[open_on].unwrap());
            tensors.push_back(get()->allocate(size));
            known = known || !spoiled;
        } else {
            c10::StreamGuard guard(streams[static_cast<size_t>(pick(streams.size()))].unwrap());
            tensors.push_back(get()->allocate(size));
        }
    }
    std::mt19937 random;
    std::vector<CUDAStream> streams;
    std::vector<DataPtr> tensors;
    std::vector<std::unique_ptr<Graph>> graphs;
    std::unique_ptr<Graph> open;
    size_t open_on = 0;
    bool spoiled = false, known = false;
};
} // namespace

void captures_come_and_fail()
{
    Before before;
    (void)pinned(&before); /* which hears of each capture before it begins */
    for (unsigned seed = 1; seed <= 20; seed++) {
        Storm storm(seed);
        for (int step = 0; step < 400; step++)
            storm.step();
        storm.finish();
    }
}
