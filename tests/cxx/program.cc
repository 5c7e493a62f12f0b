/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Every class of tarn.hpp on the host device. */
#include <tarn/host.h>
#include <tarn/tarn.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <type_traits>
#include <vector>

#define CHECK(condition) \
    ((condition)         \
         ? (void)0       \
         : (std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition), std::abort()))

static tarn_status status_of(void (*call)())
{
    try {
        call();
    } catch (const tarn::error &error) {
        CHECK(std::strlen(error.what()) > 0 &&
              std::strstr(error.what(), tarn_status_name(error.status())));
        return error.status();
    }
    return TARN_OK;
}

static int64_t allocations()
{
    tarn_stats stats{};
    stats.size = sizeof stats;
    tarn::check(tarn_device_stats_get(0, &stats));
    return stats.allocation[TARN_STAT_ALL].current;
}

template <class Owner, bool assigned = true> void moves_and_does_not_copy()
{
    static_assert(!std::is_copy_constructible_v<Owner> && !std::is_copy_assignable_v<Owner>);
    static_assert(std::is_nothrow_move_constructible_v<Owner> &&
                  std::is_nothrow_move_assignable_v<Owner> == assigned);
    static_assert(std::is_nothrow_default_constructible_v<Owner> &&
                  std::is_nothrow_destructible_v<Owner>);
    Owner nothing;
    CHECK(!nothing);
    nothing.close();
}

static void errors_are_exceptions()
{
    CHECK(status_of([] { tarn::device_guard guard(77); }) == TARN_ERROR_INVALID_DEVICE);
    CHECK(status_of([] { tarn::block(TARN_STREAM_LEGACY, size_t{1} << 50); }) ==
          TARN_ERROR_OUT_OF_MEMORY);
    bool bad_alloc = false;
    try {
        tarn::block(TARN_STREAM_LEGACY, size_t{1} << 50);
    } catch (const std::bad_alloc &error) {
        bad_alloc = std::strstr(error.what(), "OUT_OF_MEMORY") != nullptr;
    }
    CHECK(bad_alloc);
    int exceptions = 0; /* what a program's last handler is for */
    for (std::size_t size : {std::size_t{1} << 50, std::size_t{1}}) {
        try {
            tarn::block(size == 1 ? tarn_stream{0x7777} : TARN_STREAM_LEGACY, size);
        } catch (const std::exception &error) {
            auto ours = dynamic_cast<const tarn::error *>(&error);
            exceptions += ours && std::strcmp(ours->what(), error.what()) == 0;
        }
    }
    CHECK(exceptions == 2);
}

static void streams_and_events()
{
    tarn::leased_stream first(0), second(0, 0);
    tarn_stream value = first.get(), before = 0, current = 0;
    tarn::check(tarn_stream_get(0, &before));
    tarn::leased_stream moved = std::move(first);
    CHECK(moved.get() == value && !first && moved);
    {
        tarn::stream_guard guard(moved);
        tarn::check(tarn_stream_get(0, &current));
        CHECK(current == value);
    }
    tarn::check(tarn_stream_get(0, &current));
    CHECK(current == before);

    tarn::event event(0);
    tarn::check(tarn_host_work(0, tarn::native_of(moved), nullptr, 0, 1000));
    event.record(moved);
    CHECK(!event.is_done() && !tarn::is_idle(moved));
    event.block(second);
    tarn::synchronize(second);
    event.synchronize();
    CHECK(event.is_done() && tarn::is_idle(moved));

    tarn::adopted_stream same(0, tarn::native_of(TARN_STREAM_LEGACY));
    CHECK(same.get() == before && same);
    moved = std::move(second); /* the first is returned, and its value has ended */
    CHECK(tarn_stream_query(value) == TARN_ERROR_INVALID_STREAM);
}

static void blocks_pools_and_scopes()
{
    tarn::leased_stream stream(0), other(0);
    {
        tarn::block block(stream, 1000);
        CHECK(block.usable_size() >= 1000 && allocations() == 1);
        block.record(other);
        tarn::block taken = std::move(block);
        CHECK(taken && !block);
        taken.close();
        CHECK(!taken);
    }
    tarn::synchronize(other);
    CHECK(allocations() == 0);

    tarn::pool pool(0);
    tarn::pool again = pool.share();
    CHECK(again.get() == pool.get());
    {
        tarn::block inside = pool.allocate(stream, 3 << 20);
        CHECK(pool.stats().allocation[TARN_STAT_ALL].current == 1);
        tarn::scope scope(pool.get());
        tarn::block routed(stream, 100);
        std::thread worker([&] {
            tarn::joined_scope joined(scope.get());
            tarn::block theirs(stream, 100);
            CHECK(pool.stats().allocation[TARN_STAT_ALL].current == 3);
        });
        worker.join();
        tarn_alloc_options options{};
        options.size = sizeof options;
        options.device = TARN_CURRENT_DEVICE;
        options.stream = stream;
        options.alignment = 4096;
        options.pool = tarn::default_pool(0);
        tarn::block aligned(options, 100);
        CHECK(reinterpret_cast<std::uintptr_t>(aligned.get()) % 4096 == 0);
        CHECK(pool.stats().allocation[TARN_STAT_ALL].current == 2);
        tarn::checkpoint checkpoint(pool.get());
        CHECK(checkpoint);
    }
    {
        tarn::scope of_stream(pool.get(), other);
        tarn::block routed(other, 100), beside(stream, 100);
        CHECK(pool.stats().allocation[TARN_STAT_ALL].current == 1);
    }
    {
        tarn::scope of_all(pool.get(), TARN_SCOPE_ALWAYS); /* a kind is not taken for a stream */
        tarn::block routed(other, 100), beside(stream, 100);
        CHECK(pool.stats().allocation[TARN_STAT_ALL].current == 2);
    }
    pool.suspend(true);
    pool.resume();
    pool.trim();
    pool.limit(SIZE_MAX);
    CHECK(pool.stats().reserved_bytes[TARN_STAT_ALL].current == 0);
    tarn_pool *raw = pool.get();
    again.close();
    tarn_pool_info info{};
    info.size = sizeof info;
    tarn::check(tarn_pool_info_get(raw, &info));
    CHECK(info.use_count == 1);
}

static void ranges()
{
    tarn::leased_stream stream(0);
    tarn::pool pool(0);
    tarn::range range(pool.get(), 64 << 20);
    size_t page = range.info().page;
    CHECK(range.info().bytes == 64 << 20 && range.info().committed == 0);
    range.commit(0, 2 * page, stream);
    CHECK(range.info().committed == 2 * page);
    range.hold(0, page);
    bool refused = false;
    try {
        range.decommit(0, page, stream);
    } catch (const tarn::failure &error) {
        refused = error.status() == TARN_ERROR_BUSY;
    }
    CHECK(refused);
    range.unhold(0, page);
    range.decommit(0, 2 * page, stream);
    CHECK(range.info().decommitted == 2 * page);
    range.close();
    CHECK(!range);
    CHECK(tarn::range(1).info().bytes == page);
}

static void captures()
{
    tarn::leased_stream stream(0);
    tarn_capture_state state;
    {
        tarn::capture thrown_away(stream);
        tarn::check(tarn_capture_state_get(stream, &state, nullptr, nullptr));
        CHECK(state == TARN_CAPTURE_ACTIVE);
        bool refused = false;
        try {
            stream.close(); /* it captures: refused, and still owned */
        } catch (const tarn::error &error) {
            refused = error.status() == TARN_ERROR_CAPTURE;
        }
        CHECK(refused && stream);
    }
    tarn::check(tarn_capture_state_get(stream, &state, nullptr, nullptr));
    CHECK(state == TARN_CAPTURE_NONE);

    {
        tarn::stream_guard current(stream);
        tarn::capture of_current(TARN_STREAM_CURRENT);
        tarn::leased_stream other(0);
        tarn::stream_guard another(other);
        of_current.close();
    }
    tarn::check(tarn_capture_state_get(stream, &state, nullptr, nullptr));
    CHECK(state == TARN_CAPTURE_NONE);

    tarn::pool pool(0);
    tarn::capture capture(stream, pool.get(), TARN_CAPTURE_RELAXED);
    tarn::block(stream, 100).close();
    void *graph = capture.end();
    CHECK(graph && !capture);
    tarn::check(tarn_host_graph_launch(0, graph, tarn::native_of(stream)));
    tarn::check(tarn_host_graph_destroy(graph));
    tarn::synchronize(stream);
}

static int made;
static int create(void **handle)
{
    *handle = new int(++made);
    return 0;
}
static int destroy(void *handle)
{
    delete static_cast<int *>(handle);
    return 0;
}
static int set_stream(void *, void *)
{
    return 0;
}

static void handles()
{
    tarn_library_row row{};
    tarn_library library = 0;
    row.size = sizeof row;
    row.name = "of this program";
    row.create = create;
    row.destroy = destroy;
    row.set_stream = set_stream;
    tarn::check(tarn_library_register(&row, &library));
    tarn::leased_stream stream(0), other(0);
    int *own = tarn::handle<int *>(library);
    CHECK(own == tarn::handle<int *>(library, stream) && *own == 1);
    tarn::handle_lease lease(library, stream);
    CHECK(*lease.handle<int *>() == 2);
    lease.bind(other);
    tarn::handle_lease moved = std::move(lease);
    CHECK(moved && !lease);
    moved.close();
    CHECK(tarn_handle_lease_bind(&const_cast<tarn_lease &>(moved.get()), stream) ==
          TARN_ERROR_INVALID_ARGUMENT);
    bool refused = false;
    try {
        tarn::handle_mode_guard guard(library, TARN_HANDLE_MATH, 1);
    } catch (const tarn::error &error) {
        refused = error.status() == TARN_ERROR_NOT_SUPPORTED;
    }
    CHECK(refused);
}

static void memory_resources()
{
    tarn::pinned_resource pinned, same;
    CHECK(pinned == same);
    {
        std::pmr::vector<int> numbers(&pinned);
        for (int i = 0; i < 1000; i++)
            numbers.push_back(i);
        CHECK(tarn_pinned_contains(numbers.data()) && numbers[999] == 999);
    }
    bool refused = false;
    try {
        (void)pinned.allocate(1, 4096);
    } catch (const std::bad_alloc &) {
        refused = true;
    }
    CHECK(refused);

    tarn::leased_stream stream(0);
    tarn::pool pool(0);
    tarn::device_resource plain(stream), of_pool(stream, pool.get());
    CHECK(plain != of_pool && plain != pinned && plain.stream() == stream.get());
    void *block = of_pool.allocate(100, 4096);
    CHECK(reinterpret_cast<std::uintptr_t>(block) % 4096 == 0);
    CHECK(pool.stats().allocation[TARN_STAT_ALL].current == 1);
    of_pool.deallocate(block, 100, 4096);
    CHECK(pool.stats().allocation[TARN_STAT_ALL].current == 0);
}

static void spillers()
{
    tarn::pool pool(0);
    tarn::check(tarn_pool_limit_set(pool.get(), std::size_t{8} << 20));
    std::vector<void *> cache(2);
    for (void *&block : cache)
        tarn::check(tarn_pool_alloc(pool.get(), TARN_STREAM_LEGACY, std::size_t{4} << 20, &block));
    int calls = 0;
    std::size_t asked = 0;
    auto give = [&](const tarn_shortage &of) {
        calls++;
        asked = of.requested;
        if (cache.empty())
            throw std::runtime_error("counts as false");
        tarn::check(tarn_free(cache.back()));
        cache.pop_back();
        return true;
    };
    void *large = nullptr;
    {
        tarn::spiller spiller(give);
        static_assert(!std::is_copy_constructible_v<tarn::spiller>);
        tarn::check(tarn_pool_alloc(pool.get(), TARN_STREAM_LEGACY, std::size_t{7} << 20, &large));
        CHECK(cache.empty() && calls == 2 && asked == std::size_t{7} << 20);
        CHECK(tarn_pool_alloc(pool.get(), TARN_STREAM_LEGACY, std::size_t{7} << 20, &large) ==
              TARN_ERROR_OUT_OF_MEMORY);
        CHECK(calls == 3);
    }
    CHECK(tarn_pool_alloc(pool.get(), TARN_STREAM_LEGACY, std::size_t{7} << 20, &large) ==
          TARN_ERROR_OUT_OF_MEMORY);
    CHECK(calls == 3);
    tarn::check(tarn_free(large));
    bool refused = false;
    try {
        tarn::spiller nowhere(give, TARN_MAX_DEVICES);
    } catch (const tarn::error &error) {
        refused = error.status() == TARN_ERROR_INVALID_ARGUMENT;
    }
    CHECK(refused);
}

int main()
{
    moves_and_does_not_copy<tarn::leased_stream>();
    moves_and_does_not_copy<tarn::adopted_stream>();
    moves_and_does_not_copy<tarn::event>();
    moves_and_does_not_copy<tarn::block>();
    moves_and_does_not_copy<tarn::pool>();
    moves_and_does_not_copy<tarn::scope, false>(); /* the old one would have to end after the new
                                                      one has begun */
    moves_and_does_not_copy<tarn::joined_scope, false>();
    moves_and_does_not_copy<tarn::checkpoint>();
    moves_and_does_not_copy<tarn::range>();
    moves_and_does_not_copy<tarn::capture>();
    moves_and_does_not_copy<tarn::handle_lease>();
    errors_are_exceptions();
    {
        tarn::device_guard guard(1);
        int device = 0;
        tarn::check(tarn_device_get(&device));
        CHECK(device == 1);
    }
    streams_and_events();
    blocks_pools_and_scopes();
    ranges();
    captures();
    handles();
    spillers();
    memory_resources();
    CHECK(allocations() == 0);
    tarn::check(tarn_shutdown());
    std::puts("every class of tarn.hpp");
}
