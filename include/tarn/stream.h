/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Streams and events.
 *
 * A tarn_stream is a value, slot, lease and incarnation: copy it freely. A stream of the vendor's enters by
 * tarn_stream_adopt() and leaves by tarn_stream_retire() before it is destroyed; then its value is never valid again,
 * even if the vendor hands the same pointer out anew. All functions are thread-safe. A retired or unknown stream gives
 * TARN_ERROR_INVALID_STREAM. Every function may also return TARN_ERROR_FORKED, TARN_ERROR_SHUTDOWN,
 * TARN_ERROR_NO_DRIVER, TARN_ERROR_DRIVER, TARN_ERROR_DEVICE_LOST and TARN_ERROR_OUT_OF_HOST_MEMORY. */
#ifndef TARN_STREAM_H
#define TARN_STREAM_H

#include <stdbool.h>
#include <stdint.h>
#include <tarn/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A stream: slot, lease and incarnation. */
typedef uint64_t tarn_stream;

/* The legacy default stream of the calling thread's current device, which waits for and is waited for by every stream
 * that is not non-blocking. Where a call asks for a stream, this is the one that a new thread starts on. */
#define TARN_STREAM_LEGACY 0ul
/* The per-thread default stream of the calling thread on its current device: a slot of its own for each thread. With CUDA and HIP it is
 * the vendor's (CU_STREAM_PER_THREAD, hipStreamPerThread: the constant 2), and blocking; on the host device tarn makes one.
 *
 * The vendor's constant means another stream in each thread. So the value of another thread's stream, or of one that has ended,
 * allocates, frees and records uses like any other; TARN_ERROR_INVALID_STREAM is what every call gives that would name it to the vendor:
 * its native value, a query, a wait, an event, a question about a capture, a handle. A handle that is leased for it is used in its
 * thread alone. Other threads learn that its work has finished by an event on the legacy stream, for which all blocking streams of the
 * device wait: recorded when a block that it uses is freed by another thread, when its memory is wanted and nothing else is left, and
 * when a new thread takes the slot of one that has ended, whose work the new thread's stream waits for. */
#define TARN_STREAM_PER_THREAD 1ul

/* The number of streams a priority that tarn_stream_shared_get() hands out in turn (c10/cuda/CUDAStream.cpp). */
#define TARN_STREAM_SHARED_COUNT 32

/* The calling thread's current stream on `device`, a value that any thread can use (see TARN_STREAM_PER_THREAD). `set` makes
 * `stream` current on its own device and leaves the current device as it is. */
TARN_API tarn_status tarn_stream_get(int device, tarn_stream *stream);
TARN_API tarn_status tarn_stream_set(tarn_stream stream);

/* Registers a stream that the caller created. The same (device, native) pair adopted twice is the same stream, and must be
 * retired as often. One that tarn leased or shared is that stream; retiring it has no effect, and ends with the lease. NULL gives the legacy stream. With CUDA and HIP the constant 1 gives it too, and 2 gives the calling thread's
 * per-thread default stream. Retiring one of these has no effect.
 *   TARN_ERROR_INVALID_DEVICE
 *   TARN_ERROR_INVALID_ARGUMENT   `stream` is NULL
 *   TARN_ERROR_INVALID_STREAM     the driver does not know `native` on this device, or it is not of the device's primary
 *                                 context, which CUDA tells from 12.5 on; or it was leased and has been returned */
TARN_API tarn_status tarn_stream_adopt(int device, void *native, tarn_stream *stream);

/* The stream of a native one, which is registered if it is new. For adaptors, which are given a native stream with each call and are not
 * told when it is destroyed: call this each time, use the value for that call, and keep it no longer. It counts nothing, and needs no
 * retirement. What tarn_stream_adopt() says of special values holds here; a stream that was adopted, leased or shared is that stream.
 *
 * Each call compares the driver's number of the stream, which no two streams of a process share. A destroyed stream whose pointer came
 * again is so noticed, and retired: its value is never valid again. Between these calls tarn does not use a found stream, which may be
 * gone: it learns what memory is idle from events that later calls record, of which one in many has to, and where that does not
 * suffice from a wait for all work of the device. For that one tarn_capture_begin() gives TARN_ERROR_BUSY meanwhile, and while a known
 * capture is open it is not made. Adopting a found stream, or retiring it, ends that: the caller then says when it goes.
 *
 * Takes no lock for a stream that is registered. Allowed while any stream captures. A stream that captures itself does not tell its number:
 * it is then the one that was found at its pointer last, or a new one. So find a stream before its capture begins.
 *   TARN_ERROR_NOT_SUPPORTED      the driver has no such numbers (CUDA before 12.0, HIP before 7.1): adopt and retire instead
 *   TARN_ERROR_CAPTURE            what the stream's pointer stood for was destroyed during a known capture, which is to be aborted first
 *   TARN_ERROR_INVALID_DEVICE, TARN_ERROR_INVALID_ARGUMENT, TARN_ERROR_INVALID_STREAM   as tarn_stream_adopt() */
TARN_API tarn_status tarn_stream_find(int device, void *native, tarn_stream *stream);

/* Forgets an adopted or found stream; call it before the stream is destroyed. Memory in its heap that is not live goes to the
 * device's other streams once the work queued so far has finished; live blocks stay valid and are freed as ever.
 * TARN_ERROR_INVALID_ARGUMENT for one that was neither; TARN_ERROR_CAPTURE for one that captures. */
TARN_API tarn_status tarn_stream_retire(tarn_stream stream);

/* One of 32 streams a priority and device, in turn: the 33rd call gives the first again, as PyTorch does. `priority` is
 * 0 or below; below the device's greatest is taken as the greatest. TARN_ERROR_INVALID_ARGUMENT for one above 0. */
TARN_API tarn_status tarn_stream_shared_get(int device, int priority, tarn_stream *stream);

/* A stream that nobody else is given until it is returned (pytorch/pytorch#173729 is the reason). Returning does not
 * wait; the next lease may find earlier work still queued, in order. The value ends with its lease: every later use of it gives
 * TARN_ERROR_INVALID_STREAM, also as a thread's current stream. (After 65,536 more leases of the stream the value comes again.)
 * Memory that was allocated on the stream stays as it is.
 *   TARN_ERROR_INVALID_ARGUMENT   return: the stream was not leased
 *   TARN_ERROR_INVALID_STREAM     return: the lease has ended
 *   TARN_ERROR_CAPTURE            return: the stream captures */
TARN_API tarn_status tarn_stream_lease(int device, int priority, tarn_stream *stream);
TARN_API tarn_status tarn_stream_return(tarn_stream stream);

/* What the vendor calls it (cudaStream_t), its device, and its priority. */
TARN_API tarn_status tarn_stream_native_get(tarn_stream stream, void **native);
TARN_API tarn_status tarn_stream_device_get(tarn_stream stream, int *device);
TARN_API tarn_status tarn_stream_priority_get(tarn_stream stream, int *priority);

/* TARN_OK when all work queued so far has finished, else TARN_ERROR_NOT_READY. Both give TARN_ERROR_CAPTURE for a stream
 * that captures, and for the legacy stream while a blocking stream of its device does; the capture survives. */
TARN_API tarn_status tarn_stream_query(tarn_stream stream);
TARN_API tarn_status tarn_stream_synchronize(tarn_stream stream);

/* A guard makes `stream` and its device current; restore puts back the stream that was current on that device, and then
 * the device. The rules of tarn_device_guard hold. */
typedef struct tarn_stream_guard {
    tarn_stream previous; /* the stream before, on `device` */
    int device;           /* the stream's */
    int previous_device;  /* the device before */
    bool active;          /* set, and not restored yet */
} tarn_stream_guard;
TARN_API tarn_status tarn_stream_guard_set(tarn_stream_guard *guard, tarn_stream stream);
TARN_API tarn_status tarn_stream_guard_restore(tarn_stream_guard *guard);

/* An event marks a point in a stream. It belongs to its creator; destroying NULL is fine, and so is destroying one that
 * tarn_free_after() still waits for: tarn keeps what it needs. One that was never recorded counts as finished. */
typedef struct tarn_event tarn_event;
TARN_API tarn_status tarn_event_create(int device, tarn_event **event);
TARN_API tarn_status tarn_event_destroy(tarn_event *event);

/* Records all work queued on `stream` so far, in place of an earlier recording. TARN_ERROR_INVALID_STREAM for a stream
 * of another device. On a stream that captures the event becomes part of the capture: streams can wait for it there, and
 * join; every other use is TARN_ERROR_CAPTURE until it is recorded anew. TARN_ERROR_CAPTURE for a stream whose capture
 * was invalidated, and for the legacy stream while a blocking stream of its device captures. */
TARN_API tarn_status tarn_event_record(tarn_event *event, tarn_stream stream);

/* TARN_OK when the recorded work has finished, else TARN_ERROR_NOT_READY. */
TARN_API tarn_status tarn_event_query(tarn_event *event);
TARN_API tarn_status tarn_event_synchronize(tarn_event *event);

/* Work queued on `stream` from now on waits for what `event` has recorded. The event may be of another device. A stream that
 * waits for an event of a capture joins that capture. What would end a capture is TARN_ERROR_CAPTURE, and it survives: a
 * stream that captures cannot wait for work outside its capture, nor the legacy stream for a captured event. */
TARN_API tarn_status tarn_stream_wait(tarn_stream stream, tarn_event *event);

/* Captures: a stream that records work into a graph instead of running it.
 *
 * tarn knows a capture that begins by tarn_capture_begin(), or that is announced just before the caller's own begin. A known
 * capture survives whatever tarn is asked to do meanwhile, by any thread: no event of tarn's is recorded in it or
 * queried from it, nothing waits for it, no library handle is created. One that tarn does not know is only seen when its
 * stream is used.
 *
 * Memory that is freed while its stream captures, or while a stream that uses it does, serves that stream again, in order, and
 * others when the capture is over. A graph keeps nothing alive: what it uses must stay allocated while it is launched. */
typedef enum tarn_capture_mode {
    TARN_CAPTURE_GLOBAL,       /* the driver refuses unsafe calls of every thread meanwhile */
    TARN_CAPTURE_THREAD_LOCAL, /* ... of this thread */
    TARN_CAPTURE_RELAXED       /* ... of none */
} tarn_capture_mode;

/* What a stream does. */
typedef enum tarn_capture_state {
    TARN_CAPTURE_NONE,       /* it runs its work */
    TARN_CAPTURE_ACTIVE,     /* it captures */
    TARN_CAPTURE_INVALIDATED /* it captures, and a mistake has spoilt the capture, which can only be ended */
} tarn_capture_state;

/* Begins a capture on a stream. TARN_ERROR_INVALID_ARGUMENT for a default stream; TARN_ERROR_CAPTURE when it captures already,
 * or is announced to; TARN_ERROR_BUSY while a pool of its device is being suspended or resumed, tarn_handle_trim() destroys handles, or
 * the device is waited for as tarn_stream_find() says. */
TARN_API tarn_status tarn_capture_begin(tarn_stream stream, tarn_capture_mode mode);

/* Says that the caller is about to begin a capture on `stream` by the vendor's own call. tarn_capture_end_announced() ends what this
 * began, after the vendor's call has ended the capture; tarn_capture_abort() where none was begun. TARN_ERROR_CAPTURE when it was announced
 * already; TARN_ERROR_BUSY as above. */
TARN_API tarn_status tarn_capture_announce(tarn_stream stream);

/* Ends a capture that tarn began. `graph` receives the vendor's graph (cudaGraph_t), which the caller destroys. An invalidated capture is
 * over too, and gives TARN_ERROR_CAPTURE, as is one of a device that is lost: TARN_ERROR_DEVICE_LOST.
 *   TARN_ERROR_INVALID_ARGUMENT  a stream without a known capture, or with one that was announced; a NULL
 *   TARN_ERROR_CAPTURE           and the capture goes on: in a thread that did not begin it, unless it is relaxed */
TARN_API tarn_status tarn_capture_end(tarn_stream stream, void **graph);

/* Ends a capture that was announced, by any thread, after the vendor's call has ended it. `graph` is what that call gave, and stays the
 * caller's; NULL where it gave none. The graph holds the memory of the capture's pool from then on (tarn/pool.h). Whatever is forgotten on
 * the way here, the capture stays known, and what it uses stays where it is. On failure it goes on, except on a lost device.
 *   TARN_ERROR_CAPTURE           the vendor says that the stream still captures: end that first
 *   TARN_ERROR_INVALID_ARGUMENT  a stream without a capture that was announced
 *   TARN_ERROR_NOT_SUPPORTED     the driver cannot tell the end of a graph; tarn_capture_abort() ends such a capture, and its pool's memory
 *                                must then not be given back while the graph is launched
 *   TARN_ERROR_DEVICE_LOST       the capture is over
 *   TARN_ERROR_OUT_OF_HOST_MEMORY */
TARN_API tarn_status tarn_capture_end_announced(tarn_stream stream, void *graph);

/* Ends a known capture and throws away what it recorded, if tarn began it; by the same threads. By any where the one that began it has
 * ended: a driver may then let nobody end the capture, and tarn forgets it; its stream captures on, until it is destroyed. */
TARN_API tarn_status tarn_capture_abort(tarn_stream stream);

/* What the driver says of the stream now, whoever began the capture; `id` (may be NULL) is the same for all streams in it. */
TARN_API tarn_status tarn_capture_state_get(tarn_stream stream, tarn_capture_state *state, uint64_t *id);

#ifdef __cplusplus
}
#endif
#endif
