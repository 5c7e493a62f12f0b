/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The captures that tarn knows, and peers. */
#ifndef TARN_DEVICE_CAPTURE_H
#define TARN_DEVICE_CAPTURE_H

#include "device/stream.h"

/* How many known captures are open: on a device, and on all devices, because a capture can include
 * streams of others. Where a wait for one device ends the captures of all (driver.h,
 * `wait_ends_all`), those of all count for each. One load. */
unsigned captures_open(const struct device *device);
unsigned captures_open_anywhere(void);
/* As captures_open(), without captures that are found to be over. The driver is asked about a
 * device's captures, the newest first, until one goes on. If it once said that a stream captures,
 * and now says that it does not, a call that tarn did not see has ended the capture. Such a capture
 * bars nothing from then on, but its record and the memory layer's scope stay until its end is
 * reported. Takes locks. */
unsigned captures_going_on(const struct device *device);
unsigned captures_going_on_anywhere(void); /* the same on all devices */
/* How many of the open captures of a device the calling thread began or announced. Takes a lock. */
unsigned captures_of_thread(const struct device *device);

/* Grows whenever a known capture begins or ends on any device; never 0. Handles that were bound
 * before are bound again. A stream that joins a capture does not change it: while a capture is
 * open, code that depends on this asks the driver. */
uint64_t capture_epoch(void);

/* Whether the driver says that the stream captures now. Asks the driver; a status of 900 to 909
 * counts as yes. */
bool stream_captures(struct stream *stream);

/* Whether a capture began on the stream, or was announced, and its end has not been reported. */
static inline bool stream_awaits_end(const struct stream *stream)
{
    return atomic_load_explicit(&stream->captures, memory_order_acquire);
}

/* Whether a known capture began on the stream, or was announced, and is not over
 * (captures_going_on()): then nothing of tarn is recorded there, whatever the driver says yet.
 * Streams that join it are not known. */
static inline bool stream_is_known(const struct stream *stream)
{
    return stream_awaits_end(stream) && !atomic_load_explicit(&stream->over, memory_order_acquire);
}

/* Whether the legacy stream must not replace a foreign one now, whatever the driver says of it: a
 * capture was announced, and may begin on a blocking stream between the question and the use. */
static inline bool foreign_is_barred(const struct stream *stream)
{
    return stream_is_foreign(stream) &&
           atomic_load_explicit(&device_at(stream->device)->announced, memory_order_acquire) > 0;
}

/* The driver's answer about the stream. INVALIDATED if the query itself fails because of a capture
 * (900 to 909), and for a foreign stream while any blocking stream of its device captures, because
 * that may be the same stream. Changes the last error only if the driver fails in another way. */
tarn_status stream_ask_capture(const struct stream *stream, struct driver_capture *capture);
/* The same, and leaves the last error alone in any case: for callers that go on without an
 * answer. */
tarn_status stream_ask_capture_silently(const struct stream *stream,
                                        struct driver_capture *capture);

/* The same as a status: TARN_ERROR_CAPTURE, with a text, if the stream captures; another status if
 * the driver could not say. `what` names the refused operation. */
tarn_status stream_refuse_capture(struct stream *stream, const char *what);
/* TARN_ERROR_CAPTURE if a known capture is open on the device, as captures_going_on() counts. */
tarn_status captures_refuse(const struct device *device, const char *what);
/* TARN_ERROR_CAPTURE if another capture shows that a wait for the device would end: each stream is
 * asked that certainly exists (stream_next()). The legacy stream is among them, which shows
 * captures of all blocking streams. Asking harms no capture: cuStreamIsCapturing() says so of the
 * legacy stream in cuda.h. */
tarn_status captures_refuse_shown(const struct device *device, const char *what);
/* TARN_ERROR_CAPTURE if one stream shows a capture. TARN_OK if it was retired since
 * `incarnation`. */
tarn_status stream_refuse_shown(struct stream *stream, unsigned incarnation, const char *what);
/* TARN_ERROR_CAPTURE if a known capture is open on the device, or the legacy stream shows one. From
 * then on no known capture begins on the device until captures_unbar(). For code that waits for
 * streams, each of which is asked when its mark is recorded: so the number of streams does not
 * matter. Code that waits for the whole device also calls captures_refuse_shown(). */
tarn_status captures_bar(struct device *device, const char *what);
void captures_unbar(const struct device *device);
bool captures_are_barred(int device);
/* The same on all devices, or on none, and asks each stream that certainly exists. */
tarn_status captures_bar_all(const char *what);
void captures_unbar_all(void);
tarn_status captures_refuse_all(const char *what);

/* Registers what the memory layer does when a known capture has ended, with its graph, or NULL if
 * there is none. If it fails, the graph is destroyed. */
void captures_on_end(tarn_status (*callback)(struct stream *stream, driver_graph graph));

/* Registers what the memory layer does with the caller's graph of an announced capture that is
 * about to end. If it fails, the capture stays open. */
void captures_on_keep(tarn_status (*callback)(struct stream *stream, driver_graph graph));

/* Registers what is done, with no lock held, when a capture that tarn began has ended without a
 * graph: it was aborted or invalidated, or its graph was given up. `id` is the driver's id of the
 * capture. Set before the first handle is created. */
void captures_on_drop(void (*callback)(uint64_t id));

/* Registers what is done, with no lock held, when a capture has ended with a graph, which exists
 * until the call returns to its caller. `id` is the driver's id of the capture. Of an announced
 * capture it is known if capture_note() was called. Set like the one above. */
void captures_on_graph(void (*callback)(uint64_t id, int device, driver_graph graph));
/* The stream takes part in the capture of this id. If that was announced on this stream, tarn knows
 * it from now on. */
void capture_note(struct stream *stream, uint64_t id);

/* Once, before any of this is used. */
void captures_init(void);
/* A thread ends: the captures that it began stay open. */
void captures_of_thread_end(struct thread *thread);

/* Waits, at most `ns`, until no known capture is open on the device or, if `count` is not NULL,
 * until it differs from `seen`. Nobody signals that change, so it is looked for with growing pauses
 * of at most 100 ms. False if the time is over. */
bool captures_wait(struct device *device, uint64_t ns, const atomic_uint_fast64_t *count,
                   uint64_t seen);

/* The devices that can access a device's memory: `devices` receives the device itself first, then
 * its peers. Returns their number. */
int peers_of(const struct device *device, int devices[TARN_MAX_DEVICES]);

/* Registers what the memory layer does when a peer is enabled: it gives the peer access to
 * everything that is mapped on `device` now. Later mappings ask peers_of(). */
void peers_on_enable(tarn_status (*callback)(struct device *device, int peer));

#endif
