/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The slots behind tarn_stream values, and marks: points in a stream that can be asked about and waited for. */
#ifndef TARN_DEVICE_STREAM_H
#define TARN_DEVICE_STREAM_H

#include "device/device.h"

#include <stdatomic.h>

enum stream_origin {
    STREAM_UNUSED,
    STREAM_IS_LEGACY,
    STREAM_IS_POOLED,
    STREAM_IS_LEASED,
    STREAM_IS_ADOPTED,
    STREAM_IS_THREADS
};

/* A slot. It is never freed, so that a stale value finds something to compare its incarnation with. */
struct stream {
    mutex lock;              /* held while the stream is retired, and while something is recorded that it may not be */
    atomic_uint incarnation; /* goes up when the stream is retired */
    unsigned slot;
    int device, priority;
    _Atomic(driver_stream)
        native; /* table lock to change; who looks at a stream that may be retired meanwhile gets what it was, or NULL */
    atomic_uint_fast64_t number; /* the driver's; 0 where it has none, or was not asked */
    enum stream_origin origin;   /* table lock */
    unsigned adoptions;          /* `entering`: how often it was adopted and not yet retired */
    atomic_bool
        found; /* nobody has promised to say when it goes: the driver hears of it from calls that name it, and from no other */
    /* The thread in which alone `native` means this stream: of a vendor's per-thread default stream. NULL: it means this stream in
     * every thread. Not dereferenced. */
    _Atomic(const struct thread *) owner;
    atomic_bool captures;   /* record lock to change: a known capture began or was announced on it */
    uint64_t capture;       /* record lock: the number of its last known capture */
    atomic_bool owes;       /* record lock to change: marks wait for the next call that passes the native stream */
    struct mark *proof;     /* of the slot's lock: the last that such a call recorded for them, of any incarnation */
    bool leased;            /* device lock */
    atomic_bool returned;   /* device lock to change: tarn's own, between two leases */
    atomic_uint leases;     /* device lock to change: returns, ever */
    struct stream *next;    /* device lock: in returned or thread_ended */
    struct mark *last_work; /* table lock: of the incarnation that was retired last; NULL when finished */
    _Atomic(void *) heap;   /* the memory layer's: the default pool's heap of this stream */
    void *pinned;           /* the memory layer's, pinned lock: the queue of pinned blocks that this stream uses */
};

tarn_stream stream_value(const struct stream *stream);

/* The slot of a value; a constant is that of `device` and the calling thread. TARN_ERROR_INVALID_STREAM. */
tarn_status stream_find(tarn_stream value, int device, struct stream **stream);

/* The calling thread's current stream on a device. */
tarn_status stream_current(int device, struct stream **stream);

/* Whether the stream is another thread's per-thread default stream, or was one's that has ended: the driver has no name for it
 * here. What only keeps books is right with it all the same. */
bool stream_is_foreign(const struct stream *stream);
/* The same as a status, TARN_ERROR_INVALID_STREAM with a text. `what` is what is refused. */
tarn_status stream_refuse_foreign(const struct stream *stream, const char *what);
/* What the calling thread calls the stream to the driver: of a foreign one the legacy stream, which comes after all that is queued
 * on it, and before all that will be. */
driver_stream stream_native(const struct stream *stream);

/* Whether the stream may be gone, its pointer another stream's: tarn_stream_find() entered it, and nobody has adopted it. */
static inline bool stream_is_found(const struct stream *stream)
{
    return atomic_load_explicit(&stream->found, memory_order_acquire);
}

/* What the memory layer does when a stream is retired, while its native stream still exists. It may refuse. */
void stream_on_retire(tarn_status (*callback)(struct stream *stream));

/* Leaves the per-thread streams of an ending thread to later threads. No driver call. */
void streams_of_thread_end(struct thread *thread);

/* Destroys the streams that tarn made. For tarn_shutdown(). */
void streams_destroy(void);
tarn_status stream_make_legacy(struct device *device);

/* A mark is a recorded driver event with a count of its holders; when the last lets go the event is kept for reuse. One of a foreign
 * stream is recorded on the legacy stream instead, which is ordered after it, where no capture forbids the use of that.
 * A mark of a found stream, which the driver must not hear of, is *owed*: it has no event. What it stands for has ended when a later mark
 * has that stream_prove() records, in a call that passes the stream; or after a wait for all of the device.
 * All are thread-safe; none waits but mark_wait() and device_wait(). Where the stream captures, mark_record() and mark_of_stream() give
 * TARN_ERROR_CAPTURE, have not touched the capture, and leave the last error as it was: try again when it is over. */
struct mark;

/* A mark of all work queued so far on the stream when it was of `incarnation`: if that one has been retired since, of all it ever did.
 * NULL, with TARN_OK, when that has finished for certain. */
tarn_status mark_of_stream(struct stream *stream, unsigned incarnation, struct mark **mark);
tarn_status mark_record(struct stream *stream, struct mark **mark);
tarn_status mark_query(struct mark *mark); /* TARN_OK, TARN_ERROR_NOT_READY, or what went wrong */
tarn_status mark_wait(struct mark *mark);
tarn_status stream_wait_mark(struct stream *stream, struct mark *mark); /* of an owed one the calling thread waits */
/* Records what the stream of an incarnation owes. For calls whose caller says that the stream exists. Fails without a word. */
void stream_prove(struct stream *stream, unsigned incarnation);
/* Whether mark_wait() can be asked now: not for an owed one without a proof while a known capture is open on its device. */
bool mark_can_wait(struct mark *mark);
/* Waits for all of a device's work, which ends every mark that was made before. The caller has refused known captures; or they are
 * refused, and none begins meanwhile, since the wait would end it. */
tarn_status device_wait(struct device *device);
tarn_status device_settle(struct device *device, const char *what);
struct mark *mark_keep(struct mark *mark);
void mark_release(struct mark *mark); /* NULL is fine */
/* Where it was recorded: of one stream's marks the one with the lower number ends first, except for one that had to be recorded anew. */
struct mark_place {
    struct stream *stream;
    unsigned incarnation;
    uint64_t number; /* from 1 */
};
struct mark_place mark_place(const struct mark *mark);
/* Whether it was recorded in a capture: only a caller's event can be. It is never asked about; both calls above refuse. */
bool mark_is_captured(const struct mark *mark);
void marks_destroy(struct device *device);

/* Whether it is an event that was created and not destroyed, whatever the caller gave. */
tarn_status event_check(const tarn_event *event);
/* What `event` has recorded, kept for the caller; NULL when nothing. */
struct mark *event_mark(tarn_event *event);

#endif
