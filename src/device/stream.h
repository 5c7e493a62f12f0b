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

/* A slot. It is never freed, so that a stale value finds something to compare its generation with. */
struct stream {
    mutex lock;             /* held while the stream is retired, and while something is recorded that it may not be */
    atomic_uint generation; /* goes up when the stream is retired */
    unsigned slot;
    int device, priority;
    _Atomic(driver_stream)
        native; /* table lock to change; who looks at a stream that may be retired meanwhile gets what it was, or NULL */
    enum stream_origin origin; /* table lock */
    unsigned adoptions;        /* table lock: how often it was adopted and not yet retired */
    atomic_bool captures;      /* record lock to change: a known capture began or was announced on it */
    uint64_t capture;          /* record lock: the number of its last known capture */
    bool leased;               /* device lock */
    struct stream *next;       /* device lock: in returned or thread_ended */
    struct mark *last_work;    /* table lock: of the incarnation that was retired last; NULL when finished */
    _Atomic(void *) heap;      /* the memory layer's: the default pool's heap of this stream */
    void *pinned;              /* the memory layer's, pinned lock: the queue of pinned blocks that this stream uses */
};

tarn_stream stream_value(const struct stream *stream);

/* The slot of a value; a constant is that of `device` and the calling thread. TARN_ERROR_INVALID_STREAM. */
tarn_status stream_find(tarn_stream value, int device, struct stream **stream);

/* The calling thread's current stream on a device. */
tarn_status stream_current(int device, struct stream **stream);

/* What the memory layer does when a stream is retired, while its native stream still exists. It may refuse. */
void stream_on_retire(tarn_status (*callback)(struct stream *stream));

/* Gives the per-thread streams of an ending thread to later threads. No driver call. */
void streams_of_thread_end(struct thread *thread);

/* Destroys the streams that tarn made. For tarn_shutdown(). */
void streams_destroy(void);
tarn_status stream_make_legacy(struct device *device);

/* A mark is a recorded driver event with a count of its holders; when the last lets go the event is kept for reuse.
 * All are thread-safe; none waits but mark_wait(). Where the stream captures, mark_record() and mark_of_stream() give
 * TARN_ERROR_CAPTURE, have not touched the capture, and leave the last error as it was: try again when it is over. */
struct mark;

/* A mark of all work queued so far on the stream when it was of `generation`: if that one has been retired since, of all it ever did.
 * NULL, with TARN_OK, when that has finished for certain. */
tarn_status mark_of_stream(struct stream *stream, unsigned generation, struct mark **mark);
tarn_status mark_record(struct stream *stream, struct mark **mark);
tarn_status mark_query(struct mark *mark); /* TARN_OK, TARN_ERROR_NOT_READY, or what went wrong */
tarn_status mark_wait(struct mark *mark);
tarn_status stream_wait_mark(struct stream *stream, struct mark *mark);
struct mark *mark_keep(struct mark *mark);
void mark_release(struct mark *mark); /* NULL is fine */
/* Whether it was recorded in a capture: only a caller's event can be. It is never asked about; both calls above refuse. */
bool mark_is_captured(const struct mark *mark);
void marks_destroy(struct device *device);

/* Whether it is an event that was created and not destroyed, whatever the caller gave. */
tarn_status event_check(const tarn_event *event);
/* What `event` has recorded, kept for the caller; NULL when nothing. */
struct mark *event_mark(tarn_event *event);

#endif
