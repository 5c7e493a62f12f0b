/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The slots behind tarn_stream values, and marks: points in a stream that can be asked about and
 * waited for. */
#ifndef TARN_DEVICE_STREAM_H
#define TARN_DEVICE_STREAM_H

#include "device/device.h"

#include <stdatomic.h>

enum stream_origin {
    STREAM_UNUSED,
    STREAM_IS_LEGACY,
    STREAM_IS_SHARED,
    STREAM_IS_LEASED,
    STREAM_IS_ADOPTED,
    STREAM_IS_THREADS
};

/* A slot of the table. A slot is never freed, so that the incarnation of a stale value can be
 * compared. Code that fills a slot for a new incarnation holds `lock`; nobody else knows that
 * incarnation yet. */
struct stream {
    /* Held to retire the stream, and by code that passes the native stream to the driver: so the
     * stream is not destroyed meanwhile. */
    mutex lock;
    atomic_uint incarnation; /* incremented when the stream is retired */
    unsigned slot;
    int device, priority;
    /* streams_lock to change; if the stream is retired meanwhile, a reader gets the old value or
     * NULL. */
    _Atomic(driver_stream) native;
    atomic_uint_fast64_t number; /* the driver's; 0 if it has none, or was not asked */
    enum stream_origin origin;   /* streams_lock */
    unsigned adoptions;          /* `entering`: how often it was adopted and not yet retired */
    /* Nobody promised to retire the stream, so it is passed to the driver only in calls that
     * name it. */
    atomic_bool found;
    /* For a vendor's per-thread default stream: the only thread in which `native` means this
     * stream. NULL: it means this stream in every thread. Not dereferenced. */
    _Atomic(const struct thread *) owner;
    atomic_bool abandoned; /* the driver goes on with a capture on it that no thread can end */
    atomic_bool captures;  /* record lock to change: a known capture began or was announced on it */
    /* captures_lock to change: the driver has ended that capture, which nobody has reported. */
    atomic_bool over;
    /* captures_lock to change: the number of its last known capture. */
    atomic_uint_fast64_t capture;
    /* captures_lock (capture.c): the known capture that began on it; NULL: none. */
    struct capture *known;
    /* Record lock to change: marks wait for the next call that passes the native stream. */
    atomic_bool owes;
    /* The slot's lock: the last mark that such a call recorded, for any incarnation. */
    struct mark *proof;
    bool leased;          /* device lock */
    atomic_bool returned; /* device lock to change: created by tarn, between two leases */
    atomic_uint leases;   /* device lock to change: returns in this incarnation */
    struct stream *next;  /* device lock: in returned or thread_ended */
    /* streams_lock: the end of the last retired incarnation; NULL when finished. */
    struct mark *last_work;
    _Atomic(void *) heap; /* the memory layer's: the default pool's heap of this stream */
    /* The memory layer's, heaps_lock: the first of this stream's heaps in all pools. */
    struct heap *heaps;
    /* The memory layer's, sets.lock: the first of those whose open batch may have something. */
    struct heap *unmarked;
    /* The memory layer's, scopes_lock: the newest of the open scopes of this stream. */
    struct scope *scopes;
    /* The memory layer's, pinned lock: the queue of pinned blocks that this stream uses. */
    void *pinned;
};

tarn_stream stream_value(const struct stream *stream);

/* The slot of a value; a constant means that of `device` and the calling thread.
 * TARN_ERROR_INVALID_STREAM. */
tarn_status stream_find(tarn_stream value, int device, struct stream **stream);
/* The start of a public call on a stream: stream_find() for the thread's current device, once the
 * device layer is ready. */
tarn_status stream_of_call(tarn_stream value, struct stream **stream);

/* The calling thread's current stream on a device. */
tarn_status stream_current(int device, struct stream **stream);

/* True if the stream is the per-thread default stream of another thread, which may have ended. The
 * driver has no name for the stream in this thread. Only code that updates records may use it. */
bool stream_is_foreign(const struct stream *stream);
/* The same as a status, TARN_ERROR_INVALID_STREAM with a text. `what` names the refused
 * operation. */
tarn_status stream_refuse_foreign(const struct stream *stream, const char *what);
/* The native stream that the calling thread passes to the driver. For a foreign stream this is the
 * legacy stream, which runs after all work that is queued on it now, and before all later work. */
driver_stream stream_native(const struct stream *stream);

/* Whether the stream may be destroyed and its pointer reused: tarn_stream_find() entered it, and no
 * caller has adopted it. */
static inline bool stream_is_found(const struct stream *stream)
{
    return atomic_load_explicit(&stream->found, memory_order_acquire);
}

/* Returns the next stream that certainly exists and that this thread may pass to the driver: legacy
 * streams, but no found and no foreign ones. Of one device, or of all with NULL. `*slot` is 0 at
 * first. NULL: no more. The stream may be retired as soon as the call returns, so code that passes
 * it to the driver holds its lock and compares `incarnation`. */
struct stream *stream_next(const struct device *device, unsigned *slot, unsigned *incarnation);

/* Registers what the memory layer does when a stream is retired, while its native stream still
 * exists. It may refuse. */
void stream_on_retire(tarn_status (*callback)(struct stream *stream));

/* Leaves the per-thread streams of an ending thread to later threads. Makes no driver call. */
void streams_of_thread_end(struct thread *thread);

/* If the driver goes on with a capture on a shared stream that no thread can end, retires and
 * destroys the stream, which ends the capture. `is` says whether it was such a stream. A call that
 * fails can be repeated. */
tarn_status stream_end_abandoned(struct stream *stream, tarn_stream value, bool *is);

/* Whether streams of a device were leased, and are between two leases. */
bool streams_returned(struct device *device);
/* Destroys the streams that tarn created. For tarn_shutdown(). */
void streams_destroy(void);
tarn_status stream_make_legacy(struct device *device);

/* A mark is a recorded driver event with a reference count; after the last release the event is
 * kept for reuse. The mark of a foreign stream is recorded on the legacy stream, which runs after
 * it, if no capture forbids that. A mark of a found stream is *owed*: it has no event, because that
 * stream must not be passed to the driver. Its work has ended when a later mark has ended that
 * stream_prove() records, in a call that passes the stream; or after a wait for the whole device.
 * All functions are thread-safe, and only mark_wait() and device_wait() wait. If the stream
 * captures, mark_record() and mark_of_stream() return TARN_ERROR_CAPTURE, without an effect on the
 * capture or the last error: try again after the capture. */
struct mark;

/* A mark of all work queued so far on the stream in its `incarnation`; if that was retired since,
 * of all its work. NULL, with TARN_OK, if that work has certainly finished. */
tarn_status mark_of_stream(struct stream *stream, unsigned incarnation, struct mark **mark);
tarn_status mark_record(struct stream *stream, struct mark **mark);
/* From now on this thread records no marks, or does again: meanwhile a record fails, without a text
 * and before any driver call, as TARN_ERROR_NOT_READY. */
void marks_bar(bool on);
tarn_status mark_query(struct mark *mark); /* TARN_OK, TARN_ERROR_NOT_READY, or what went wrong */
tarn_status mark_wait(struct mark *mark);
/* Makes later work of `stream` wait for a mark. An owed mark has no event that a stream could wait
 * for: then the calling thread waits itself. */
tarn_status stream_wait_mark(struct stream *stream, struct mark *mark);
/* Waits until one of the marks has ended or has failed, and returns its status, or until `until`
 * (base/thread/clock.h): then TARN_ERROR_NOT_READY. If the driver has no wait for several events,
 * or the wait has a bound, tarn queries them in turn, with growing pauses up to 1 ms; without a
 * bound it waits for the first mark after 10 s. mark_can_wait() must be true for each mark. `count`
 * is at most MARKS_MOST. */
#define MARKS_MOST 64
tarn_status marks_wait_any(struct mark *const *marks, size_t count, uint64_t until);
/* What marks_wait_any() calls between two queries. Only tests change it. */
extern void (*marks_pause)(uint64_t ns);
/* Records an event for the owed marks of a stream and incarnation. For calls that pass the stream,
 * which therefore exists. Failures are not reported. */
void stream_prove(struct stream *stream, unsigned incarnation);
/* Whether mark_wait() would wait for the whole device, by device_wait(): for an owed mark without a
 * proof. Code that has a choice waits for all other marks first. */
bool mark_is_of_device(struct mark *mark);
/* Whether mark_wait() may be called now: not for the whole device while a known capture is open
 * there. */
bool mark_can_wait(struct mark *mark);
/* Waits for all work of a device, which ends every earlier mark. The driver's wait would end
 * captures, so it comes last: streams that can be asked are waited for by events first, and after
 * that no capture may be known or show (captures_bar()). TARN_ERROR_CAPTURE with a text; `what`
 * names the refused operation. */
tarn_status device_wait(struct device *device, const char *what);
/* Adds a holder to a mark, or drops one. After the last drop the mark is kept for reuse. NULL may
 * be released. */
struct mark *mark_keep(struct mark *mark);
void mark_release(struct mark *mark);
/* The stream and number of a mark. Of one stream's marks the one with the lower number ends first,
 * except for a mark that was recorded again. */
struct mark_place {
    struct stream *stream;
    unsigned incarnation;
    uint64_t number; /* from 1 */
};
struct mark_place mark_place(const struct mark *mark);
/* True if the mark was recorded in a capture. Only marks of callers' events can be. mark_query()
 * and mark_wait() refuse such a mark. */
bool mark_is_captured(const struct mark *mark);
void marks_destroy(struct device *device);

/* Whether a value from a caller is an event that was created and not destroyed. */
tarn_status event_check(const tarn_event *event);
/* The mark that `event` has recorded, retained for the caller; NULL if none. */
struct mark *event_mark(tarn_event *event);

#endif
