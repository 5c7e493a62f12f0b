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

/* The place of a stream, as it was in `incarnation`, in a pool; held, where it is kept for further
 * records. */
uint32_t trace_place_of_stream(const struct stream *stream, unsigned incarnation,
                               const uint64_t pool[2]);
/* `device` is whose stream it was: the next one in a slot may be another's. */
uint32_t trace_place_of_stream_keep(const struct stream *stream, unsigned incarnation, int device,
                                    const uint64_t pool[2]);
/* The same of a device that no stream of which is meant. */
uint32_t trace_place_of_device(int device, const uint64_t pool[2]);
/* The number of a text, for the address of a record that needs one. */
uint32_t trace_text(const char *text);

/* Writes a record. Only while the trace is on. */
void trace_event(enum trace_kind kind, uint32_t place, uint64_t address, uint64_t size,
                 uint16_t tag);
/* The same about a stream of now, in the default pool. */
void trace_stream_event(enum trace_kind kind, const struct stream *stream, uint64_t address,
                        uint64_t size);

/* The calling thread's ring, of the size that is wanted; NULL where it never had one and the host
 * has no memory. */
struct trace_ring *trace_ring_begin(struct thread *thread);

/* What a text as TARN_TRACE has it asks for, and whether for a trace at all.
 * TARN_ERROR_CONFIGURATION names the unknown word. */
tarn_status tracing_words_parse(const char *text, tarn_trace_options *options, bool *on);
/* Reads TARN_TRACE, once. Before it tracing_prepare(), with no lock: that loads what call stacks
 * need, where TARN_TRACE wants them. */
void tracing_prepare(void);
tarn_status tracing_init(void);
/* What the memory layer does when the trace goes on or off: its fast paths take another way. Called
 * with no lock but one of its own. */
void tracing_on_turn(void (*callback)(void));

#endif
