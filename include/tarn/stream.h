/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Streams, events and captures.
 *
 * A tarn_stream is made of slot, lease and incarnation. A stream that the caller created is
 * registered by tarn_stream_adopt() and unregistered by tarn_stream_retire() before it is
 * destroyed. Its value is never valid again after that, even if the vendor reuses the pointer. A
 * new thread's current stream is the legacy stream, which synchronizes with every blocking stream
 * of its device.
 *
 * TARN_STREAM_PER_THREAD. Each thread has its own slot. With CUDA and HIP it is the vendor's stream
 * (CU_STREAM_PER_THREAD, hipStreamPerThread: the constant 2) and blocking. On the host device tarn
 * creates one. The vendor's constant means a different stream in each thread. So the value of
 * another thread's stream, or of an exited thread's, is limited. It can allocate, free and record
 * uses. A call that would have to name it to the vendor returns TARN_ERROR_INVALID_STREAM: its
 * native value, a query, a wait, an event, a question about a capture, a handle. A handle that is
 * leased for it works in its own thread only.
 *
 * Other threads learn that its work has finished from an event on the legacy stream, which waits
 * for all blocking streams of the device. tarn records that event in three cases: another thread
 * frees a block that the stream uses; its memory is wanted and nothing else is left; a new thread
 * takes over the slot of an exited one. The new thread's stream waits for the exited thread's work.
 *
 * Found streams (tarn_stream_find()). A find compares the driver's id of the stream, which is
 * unique in a process. So tarn notices when a destroyed stream's pointer was reused, and retires
 * the old value for good. Between the finds tarn never touches a found stream, because it may be
 * gone. It learns which memory is idle from events that a few of the later finds record, or, as a
 * last resort, from a wait for all work of the device. During that wait tarn_capture_begin()
 * returns TARN_ERROR_BUSY; while a capture is known or shows, the wait is not made. It ends a
 * capture that does not show. A stream that captures does not report its id: a find then returns
 * the stream that was last found at this pointer, or a new one. A stream that was adopted, leased
 * or shared keeps its value. Adopting or retiring a found stream ends this state: from then on the
 * caller reports its end.
 *
 * All functions are thread-safe. Every function
 * may also return TARN_ERROR_FORKED, TARN_ERROR_SHUTDOWN, TARN_ERROR_NO_DRIVER, TARN_ERROR_DRIVER,
 * TARN_ERROR_DEVICE_LOST, TARN_ERROR_CONFIGURATION, TARN_ERROR_OUT_OF_HOST_MEMORY,
 * TARN_ERROR_INVALID_STREAM for an unknown or retired stream, and TARN_ERROR_INVALID_ARGUMENT for a
 * NULL that is not allowed. */
#ifndef TARN_STREAM_H
#define TARN_STREAM_H

#include <stdbool.h>
#include <stdint.h>
#include <tarn/core.h>
#include <tarn/device.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The number of streams per device and priority that tarn_stream_shared_get() hands out
 * (c10/cuda/CUDAStream.cpp). */
#define TARN_STREAM_SHARED_COUNT 32

/* Return or change the calling thread's current stream. `get` returns the one on `device`, as a
 * value that any thread can use (see TARN_STREAM_PER_THREAD). `set` makes `stream` current on its
 * own device; the current device stays as it is.
 *   TARN_ERROR_INVALID_DEVICE   there is no device with that number
 *   TARN_ERROR_INVALID_STREAM   `get`: the thread's current stream was retired or returned, and no
 *                               other was set */
TARN_API tarn_status tarn_stream_get(int device, tarn_stream *stream);
TARN_API tarn_status tarn_stream_set(tarn_stream stream);

/* Registers a stream that the caller created, and returns its value. Adopting the same (device,
 * native) pair again returns the same stream, which must be retired as often as it was adopted.
 *
 * Adopting a stream that tarn knows by other means only returns its value; retiring it again
 * changes nothing. This holds for a stream that tarn leased or shared, whose value ends with its
 * lease, and for default streams: NULL returns the legacy stream. With CUDA and HIP the constant 1
 * also returns the legacy stream, and 2 the calling thread's per-thread default stream.
 *   TARN_ERROR_INVALID_DEVICE     there is no device with that number
 *   TARN_ERROR_INVALID_ARGUMENT   `stream` is NULL
 *   TARN_ERROR_INVALID_STREAM     the driver does not know `native` on this device; or it is not of
 *                                 the device's primary context, which CUDA reports from 12.5 on; or
 *                                 it was leased and has been returned */
TARN_API tarn_status tarn_stream_adopt(int device, void *native, tarn_stream *stream);

/* Unregisters an adopted or found stream. Call it before the stream is destroyed. Free memory of
 * the stream serves the device's other streams once the work queued so far has finished. Live
 * blocks stay valid and are freed as usual. Where it is a thread's current stream, that thread must
 * set another one: tarn_malloc() fails until then.
 *   TARN_ERROR_INVALID_ARGUMENT   the stream was neither adopted nor found; a leased stream is
 *                                 returned, not retired
 *   TARN_ERROR_CAPTURE            the stream captures, unless its capture was aborted and no thread
 *                                 can end it */
TARN_API tarn_status tarn_stream_retire(tarn_stream stream);

/* Returns one of 32 streams per device and priority, round-robin: the 33rd call returns the first
 * stream again, as in PyTorch. `priority` is 0 or negative; a value below the device's greatest
 * priority counts as the greatest. The streams stay, with one exception: tarn_capture_abort()
 * retires one that would capture for ever, and a fresh one takes its place.
 *   TARN_ERROR_INVALID_ARGUMENT   `priority` is above 0
 *   TARN_ERROR_INVALID_DEVICE     there is no device with that number */
TARN_API tarn_status tarn_stream_shared_get(int device, int priority, tarn_stream *stream);

/* Returns the vendor's stream (cudaStream_t). A stream that tarn leased or shared stays tarn's: do
 * not destroy it.
 *   TARN_ERROR_INVALID_STREAM   also another thread's per-thread default stream */
TARN_API tarn_status tarn_stream_native_get(tarn_stream stream, void **native);

/* The properties of a stream. */
typedef struct tarn_stream_info {
    size_t size;  /* sizeof(tarn_stream_info), set by the caller */
    int device;   /* whose stream it is */
    int priority; /* as it was leased or shared; 0 for one that was adopted or found */
} tarn_stream_info;

/* Describes a stream.
 *   TARN_ERROR_INVALID_ARGUMENT   `info` is NULL, or its `size` is unknown */
TARN_API tarn_status tarn_stream_info_get(tarn_stream stream, tarn_stream_info *info);

/* `query` returns TARN_OK if all work queued so far has finished; `synchronize` waits for it.
 *   TARN_ERROR_NOT_READY        `query`: work is still unfinished
 *   TARN_ERROR_CAPTURE          the stream captures, or it is the legacy stream and a blocking
 *                               stream of its device captures. The capture survives */
TARN_API tarn_status tarn_stream_query(tarn_stream stream);
TARN_API tarn_status tarn_stream_synchronize(tarn_stream stream);

/* Makes `stream` and its device current, and remembers in `guard` what was current before.
 * tarn_guard_restore() brings back the stream that was current on that device, and the previous
 * device. The rules of tarn_device_guard_set() hold. */
TARN_API tarn_status tarn_stream_guard_set(tarn_guard *guard, tarn_stream stream);

/* An event marks a point in a stream's work. It belongs to the caller that created it. Destroying
 * NULL is allowed, and so is destroying an event that tarn_free_after() still needs. An event that
 * was never recorded counts as finished.
 *   TARN_ERROR_INVALID_DEVICE     there is no device with that number
 *   TARN_ERROR_INVALID_ARGUMENT   `event` is not an event, or was destroyed */
typedef struct tarn_event tarn_event;
TARN_API tarn_status tarn_event_create(int device, tarn_event **event);
TARN_API tarn_status tarn_event_destroy(tarn_event *event);

/* Records all work queued on `stream` so far, replacing the event's earlier recording. On a stream
 * that captures, the event becomes part of the capture: other streams can wait for it and so join
 * the capture. Any other use of it is TARN_ERROR_CAPTURE until it is recorded again.
 * TARN_STREAM_LEGACY and TARN_STREAM_PER_THREAD mean those of the event's device.
 *   TARN_ERROR_INVALID_STREAM   the stream belongs to another device
 *   TARN_ERROR_CAPTURE          the stream's capture was invalidated, or it is the legacy stream
 *                               and a blocking stream of its device captures */
TARN_API tarn_status tarn_event_record(tarn_event *event, tarn_stream stream);

/* `query` returns TARN_OK if the recorded work has finished; `synchronize` waits for it.
 *   TARN_ERROR_NOT_READY   `query`: the work is unfinished
 *   TARN_ERROR_CAPTURE     the event was recorded in a capture */
TARN_API tarn_status tarn_event_query(tarn_event *event);
TARN_API tarn_status tarn_event_synchronize(tarn_event *event);

/* Makes work queued on `stream` from now on wait for the work that `event` has recorded. The event
 * may belong to another device. A stream that waits for an event of a capture joins that capture.
 *   TARN_ERROR_CAPTURE   the wait would invalidate a capture, which survives: a stream that
 *                        captures cannot wait for work outside its capture, and the legacy stream
 *                        cannot wait for an event of a capture; or the capture that the event was
 *                        recorded in is over */
TARN_API tarn_status tarn_stream_wait(tarn_stream stream, tarn_event *event);

/* Captures. A stream that captures records its work into a graph instead of running it.
 *
 * A capture is *known* if it begins by tarn_capture_begin(), or is announced just before the
 * caller's own begin. A known capture survives every tarn call by every thread: tarn records or
 * queries no event in it, never waits for it, and creates no library handle. tarn sees any other
 * capture only when its stream is used, or when it *shows*.
 *
 * A wait for all work of a device would end every capture there. So before such a wait, tarn asks
 * each stream of the device that it created or that was adopted, and the legacy stream, which
 * answers for all blocking streams. The question ends no capture. While a capture shows in this
 * way, the call returns TARN_ERROR_CAPTURE instead of waiting, and the capture survives. Then tarn
 * waits for these streams by events, and asks again. The wait for the device comes last. It ends a
 * capture that does not show: one on a non-blocking stream that tarn was not told about or has only
 * found (tarn_stream_find()).
 *
 * On HIP, a wait for one device ends the captures of all devices (ROCm/clr, hipDeviceSynchronize(),
 * from 6.2 on). So there, an open capture on any device counts as one on the device that a call is
 * about. tarn does so on every version of HIP.
 *
 * A program can end a known capture by the vendor's call and not report it, as PyTorch does when
 * its capture fails. A call that would be refused because of a known capture asks the driver first.
 * The capture counts as over if the driver has said before that the stream captures, and says now
 * that it does not. What the capture has of its pool's memory stays until the end is reported by
 * one of the calls below.
 *
 * Memory freed while its stream captures, or while a stream that uses it captures, is reused on
 * that stream in order. Other streams get it when the capture is over. A graph keeps nothing alive:
 * what it uses must stay allocated while the graph is launched.
 *
 * A tarn_capture_state says whether a stream captures. */
typedef enum tarn_capture_state {
    TARN_CAPTURE_NONE,       /* it runs its work */
    TARN_CAPTURE_ACTIVE,     /* it captures */
    TARN_CAPTURE_INVALIDATED /* a mistake has invalidated the capture, which can only be ended */
} tarn_capture_state;

/* Begins a capture on a stream.
 *   TARN_ERROR_INVALID_ARGUMENT   the stream is a default stream, or `mode` is unknown
 *   TARN_ERROR_CAPTURE            the stream captures already, or a capture of it was announced
 *   TARN_ERROR_BUSY               a pool of the device is being suspended or resumed,
 *                                 tarn_handle_trim() is destroying handles, or a call of another
 *                                 thread is waiting for all work of the device */
TARN_API tarn_status tarn_capture_begin(tarn_stream stream, tarn_capture_mode mode);

/* Announces a capture that the caller is about to begin on `stream` by the vendor's own call. After
 * the vendor's call has ended the capture, tarn_capture_end_announced() ends the announcement. If
 * no capture was begun after all, tarn_capture_abort() ends it.
 *   TARN_ERROR_INVALID_ARGUMENT   the stream is a default stream
 *   TARN_ERROR_CAPTURE            a known capture of the stream is open, or was announced already
 *   TARN_ERROR_BUSY               as tarn_capture_begin() */
TARN_API tarn_status tarn_capture_announce(tarn_stream stream);

/* Ends an announced capture, after the vendor's call has ended it. Any thread may call this.
 * `graph` is the graph that the vendor's call returned, or NULL if there is none; it stays the
 * caller's. From then on the graph holds the memory of the capture's pool (tarn/pool.h). Until this
 * call the memory that the capture uses stays in place, and the stream cannot be returned, retired
 * or announced again. On failure that remains so, except on a lost device.
 *   TARN_ERROR_CAPTURE            the stream still captures: end that by the vendor's call first
 *   TARN_ERROR_INVALID_ARGUMENT   the stream has no announced capture
 *   TARN_ERROR_NOT_SUPPORTED      the driver cannot report the end of a graph. End the capture by
 *                                 tarn_capture_abort(), and keep the pool's memory while the graph
 *                                 is launched
 *   TARN_ERROR_DEVICE_LOST        the capture is over
 *   TARN_ERROR_OUT_OF_HOST_MEMORY */
TARN_API tarn_status tarn_capture_end_announced(tarn_stream stream, void *graph);

/* Ends a known capture. If tarn began it, its recorded work is discarded. The same threads may call
 * this as for tarn_capture_end(). If the thread that began the capture has exited, any thread may
 * call this. The driver may then refuse to end the capture: tarn forgets it, and the stream keeps
 * capturing until it is destroyed. Return such a stream if it is leased, which destroys it. A
 * shared one (tarn_stream_shared_get()) is destroyed by this call, and its value retired, in every
 * thread; if that fails, repeat the call. Retire any other, and then destroy it.
 *   TARN_ERROR_INVALID_ARGUMENT   the stream has no known capture
 *   TARN_ERROR_CAPTURE            the calling thread did not begin the capture, and it is not
 *                                 relaxed */
TARN_API tarn_status tarn_capture_abort(tarn_stream stream);

/* Returns the driver's current capture state of a stream, whoever began the capture. A capture that
 * was only announced is TARN_CAPTURE_NONE. `id` and `graph` may be NULL. While the state is
 * TARN_CAPTURE_ACTIVE, `id` receives a number that all streams of the same capture share, and
 * `graph` the vendor's graph that the stream captures into. Until the capture ends that graph may
 * be read, hold pools (tarn_pool_hold()) and be remembered (tarn_graph_remember()), but not be
 * destroyed. Otherwise they receive 0 and NULL. `graph` is NULL too where the driver does not show
 * the graph of an open capture: CUDA before 11.3, and HIP without hipStreamGetCaptureInfo_v2(). */
TARN_API tarn_status tarn_capture_state_get(tarn_stream stream, tarn_capture_state *state,
                                            uint64_t *id, void **graph);

#ifdef __cplusplus
}
#endif
#endif
