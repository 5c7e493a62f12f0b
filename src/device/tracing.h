/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Writing to the trace (record/trace.h) as the calling thread, with the region that it is in. A
 * thread's ring is made at its first record. Everything here is thread-safe and takes no lock
 * except those of rings and tables, which are leaves. */
#ifndef TARN_DEVICE_TRACING_H
#define TARN_DEVICE_TRACING_H

#include "device/stream.h"
#include "record/trace.h"

#include <tarn/trace.h>

/* Returns the number of a *place* (record/trace.h): a pool, and a stream as it was in
 * `incarnation`. For one record that is written at once; 0: there is no room for the place. */
uint32_t trace_place_of_stream(const struct stream *stream, unsigned incarnation,
                               const uint64_t pool[2]);
/* The same for any number of later records: the number stays valid until trace_place_drop().
 * `device` is that of the incarnation, because the slot may have a stream of another device by
 * now. */
uint32_t trace_place_of_stream_keep(const struct stream *stream, unsigned incarnation, int device,
                                    const uint64_t pool[2]);
/* The number of a place that is a pool of a device and no stream. */
uint32_t trace_place_of_device(int device, const uint64_t pool[2]);
/* The same, valid until trace_place_drop(). */
uint32_t trace_place_of_device_keep(int device, const uint64_t pool[2]);
/* The number of a text, which kinds of records that have a text store as their address. */
uint32_t trace_text(const char *text);

/* Writes a record. Only while the trace is on. */
void trace_event(enum trace_kind kind, uint32_t place, uint64_t address, uint64_t size,
                 uint16_t tag);
/* The same for the present incarnation of a stream, in the default pool. */
void trace_stream_event(enum trace_kind kind, const struct stream *stream, uint64_t address,
                        uint64_t size);

/* Reads a text in the language of TARN_TRACE into options. `on` receives whether it asks for a
 * trace. TARN_ERROR_CONFIGURATION names the unknown word. */
tarn_status tracing_words_parse(const char *text, tarn_trace_options *options, bool *on);
/* tracing_init() reads TARN_TRACE, once. tracing_prepare() is called before it, with no lock held:
 * it loads the library that walks call stacks, if TARN_TRACE wants stacks. */
void tracing_prepare(void);
tarn_status tracing_init(void);
/* Registers what the memory layer does when the trace is turned on or off: it switches its fast
 * paths. The callback is called with no lock held except one of tracing.c. */
void tracing_on_turn(void (*callback)(void));

#endif
