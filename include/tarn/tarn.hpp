/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* tarn for C++17: owning classes, memory resources, and exceptions instead of statuses.
 * Header-only. The classes can be mixed with the C functions: get() returns the C value.
 *
 * Owners are movable and not copyable. An empty owner (default-constructed, moved from, closed or
 * released) owns nothing; a member function that needs the value then throws. A destructor and a
 * move assignment end what the owner had, and cannot report a failure: what they could not end
 * stays with tarn until tarn_shutdown(), and tarn_last_error() of the thread says why. To see a
 * failure, call close() first: it throws, and the owner keeps owning. Destructors may run after
 * tarn_shutdown().
 *
 * Functions throw tarn::failure, or tarn::out_of_memory, which is also a std::bad_alloc. Both are a
 * tarn::error, with the status and the text of tarn_last_error(), and a std::exception. For threads
 * and captures the rules of the named C function hold, also in destructors: what only one thread
 * may end must be destroyed in that thread. Exceptions and RTTI are required. */
#ifndef TARN_TARN_HPP
#define TARN_TARN_HPP

#if !defined(__cplusplus) || __cplusplus < 201703L
#error "tarn/tarn.hpp needs C++17"
#endif

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory_resource>
#include <new>
#include <stdexcept>
#include <string>
#include <tarn/tarn.h>
#include <utility>

namespace tarn
{

/* A status other than TARN_OK. what() is the name of the status and the text of tarn_last_error(),
 * such as "TARN_ERROR_INVALID_DEVICE: there is no device 7: ...". It is the base of both
 * exceptions, and no std::exception itself: tarn::out_of_memory would then be one twice, so that no
 * handler of std::exception caught it. */
class error
{
  public:
    error(const error &) = default;
    error &operator=(const error &) = default;
    virtual ~error() = default;
    virtual const char *what() const noexcept = 0;
    tarn_status status() const noexcept
    {
        return status_;
    }

  protected:
    explicit error(tarn_status status) noexcept : status_(status) {}
    static std::string text_of(tarn_status status)
    {
        std::string text = tarn_status_name(status);
        const char *detail = tarn_last_error();
        return *detail ? text + ": " + detail : text;
    }

  private:
    tarn_status status_;
};

/* Thrown for any status except those of tarn::out_of_memory. */
class failure : public std::runtime_error, public error
{
  public:
    explicit failure(tarn_status status) : std::runtime_error(text_of(status)), error(status) {}
    const char *what() const noexcept override
    {
        return std::runtime_error::what();
    }
};

/* Thrown for TARN_ERROR_OUT_OF_MEMORY and TARN_ERROR_OUT_OF_HOST_MEMORY. */
class out_of_memory : public std::bad_alloc, public error
{
  public:
    explicit out_of_memory(tarn_status status) : error(status), text_(text_of(status)) {}
    /* With a detail in place of tarn_last_error(). */
    out_of_memory(tarn_status status, const char *detail)
        : error(status), text_(std::string(tarn_status_name(status)) + ": " + detail)
    {
    }
    const char *what() const noexcept override
    {
        return text_.what();
    }

  private:
    std::runtime_error text_; /* which is copied without an exception */
};

/* Throws if `status` is not TARN_OK. */
inline void check(tarn_status status)
{
    if (status == TARN_ERROR_OUT_OF_MEMORY || status == TARN_ERROR_OUT_OF_HOST_MEMORY)
        throw out_of_memory(status);
    if (status != TARN_OK)
        throw failure(status);
}

namespace detail
{

/* Owns a value that one C function ends. `Traits` has `type`, `nothing()` and `end(type &)`. */
template <class Traits> class owner
{
  public:
    using type = typename Traits::type;

    owner() noexcept = default;
    explicit owner(type value) noexcept : value_(value) {}
    owner(owner &&other) noexcept : value_(other.release()) {}
    owner &operator=(owner &&other) noexcept
    {
        if (this != &other) {
            abandon();
            value_ = other.release();
        }
        return *this;
    }
    owner(const owner &) = delete;
    owner &operator=(const owner &) = delete;
    ~owner()
    {
        abandon();
    }

    /* The value of the C API. */
    const type &get() const noexcept
    {
        return value_;
    }
    explicit operator bool() const noexcept
    {
        return !Traits::empty(value_);
    }

    /* Releases ownership: the caller must end the value. */
    type release() noexcept
    {
        return std::exchange(value_, Traits::nothing());
    }

    /* Ends the value now. If that fails, it throws and the value stays owned. */
    void close()
    {
        if (!Traits::empty(value_))
            check(Traits::end(value_));
        value_ = Traits::nothing();
    }

  protected:
    type value_ = Traits::nothing();

  private:
    void abandon() noexcept
    {
        if (!Traits::empty(value_))
            (void)Traits::end(value_);
        value_ = Traits::nothing();
    }
};

template <class Type, tarn_status (*End)(Type)> struct ended_by {
    using type = Type;
    static Type nothing() noexcept
    {
        return Type{};
    }
    static bool empty(Type value) noexcept
    {
        return value == Type{};
    }
    static tarn_status end(Type &value) noexcept
    {
        return End(value);
    }
};

/* The default streams have values of their own, so 0 cannot mean "none". */
template <tarn_status (*End)(tarn_stream)> struct stream_ended_by {
    using type = tarn_stream;
    static tarn_stream nothing() noexcept
    {
        return ~tarn_stream{0};
    }
    static bool empty(tarn_stream value) noexcept
    {
        return value == nothing();
    }
    static tarn_status end(tarn_stream &value) noexcept
    {
        return End(value);
    }
};

struct lease_traits {
    using type = tarn_lease;
    static tarn_lease nothing() noexcept
    {
        return tarn_lease{};
    }
    static bool empty(const tarn_lease &value) noexcept
    {
        return !value.owner;
    }
    static tarn_status end(tarn_lease &value) noexcept
    {
        return tarn_handle_return(&value);
    }
};

/* Wraps a guard of the C API. The destructor restores, so it must run in the thread that made the
 * guard. restore() does it earlier and throws on failure; the destructor then does nothing. Not
 * movable. */
class guard
{
  public:
    guard(const guard &) = delete;
    guard &operator=(const guard &) = delete;
    ~guard()
    {
        (void)tarn_guard_restore(&guard_);
    }
    void restore()
    {
        check(tarn_guard_restore(&guard_));
    }

  protected:
    guard() = default;
    tarn_guard guard_{};
};

} // namespace detail

/* Devices and streams -------------------------------------------------------------------------- */

/* Makes a device current until the guard is destroyed (tarn_device_guard_set()). */
class device_guard : public detail::guard
{
  public:
    explicit device_guard(int device)
    {
        check(tarn_device_guard_set(&guard_, device));
    }
};

/* Makes a stream and its device current until the guard is destroyed (tarn_stream_guard_set()). */
class stream_guard : public detail::guard
{
  public:
    explicit stream_guard(tarn_stream stream)
    {
        check(tarn_stream_guard_set(&guard_, stream));
    }
};

/* Operations on any stream, whoever owns it. */
inline void *native_of(tarn_stream stream)
{
    void *native = nullptr;
    check(tarn_stream_native_get(stream, &native));
    return native;
}
inline void synchronize(tarn_stream stream)
{
    check(tarn_stream_synchronize(stream));
}
/* Whether all work that was queued so far has finished. */
inline bool is_idle(tarn_stream stream)
{
    tarn_status status = tarn_stream_query(stream);
    if (status != TARN_ERROR_NOT_READY)
        check(status);
    return status == TARN_OK;
}

/* A leased stream, which nobody else gets until this object ends (tarn_stream_lease(),
 * tarn_stream_return()). Its end does not wait for the stream's work. */
class leased_stream : public detail::owner<detail::stream_ended_by<tarn_stream_return>>
{
  public:
    leased_stream() noexcept = default;
    explicit leased_stream(int device, int priority = 0)
    {
        check(tarn_stream_lease(device, priority, &value_));
    }
    operator tarn_stream() const noexcept
    {
        return get();
    }
};

/* A stream that the program created, registered until this object ends (tarn_stream_adopt(),
 * tarn_stream_retire()). End this object before the stream is destroyed. */
class adopted_stream : public detail::owner<detail::stream_ended_by<tarn_stream_retire>>
{
  public:
    adopted_stream() noexcept = default;
    adopted_stream(int device, void *native)
    {
        check(tarn_stream_adopt(device, native, &value_));
    }
    operator tarn_stream() const noexcept
    {
        return get();
    }
};

/* A point in a stream (tarn_event_create()). */
class event : public detail::owner<detail::ended_by<tarn_event *, tarn_event_destroy>>
{
  public:
    event() noexcept = default;
    explicit event(int device)
    {
        check(tarn_event_create(device, &value_));
    }
    void record(tarn_stream stream)
    {
        check(tarn_event_record(get(), stream));
    }
    void synchronize() const
    {
        check(tarn_event_synchronize(get()));
    }
    /* Makes work queued on `stream` from now on wait for the recorded work. */
    void block(tarn_stream stream) const
    {
        check(tarn_stream_wait(stream, get()));
    }
    bool is_done() const
    {
        tarn_status status = tarn_event_query(get());
        if (status != TARN_ERROR_NOT_READY)
            check(status);
        return status == TARN_OK;
    }
};

/* Memory --------------------------------------------------------------------------------------- */

/* A block of device memory for work on a stream (tarn_alloc_on()). It is freed in that stream's
 * order. It may outlive the pool object that it came from. A block of 0 bytes is empty. */
class block : public detail::owner<detail::ended_by<void *, tarn_free>>
{
  public:
    block() noexcept = default;
    block(tarn_stream stream, std::size_t size)
    {
        check(tarn_alloc_on(stream, size, &value_));
    }
    block(const tarn_alloc_options &options, std::size_t size)
    {
        check(tarn_alloc(&options, size, &value_));
    }

    /* Declares that work on another stream uses the block: its memory is not reused before that
     * work has finished. */
    void record(tarn_stream stream) const
    {
        check(tarn_record_stream(get(), stream));
    }
    std::size_t usable_size() const
    {
        std::size_t size = 0;
        check(tarn_usable_size_get(get(), &size));
        return size;
    }
};

/* A private pool; this object holds one reference (tarn_pool_create(), tarn_pool_release()). */
class pool : public detail::owner<detail::ended_by<tarn_pool *, tarn_pool_release>>
{
  public:
    pool() noexcept = default;
    explicit pool(int device)
    {
        tarn_pool_options options{};
        options.size = sizeof options;
        options.device = device;
        check(tarn_pool_create(&options, &value_));
    }
    explicit pool(const tarn_pool_options &options)
    {
        check(tarn_pool_create(&options, &value_));
    }

    /* Returns another owner of the same pool, with a reference of its own. */
    pool share() const
    {
        check(tarn_pool_retain(get()));
        pool other;
        other.value_ = get();
        return other;
    }

    /* Allocates a block from this pool, whatever scopes are open. */
    block allocate(tarn_stream stream, std::size_t size) const
    {
        void *pointer = nullptr;
        check(tarn_pool_alloc(get(), stream, size, &pointer));
        return own(pointer);
    }
    void trim(std::size_t keep = 0) const
    {
        check(tarn_pool_trim(get(), keep));
    }
    void limit(std::size_t bytes) const
    {
        check(tarn_pool_limit_set(get(), bytes));
    }
    void suspend(bool keep) const
    {
        check(tarn_pool_suspend(get(), keep));
    }
    void resume() const
    {
        check(tarn_pool_resume(get()));
    }
    tarn_stats stats() const
    {
        tarn_stats stats{};
        stats.size = sizeof stats;
        check(tarn_pool_stats_get(get(), &stats));
        return stats;
    }

  private:
    struct owned_block : block {
        explicit owned_block(void *pointer) noexcept
        {
            value_ = pointer;
        }
    };
    static block own(void *pointer) noexcept
    {
        return owned_block(pointer);
    }
};

/* Returns the default pool of a device, which nobody owns (tarn_pool_default()). */
inline tarn_pool *default_pool(int device)
{
    tarn_pool *found = nullptr;
    check(tarn_pool_default(device, &found));
    return found;
}

/* Addresses that get and lose memory page by page (tarn_range_create()); `bytes` of them. */
class range : public detail::owner<detail::ended_by<tarn_range *, tarn_range_destroy>>
{
  public:
    range() noexcept = default;
    explicit range(std::size_t bytes)
    {
        check(tarn_range_create(nullptr, bytes, &value_));
    }
    range(tarn_pool *pool, std::size_t bytes, std::size_t page = 0)
    {
        tarn_range_options options{};
        options.size = sizeof options;
        options.pool = pool;
        options.page = page;
        check(tarn_range_create(&options, bytes, &value_));
    }

    /* Gives pages memory for work on `stream`, and takes it away after that work. */
    void commit(std::size_t offset, std::size_t bytes, tarn_stream stream) const
    {
        check(tarn_range_commit(get(), offset, bytes, stream));
    }
    void decommit(std::size_t offset, std::size_t bytes, tarn_stream stream) const
    {
        check(tarn_range_decommit(get(), offset, bytes, stream));
    }
    /* Keeps pages committed: until the vendor's `graph` ends, or without one until unhold(). */
    void hold(std::size_t offset, std::size_t bytes, void *graph = nullptr) const
    {
        check(tarn_range_hold(get(), offset, bytes, graph));
    }
    void unhold(std::size_t offset, std::size_t bytes) const
    {
        check(tarn_range_unhold(get(), offset, bytes));
    }
    tarn_range_info info() const
    {
        tarn_range_info info{};
        info.size = sizeof info;
        check(tarn_range_info_get(get(), &info));
        return info;
    }
};

/* While the scope is open, the allocations that it covers come from its pool (tarn_scope_begin()).
 * A thread's scope ends in the thread that began it, the newest first. So nothing is assigned to a
 * scope: the new one would have begun before the old one ended. */
class scope : public detail::owner<detail::ended_by<tarn_scope, tarn_scope_end>>
{
  public:
    scope() noexcept = default;
    scope(scope &&) noexcept = default;
    scope &operator=(scope &&) = delete;
    /* Covers this thread, and those that join. */
    explicit scope(tarn_pool *pool)
    {
        check(tarn_scope_begin(pool, TARN_SCOPE_THREAD, TARN_STREAM_LEGACY, &value_));
    }
    /* Covers one stream, by any thread. */
    scope(tarn_pool *pool, tarn_stream stream)
    {
        check(tarn_scope_begin(pool, TARN_SCOPE_STREAM, stream, &value_));
    }
    /* Of any kind; the stream matters for TARN_SCOPE_STREAM only. */
    scope(tarn_pool *pool, tarn_scope_kind kind, tarn_stream stream = TARN_STREAM_LEGACY)
    {
        check(tarn_scope_begin(pool, kind, stream, &value_));
    }
};

/* Puts a worker thread inside a scope until this object ends, in the same thread
 * (tarn_scope_join(), tarn_scope_end()). Nothing is assigned to it, as to a scope. */
class joined_scope : public detail::owner<detail::ended_by<tarn_scope, tarn_scope_end>>
{
  public:
    joined_scope() noexcept = default;
    joined_scope(joined_scope &&) noexcept = default;
    joined_scope &operator=(joined_scope &&) = delete;
    explicit joined_scope(tarn_scope scope)
    {
        check(tarn_scope_join(scope));
        value_ = scope;
    }
};

/* Records which blocks of a pool are live (tarn_pool_checkpoint()). */
class checkpoint
    : public detail::owner<detail::ended_by<tarn_checkpoint *, tarn_checkpoint_destroy>>
{
  public:
    checkpoint() noexcept = default;
    explicit checkpoint(tarn_pool *pool)
    {
        check(tarn_pool_checkpoint(pool, &value_));
    }
};

namespace detail
{

/* The value by which other threads know a stream, and this one when another stream is current. */
inline tarn_stream value_of(tarn_stream stream)
{
    stream_guard current(stream);
    int device = 0;
    check(tarn_device_get(&device));
    check(tarn_stream_get(device, &stream));
    return stream;
}

} // namespace detail

/* A capture of a stream into a pool (tarn_pool_capture_begin()). end() returns the vendor's graph,
 * which belongs to the caller. If end() throws, this object still owns the capture where it goes
 * on, and is empty where it is over. Without end(), the destructor and close() discard the capture
 * (tarn_capture_abort()). */
class capture : public detail::owner<detail::stream_ended_by<tarn_capture_abort>>
{
  public:
    capture() noexcept = default;
    /* If `pool` is NULL, the capture gets a pool of its own. */
    explicit capture(tarn_stream stream, tarn_pool *pool = nullptr,
                     tarn_capture_mode mode = TARN_CAPTURE_GLOBAL)
    {
        const tarn_stream captured = detail::value_of(stream);
        check(tarn_pool_capture_begin(pool, captured, mode));
        value_ = captured;
    }
    void *end()
    {
        void *graph = nullptr;
        tarn_stream stream = get();
        tarn_status status = tarn_capture_end(stream, &graph);
        tarn_capture_state state = TARN_CAPTURE_NONE;
        if (status == TARN_OK ||
            (tarn_capture_state_get(stream, &state, nullptr, nullptr) == TARN_OK &&
             state == TARN_CAPTURE_NONE))
            (void)release();
        check(status);
        return graph;
    }
};

/* Handles -------------------------------------------------------------------------------------- */

/* Returns the thread's handle of a library, bound to its current stream or to `stream`. tarn keeps
 * owning it (tarn_handle_get()). `Handle` is the vendor's type, a pointer. */
template <class Handle>
Handle handle(tarn_library library, tarn_stream stream = TARN_STREAM_CURRENT)
{
    void *found = nullptr;
    check(tarn_handle_get(library, stream, &found));
    return static_cast<Handle>(found);
}

/* A handle that belongs to no thread (tarn_handle_lease()). */
class handle_lease : public detail::owner<detail::lease_traits>
{
  public:
    handle_lease() noexcept = default;
    handle_lease(tarn_library library, tarn_stream stream)
    {
        check(tarn_handle_lease(library, stream, &value_));
    }
    /* Moves the lease to another stream of the device; handle() may return another handle then. */
    void bind(tarn_stream stream)
    {
        check(tarn_handle_lease_bind(&value_, stream));
    }
    template <class Handle> Handle handle() const noexcept
    {
        return static_cast<Handle>(get().handle);
    }
};

/* Sets a mode of this thread's handles of a library (tarn_handle_mode_set()). The destructor sets
 * the previous value again, so it must run in the same thread. Not movable. */
class handle_mode_guard
{
  public:
    handle_mode_guard(tarn_library library, tarn_handle_mode mode, int value)
        : library_(library), mode_(mode)
    {
        check(tarn_handle_mode_set(library, mode, TARN_HANDLE_MODE_FOR_THREAD, value, &previous_));
    }
    handle_mode_guard(const handle_mode_guard &) = delete;
    handle_mode_guard &operator=(const handle_mode_guard &) = delete;
    ~handle_mode_guard()
    {
        (void)tarn_handle_mode_set(library_, mode_, TARN_HANDLE_MODE_FOR_THREAD, previous_,
                                   nullptr);
    }

  private:
    tarn_library library_;
    tarn_handle_mode mode_;
    int previous_ = -1;
};

/* Calls a function before a request fails for lack of memory, in the thread that asked (observe.h,
 * `out_of_memory`). The function frees what it can and returns whether it freed anything; it is
 * called again while that does not suffice. An exception that it throws counts as false. The
 * destructor waits for calls in other threads. Neither copyable nor movable. */
class spiller
{
  public:
    using function = std::function<bool(const tarn_shortage &)>;

    explicit spiller(function spill, int device = TARN_ALL_DEVICES) : spill_(std::move(spill))
    {
        tarn_observer_options options{};
        options.size = sizeof options;
        options.device = device;
        options.user = this;
        options.out_of_memory = call;
        check(tarn_observer_add(&options, &observer_));
    }
    spiller(const spiller &) = delete;
    spiller &operator=(const spiller &) = delete;
    ~spiller()
    {
        (void)tarn_observer_remove(observer_);
    }

  private:
    static bool call(const tarn_shortage *shortage, void *user)
    {
        try {
            return static_cast<spiller *>(user)->spill_(*shortage);
        } catch (...) {
            return false;
        }
    }

    function spill_;
    tarn_observer observer_ = 0;
};

/* Memory resources ----------------------------------------------------------------------------- */

/* Pinned host memory, for containers whose contents devices copy directly (tarn_pinned_alloc()).
 * Blocks are aligned to 256 bytes: a greater alignment throws std::bad_alloc. A block that work on
 * a stream uses must be recorded by tarn_record_stream(). */
class pinned_resource : public std::pmr::memory_resource
{
    void *do_allocate(std::size_t bytes, std::size_t alignment) override
    {
        void *pointer = nullptr;
        if (alignment > 256)
            throw std::bad_alloc();
        check(tarn_pinned_alloc(TARN_STREAM_CURRENT, bytes ? bytes : 1, &pointer));
        return pointer;
    }
    void do_deallocate(void *pointer, std::size_t, std::size_t) override
    {
        (void)tarn_free(pointer);
    }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override
    {
        return dynamic_cast<const pinned_resource *>(&other) != nullptr;
    }
};

/* Device memory for work on one stream, from one pool or from where tarn_alloc_on() takes it. The
 * stream and the pool must stay valid while the resource allocates; it holds no reference. An
 * alignment above TARN_MAX_ALIGNMENT throws tarn::error. The processor cannot access the memory,
 * except on the host device. So the resource is for code that only passes pointers on, and not for
 * containers, which write to their memory. */
class device_resource : public std::pmr::memory_resource
{
  public:
    explicit device_resource(tarn_stream stream, tarn_pool *pool = nullptr) noexcept
        : stream_(stream), pool_(pool)
    {
    }
    tarn_stream stream() const noexcept
    {
        return stream_;
    }

  private:
    void *do_allocate(std::size_t bytes, std::size_t alignment) override
    {
        tarn_alloc_options options{};
        void *pointer = nullptr;
        options.size = sizeof options;
        options.device = TARN_CURRENT_DEVICE;
        options.stream = stream_;
        options.alignment = alignment;
        options.pool = pool_;
        check(tarn_alloc(&options, bytes ? bytes : 1, &pointer));
        return pointer;
    }
    void do_deallocate(void *pointer, std::size_t, std::size_t) override
    {
        (void)tarn_free(pointer);
    }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override
    {
        auto same = dynamic_cast<const device_resource *>(&other);
        return same && same->stream_ == stream_ && same->pool_ == pool_;
    }

    tarn_stream stream_;
    tarn_pool *pool_;
};

} // namespace tarn

#endif
