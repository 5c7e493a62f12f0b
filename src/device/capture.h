/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The captures that tarn knows, and peers. */
#ifndef TARN_DEVICE_CAPTURE_H
#define TARN_DEVICE_CAPTURE_H

#include "device/stream.h"

/* How many known captures are open: on a device, and on all of them, whose streams any device's may join. One load. */
unsigned captures_open(const struct device *device);
unsigned captures_open_anywhere(void);
/* How many on a device the calling thread began or announced. Takes a lock. */
unsigned captures_of_thread(const struct device *device);

/* Grows whenever a known capture begins or ends anywhere; never 0. What was bound to a stream before is bound again. A stream that joins
 * a capture moves nothing: while one is open, whoever depends on that asks the driver. */
uint64_t capture_epoch(void);

/* Whether the driver says that the stream captures now. Asks the driver; a status of 900 to 909 counts as yes. */
bool stream_captures(struct stream *stream);

/* Whether a known capture began on the stream, or was announced: then nothing of tarn is recorded there, whatever the
 * driver says yet. Streams that join it are not known. */
static inline bool stream_is_known(const struct stream *stream)
{
    return atomic_load_explicit(&stream->captures, memory_order_acquire);
}

/* Whether the legacy stream may not stand for a foreign one now, whatever the driver says of it: a capture was announced, and may
 * begin on a blocking stream between the question and the use. */
static inline bool foreign_is_barred(const struct stream *stream)
{
    return stream_is_foreign(stream) &&
           atomic_load_explicit(&device_at(stream->device)->announced, memory_order_acquire) > 0;
}

/* What the driver says of the stream; a query that itself fails because of a capture (900 to 909) is INVALIDATED. So is
 * a foreign stream while any blocking stream of its device captures: it may be that one. Never touches the last error but where the driver fails otherwise. */
tarn_status stream_ask_capture(const struct stream *stream, struct driver_capture *capture);

/* The same as a status: TARN_ERROR_CAPTURE, with a text, where it does; another where the driver could not say. `what` is
 * what is refused. */
tarn_status stream_refuse_capture(struct stream *stream, const char *what);
/* TARN_ERROR_CAPTURE where a known capture is open on the device; on any device. */
tarn_status captures_refuse(const struct device *device, const char *what);
/* The same, and from then on no known capture begins on the device until captures_unbar(): for code that waits for all of it. */
tarn_status captures_bar(struct device *device, const char *what);
void captures_unbar(const struct device *device);
/* The same on all devices, or on none. */
tarn_status captures_bar_all(const char *what);
void captures_unbar_all(void);
tarn_status captures_refuse_all(const char *what);

/* What the memory layer does when a known capture has ended, with its graph, or with NULL and without one. Where it fails, the
 * graph is destroyed. */
void captures_on_end(tarn_status (*callback)(struct stream *stream, driver_graph graph));

/* What the memory layer does with the caller's graph of an announced capture that is about to end. Where it fails, the capture goes on. */
void captures_on_keep(tarn_status (*callback)(struct stream *stream, driver_graph graph));

/* What is done, with no lock held, when a capture that tarn began is over and no graph came of it: it was aborted or invalidated, or its
 * graph was given up. `id` is what the driver called it. Set before a handle is made. */
void captures_on_drop(void (*callback)(uint64_t id));

/* Once, before any of this is used. */
void captures_init(void);
/* A thread ends: what it began stays open. */
void captures_of_thread_end(struct thread *thread);

/* Waits, at most `ns`, until no known capture is open on the device, or, with `count` not NULL, until that is not what was seen; who
 * changes it calls captures_wake() then. False when the time is over. */
bool captures_wait(struct device *device, uint64_t ns, const atomic_uint_fast64_t *count, uint64_t seen);
void captures_wake(void);

/* Who may reach a device's memory: `devices` receives the device itself first, then its peers. Gives how many. */
int peers_of(const struct device *device, int devices[TARN_MAX_DEVICES]);

/* What the memory layer does when a peer is enabled: grants it what is mapped on `device` now. Later mappings ask peers_of(). */
void peers_on_enable(tarn_status (*callback)(struct device *device, int peer));

#endif
